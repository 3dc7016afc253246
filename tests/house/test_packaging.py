"""The source distribution is whole: it holds all that its tests import."""

import re
import tomllib
from pathlib import Path

from tests.house.sources import ROOT, TESTS, modules, source

IMPORT = re.compile(r"^\s*(?:from|import) (\w+)", re.M)
CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def imported_by(file: Path) -> set[str]:
    """Return the first parts of what a module imports, and of a text that reads as if it did."""
    return set(IMPORT.findall(source(file)))


def test_the_source_distribution_holds_what_its_tests_import() -> None:
    included = set(CONFIG["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    ours = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    imported = set().union(*(imported_by(file) for file in modules(TESTS)))
    assert (imported & ours) - included == set()
    assert all((ROOT / name).exists() for name in included)


def test_the_package_says_where_its_rules_are() -> None:
    assert all(url.startswith("https://") for url in CONFIG["project"]["urls"].values())
