"""Where the files of the house are, and how the rules read them.

Its rule: a rule says what it looks for and nothing else; files are found, read and parsed here, once per run.
To parse a file costs twenty times what it costs to search its text, so that a rule about a name parses only the files
that contain the name.
"""

import ast
import gc
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "nats_scheduler"
TESTS = ROOT / "tests"


@cache
def modules(folder: Path) -> tuple[Path, ...]:
    """List the Python files under a folder, in a stable order."""
    return tuple(sorted(folder.rglob("*.py")))


def modules_with(word: str, *folders: Path) -> list[Path]:
    """List the Python files under some folders that contain a word, be it in a comment."""
    return [module for folder in folders for module in modules(folder) if word in source(module)]


@cache
def source(module: Path) -> str:
    """Read a module, once per run."""
    return module.read_text("utf-8")


@cache
def syntax_tree(module: Path) -> ast.Module:
    """Parse a module, once per run."""
    gc.disable()  # Python 3.11 raises SystemError if a finalizer of another test runs while it builds a tree
    try:
        return ast.parse(source(module), filename=str(module))
    finally:
        gc.enable()


def names_of_tests_in(module: Path) -> list[str]:
    """List the names of the tests of a module, in order."""
    return re.findall(r"^ *(?:async )?def (test_\w+)\(", source(module), re.M)


def place(module: Path, node: ast.AST | None = None) -> str:
    """Name a file, and a line in it, as an editor opens it."""
    line = getattr(node, "lineno", None)
    return f"{module.relative_to(ROOT)}" + (f":{line}" if line else "")


def called_names(tree: ast.Module) -> Iterator[tuple[str, ast.Call]]:
    """Give each call with its dotted name as written, such as `time.monotonic`; `?` for other parts."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            yield _dotted(node.func), node


def imported_names(tree: ast.Module) -> Iterator[tuple[str, ast.AST]]:
    """Give each imported name in full, such as `time.sleep` for `from time import sleep`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((f"{node.module or ''}.{alias.name}", node) for alias in node.names)


def _dotted(expression: ast.expr) -> str:
    if isinstance(expression, ast.Name):
        return expression.id
    if isinstance(expression, ast.Attribute):
        return f"{_dotted(expression.value)}.{expression.attr}"
    return "?"


def markdown_files() -> list[Path]:
    """List the Markdown files of the checkout, without hidden folders (`.venv`, `.cache`) and what tools made."""
    found = []
    for path in ROOT.rglob("*.md"):
        parents = path.relative_to(ROOT).parts
        if not any(part.startswith(".") or part in {"build", "dist", "node_modules"} for part in parents):
            found.append(path)
    return sorted(found)
