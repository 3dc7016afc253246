"""`docs/reference/compatibility.md`, which says where we follow the server, and the suite say the same.

Its rule: the document is data. Its tables are read here, and so are the marks and the allowances of the tests, out of
their source, so that neither can say what the other does not.
"""

import re
from collections.abc import Iterator
from functools import cache
from itertools import chain
from typing import NamedTuple

import pytest

from tests.house.sources import ROOT, TESTS, modules, place, source

TEXT = (ROOT / "docs" / "reference" / "compatibility.md").read_text("utf-8")
COLUMNS = ("2.12", "2.14", "2.15", "on 2.11", "on 2.10", "portable")
NOTHING_TO_EXPLAIN = {"same", "–"}
VERDICTS = {*NOTHING_TO_EXPLAIN, "better", "differs"}
BESIDE_A_SERVER = ("tests/differential/", "tests/e2e/", "tests/hostile/", "tests/cli/")
COLUMNS_OF = {
    "V2_15": ("2.15",),
    "V2_14": ("2.14",),
    "V2_12": ("2.12",),
    "V2_11": ("on 2.11",),
    "V2_10": ("on 2.10",),
    "EMULATED_VERSIONS": ("on 2.11", "on 2.10"),
    "NATIVE_VERSIONS": ("2.12", "2.14", "2.15"),
}


class Clause(NamedTuple):
    """One row: what is promised, and how each kind of server keeps it."""

    meaning: str
    verdicts: dict[str, str]


@cache
def clauses() -> dict[str, Clause]:
    """Read the rows of the document, by name; raises AssertionError where one stands twice or is misshapen."""
    found: dict[str, Clause] = {}
    for name, row in re.findall(r"^\| `([a-z0-9-]+)` \|(.*)\|$", TEXT, re.M):
        meaning, *cells = (cell.strip() for cell in row.split(" | "))
        assert name not in found, f"{name} stands twice"
        found[name] = Clause(meaning, dict(zip(COLUMNS, cells, strict=True)))
    return found


@cache
def marks() -> dict[str, list[str]]:
    """Find the tests that are marked with clauses: names with the files of the marks."""
    found: dict[str, list[str]] = {}
    for module in modules(TESTS):
        for arguments in re.findall(r"\bpytest\.mark\.clause\(([^)]*)\)", source(module)):
            for name in re.findall(r'"([^"]+)"', arguments):
                found.setdefault(name, []).append(place(module))
    return found


def allowances() -> Iterator[tuple[str, str, str]]:
    """Yield each difference that a comparison passes over: clause, column, file; a text in a tuple means portable."""
    for module in modules(TESTS / "differential"):
        for clause, versions in re.findall(r'\bAllowance\(\s*"([^"]+)",\s*(\w*\(.*?\)|\w+),', source(module)):
            named = re.findall(r"\b[A-Z]\w+\b", versions)
            for column in ("portable",) if '"' in versions else chain(*(COLUMNS_OF[name] for name in named)):
                yield clause, column, place(module)


def test_what_is_not_the_same_is_explained_and_nothing_else_is() -> None:
    assert {name: row for name, row in clauses().items() if not {*row.verdicts.values()} <= VERDICTS} == {}
    different = [name for name, row in clauses().items() if not {*row.verdicts.values()} <= NOTHING_TO_EXPLAIN]
    assert sorted(re.findall(r"^- `([a-z0-9-]+)`: \S", TEXT, re.M)) == sorted(different)


@pytest.mark.slow
def test_each_clause_is_shown_by_a_test() -> None:
    assert sorted(marks()) == sorted(clauses())


def test_a_difference_that_is_passed_over_is_documented() -> None:
    unnamed = [
        f"{where}: {clause} is said to be the same {column}"
        for clause, column, where in allowances()
        if clause not in clauses() or clauses()[clause].verdicts[column] in NOTHING_TO_EXPLAIN
    ]
    assert unnamed == []


def test_what_is_better_or_differs_is_shown_beside_a_real_server() -> None:
    unshown = [
        name
        for name, row in clauses().items()
        if {row.verdicts[column] for column in ("on 2.11", "on 2.10", "portable")} & {"better", "differs"}
        and not any(where.startswith(BESIDE_A_SERVER) for where in marks().get(name, []))
    ]
    assert unshown == []
