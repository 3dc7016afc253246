"""The document that says where we follow the server, and the tests that say so too.

Its rule: the document is data. Its tables are read here, and so are the marks and the allowances of the tests, out of
their source, so that neither can say what the other does not.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.harness import servers
from tests.house.sources import ROOT, TESTS, called_names, modules_with, place, syntax_tree

DOCUMENT = ROOT / "docs" / "reference" / "compatibility.md"
COLUMNS = ("2.12", "2.14", "2.15", "on 2.11", "on 2.10", "portable")
VERDICTS = {"same", "better", "differs", "–"}

_ROW = re.compile(r"^\| `(?P<name>[a-z0-9-]+)` \|(?P<cells>.*)\|$")
_NOTE = re.compile(r"^- `(?P<name>[a-z0-9-]+)`: \S")

COLUMN_OF = {
    "V2_15": "2.15",
    "V2_14": "2.14",
    "V2_12": "2.12",
    "V2_11": "on 2.11",
    "V2_10": "on 2.10",
}
GROUPS = {
    "EMULATED_VERSIONS": ("on 2.11", "on 2.10"),
    "NATIVE_VERSIONS": ("2.12", "2.14", "2.15"),
}


@dataclass(frozen=True)
class Clause:
    """One row: what is promised, and how each kind of server keeps it."""

    name: str
    meaning: str
    verdicts: dict[str, str]

    @property
    def is_the_same_everywhere(self) -> bool:
        """True if there is nothing to explain."""
        return set(self.verdicts.values()) <= {"same", "–"}


@cache
def clauses() -> dict[str, Clause]:
    """Read the rows of the document, by name; raises AssertionError where one stands twice or is misshapen."""
    found: dict[str, Clause] = {}
    for line in DOCUMENT.read_text("utf-8").splitlines():
        row = _ROW.match(line)
        if row is None:
            continue
        meaning, *cells = (cell.strip() for cell in row["cells"].split(" | "))
        assert len(cells) == len(COLUMNS), line
        assert row["name"] not in found, f"{row['name']} stands twice"
        found[row["name"]] = Clause(row["name"], meaning, dict(zip(COLUMNS, cells, strict=True)))
    return found


def notes() -> list[str]:
    """List the clauses that the document explains below its tables."""
    return [note["name"] for line in DOCUMENT.read_text("utf-8").splitlines() if (note := _NOTE.match(line))]


@cache
def marks() -> dict[str, list[str]]:
    """Find the tests that are marked with clauses: names with the places of the marks."""
    found: dict[str, list[str]] = {}
    for module in modules_with("mark.clause", TESTS):
        for name, call in called_names(syntax_tree(module)):
            if name == "pytest.mark.clause":
                for argument in call.args:
                    found.setdefault(_text(argument), []).append(place(module, call))
    return found


def allowances() -> Iterator[tuple[str, str, str]]:
    """Yield each difference that a comparison passes over: clause, column, place."""
    for module in modules_with("Allowance", TESTS / "differential"):
        for name, call in called_names(syntax_tree(module)):
            if name == "Allowance":
                clause, versions = _text(call.args[0]), call.args[1]
                yield from ((clause, column, place(module, call)) for column in _columns(versions, module))


def _columns(versions: ast.expr, module: Path) -> Iterator[str]:
    """Name the columns that an allowance concerns: constants of the harness, alone or in a tuple."""
    for node in ast.walk(versions):
        if isinstance(node, ast.JoinedStr):
            yield "portable"
            return
    for node in ast.walk(versions):
        if isinstance(node, ast.Name):
            assert hasattr(servers, node.id), f"{place(module, node)}: versions are named by the harness's constants"
            yield from GROUPS.get(node.id) or (COLUMN_OF[node.id],)


def _text(argument: ast.expr) -> str:
    assert isinstance(argument, ast.Constant), "a clause is named where it is used"
    assert isinstance(argument.value, str)
    return argument.value
