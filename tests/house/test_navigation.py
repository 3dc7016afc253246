"""The test of each module is found by its name; the pages for contributors name what works.

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

PAGE = TESTS / "README.md"

CONFIG = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def test_the_test_of_each_module_is_found_by_its_name() -> None:
    tests = [path for path in modules(TESTS) if path.stem.startswith("test_")]
    names, named = {path.stem for path in tests}, set[str]()
    for test in tests:
        for path in set(re.findall(r"\w+(?:[./]\w+)+", source(test))):
            parts = re.split(r"[./]", path.removesuffix(".py"))
            named.update(".".join(parts[first:]) for first in range(len(parts)))
    of_the_package = [path.relative_to(PACKAGE).with_suffix("") for path in modules(PACKAGE)]
    lost = [
        module.as_posix()
        for module in of_the_package
        if module.name != "__init__" and f"test_{module.name}" not in names and ".".join(module.parts) not in named
    ]
    assert lost == [], "a test file that tests one of these names it in its docstring"


def test_the_page_has_the_folders_that_are_no_rooms() -> None:
    text = PAGE.read_text("utf-8").partition("## Folders")[2]
    folders = {path.name for path in TESTS.iterdir() if (path / "__init__.py").is_file()}
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
    assert folders - rooms - set(re.findall(r"`tests/(\w+)/`", text)) == set()


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
