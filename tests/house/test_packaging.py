"""What is packaged is whole: the source distribution holds all that its tests import."""

import ast
import tomllib
from pathlib import Path

from tests.house.sources import ROOT

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def imported_by(file: Path) -> set[str]:
    """Return the first parts of what a module imports."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            found |= {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.partition(".")[0])
    return found


def test_the_source_distribution_holds_what_its_tests_import() -> None:
    included = set(CONFIG["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    ours = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    imported = set().union(*(imported_by(file) for file in (ROOT / "tests").rglob("*.py")))
    assert (imported & ours) - included == set()
    assert all((ROOT / name).exists() for name in included)


def test_the_package_says_where_its_rules_are() -> None:
    assert all(url.startswith("https://") for url in CONFIG["project"]["urls"].values())
