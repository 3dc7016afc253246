"""`docs/internals/promises-and-tests.md` names tests that exist, and every promise that the README prints."""

import re

from tests.house.sources import ROOT, TESTS, names_of_tests_in

DOCUMENT = ROOT / "docs" / "internals" / "promises-and-tests.md"
TEST = re.compile(r"`([a-z_0-9/]+\.py)::(test_\w+)`")


def rows() -> list[list[str]]:
    """Return the cells of each row of the tables, without their heads."""
    lines = [line for line in DOCUMENT.read_text("utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return [row for row in cells if row[-1].strip("| ") != "held by"]


def test_each_test_that_is_named_exists() -> None:
    named = TEST.findall(DOCUMENT.read_text("utf-8"))
    assert named
    there = {module: names_of_tests_in(TESTS / module) for module, _test in named if (TESTS / module).exists()}
    assert [f"{module}::{test}" for module, test in named if test not in there.get(module, [])] == []


def test_each_promise_is_held_by_a_test_or_a_figure() -> None:
    held = [row for row in rows() if TEST.search(row[-1]) or "performance.md" in row[-1]]
    assert [row for row in rows() if row not in held] == []
    assert all(len(row) == 2 for row in rows())


def test_each_promise_of_the_readme_stands_in_the_table() -> None:
    text = (ROOT / "README.md").read_text("utf-8").partition("## What it promises")[2]
    promised = re.findall(r"^(?:\||-) \*\*(.+?)\.?\*\*", text, re.M)
    assert len(promised) == len(set(promised)) == 10
    told = [row[0].strip("*| ") for row in rows()]
    assert [name for name in promised if name not in told] == []


def test_each_reference_page_is_held_as_a_whole() -> None:
    text = DOCUMENT.read_text("utf-8").partition("## Pages that are held as a whole")[2]
    pages = {path.name for path in (ROOT / "docs" / "reference").glob("*.md")}
    assert pages == set(re.findall(r"\.\./reference/([\w-]+\.md)", text))
