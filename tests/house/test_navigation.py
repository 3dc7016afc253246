"""The test of each module is found by its name or in a table; the pages for contributors name what works.

The source distribution holds all that its tests import. The fast tier starts no server: the guard that refuses it
(`tests/harness/tiers.py`) is shown to be on in a test of it.
"""

import asyncio
import re
import subprocess
import sys
import tomllib

import pytest

from tests.harness.tiers import ProcessStartedError
from tests.house.sources import PACKAGE, ROOT, TESTS, modules, source
from tests.house.test_documents import shell_blocks

PAGE = TESTS / "README.md"
FAST_TIER = ".venv/bin/pytest -n 2 -m fast"
SITE_LOCK = ROOT / "docs" / "site" / "requirements.lock"
OF_THE_SITE = {"mkdocs"}
"""The programs that build the site: the page installs them from the lock file, and the tests do without them."""

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
ROW = re.compile(r"^\| `([\w/]+\.py)` \| (.+) \|$", re.M)


def listed() -> dict[str, list[str]]:
    """Return the table of the modules whose test has another name."""
    return {module: re.findall(r"`([\w/]+\.py)`", tests) for module, tests in ROW.findall(PAGE.read_text("utf-8"))}


def test_the_test_of_each_module_is_found_by_name_or_in_the_table() -> None:
    named = {path.stem for path in modules(TESTS)}
    unnamed = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules(PACKAGE)
        if path.name != "__init__.py" and f"test_{path.stem}" not in named
    }
    assert sorted(unnamed - set(listed())) == [], "a module needs a test of its name, or a row in tests/README.md"
    assert sorted(set(listed()) - unnamed) == [], "these rows are not needed any more"


def test_the_table_names_test_files() -> None:
    lost = [test for tests in listed().values() for test in tests if not (TESTS / test).is_file()]
    assert lost == []
    assert all(listed().values())


def test_the_page_has_a_row_for_each_folder() -> None:
    text = PAGE.read_text("utf-8").partition("## Folders")[2]
    folders = {path.name for path in TESTS.iterdir() if (path / "__init__.py").is_file()}
    assert folders - set(re.findall(r"`tests/(\w+)/`", text)) == set()


def test_each_command_of_the_contributors_page_exists() -> None:
    lines = "\n".join(shell_blocks(ROOT / "CONTRIBUTING.md")).splitlines()
    programs = [part.split()[0] for line in lines for part in line.split(" && ")]
    known = {"git", "python3", "cd"}
    tools = {program.removeprefix(".venv/bin/") for program in programs if program not in known}
    assert tools == {"pip", "pytest", "ruff", "mypy", "lint-imports", *OF_THE_SITE}
    installed = tools - OF_THE_SITE
    assert all((ROOT / ".venv" / "bin" / tool).exists() for tool in installed) or not (ROOT / ".venv").exists()
    locked = SITE_LOCK.read_text("utf-8")
    assert all(re.search(rf"^{tool}==", locked, re.M) for tool in OF_THE_SITE)
    assert any(SITE_LOCK.relative_to(ROOT).as_posix() in line.split() for line in lines)
    set_up = shell_blocks(ROOT / "README.md")[1].rpartition(" && ")[0]
    assert {set_up, FAST_TIER} <= set(lines), "as other pages name them"
    assert FAST_TIER in PAGE.read_text("utf-8")


def test_the_source_distribution_holds_what_its_tests_import() -> None:
    included = set(CONFIG["tool"]["hatch"]["build"]["targets"]["sdist"]["include"])
    ours = {path.name for path in ROOT.iterdir() if (path / "__init__.py").is_file()}
    imported = {
        name for file in modules(TESTS) for name in re.findall(r"^\s*(?:from|import) (\w+)", source(file), re.M)
    }
    assert (imported & ours) - included == set()
    assert all((ROOT / name).exists() for name in included)
    assert all(url.startswith("https://") for url in CONFIG["project"]["urls"].values())


def test_a_test_of_the_fast_tier_starts_no_process(refused_starts: list[str]) -> None:
    with pytest.raises(ProcessStartedError):
        subprocess.Popen([sys.executable, "--version"])
    with pytest.raises(ProcessStartedError):
        asyncio.run(asyncio.create_subprocess_exec(sys.executable, "--version"))
    assert len(refused_starts) == 2
    refused_starts.clear()
