"""Where the files of the house are, and how the rules read them.

Its rule: a rule says what it looks for and nothing else; files are found, read and parsed here, once per run.
To parse a file costs twenty times what it costs to search its text, so most rules search.
"""

import ast
import gc
import os
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "nats_scheduler"
TESTS = ROOT / "tests"


@cache
def modules(folder: Path) -> tuple[Path, ...]:
    """List the Python files under a folder, in a stable order."""
    return tuple(sorted(folder.rglob("*.py")))


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


def markdown_files() -> list[Path]:
    """List the Markdown files of the checkout, without hidden folders (`.venv`, `.cache`) and what tools made.

    These are not entered: tests that run at the same time make and remove folders there.
    """
    found = list[Path]()
    for folder, folders, names in os.walk(ROOT):
        folders[:] = [
            one for one in folders if not one.startswith(".") and one not in {"build", "dist", "node_modules"}
        ]
        found += [Path(folder, name) for name in names if name.endswith(".md")]
    return sorted(found)
