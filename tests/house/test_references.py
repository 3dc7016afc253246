"""The names in backticks in a comment, a docstring or a page are there; `test_documents.py` holds the links.

The rule: a text in backticks is resolved where its form says that it names something of ours: a path with a suffix of
ours, a path with the name of a function behind it (`engine/stream.py: StreamEngine.step`, `….py::test_…`), a
module with a dot (`runtime.account`), a test.
Limit: any other word in backticks (a header, a command, a bare class) names nothing here.
"""

import io
import json
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.house.sources import PACKAGE, ROOT, TESTS, markdown_files, modules, names_of_tests_in, place, source
from tests.house.test_documents import prose

HISTORY = {ROOT / "CHANGELOG.md"}
"""It names what was there when a release was made."""
BASES = (ROOT, PACKAGE, TESTS, ROOT / "docs", ROOT / "docs" / "internals", ROOT / "deploy")
"""Where a path may begin, beside the folder of the file that names it."""
OUR_FOLDERS = {path.name for base in (ROOT, PACKAGE, TESTS) for path in base.iterdir() if path.is_dir()}

TICKED = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"(?P<path>[\w.-]+(?:/[\w.-]+)*\.(?:py|md|jsonl|toml))(?:(?:::|: )(?P<name>[A-Za-z_][\w.]*))?")
FOLDER = re.compile(r"(?:[a-z_]+/)+")
MODULE = re.compile(r"[a-z_]+(?:\.[A-Za-z_]\w*)+")
TEST = re.compile(r"test_\w+")
NUMBERED = re.compile(r"\bbehaviou?r \d+(?:\.\d+)*\b")
"""A number in a list that the repository does not hold."""
CHECKS = re.compile(r"\bchecks? (\d{1,2})(?:(?: to |, | and )(\d{1,2})\b)?(?: and (\d{1,2})\b)?")
"""A row of the table "Order of checks" in `docs/reference/headers.md`."""
DOCSTRING = re.compile(r'^[ \t]*r?"""(.*?)"""', re.M | re.S)
"""A text in three quotes that begins a line: one that is a value stands behind a name or a bracket."""
NAMING_COMMENT = re.compile(r"#.*(?:`|behavio|check)")
"""A line that may have a comment in which `faults` finds anything."""
SUBJECTS = ("nats_scheduler.advisory.", "nats_scheduler.v1.", "nats_scheduler.control.v1.")
"""The beginnings of names that are subjects, and no modules."""
MADE_BY_THE_READER = {"chain.py", "move.py", "publish.py", "paid.py", "report.py", "sensor.py", "worker.py"}
"""Files that a page asks its reader to make."""


def comments(module: Path) -> Iterator[tuple[int, str]]:
    """Give the comments and docstrings of a module with their lines."""
    if NAMING_COMMENT.search(source(module)):  # to find the others would take most of the time
        for token in tokenize.generate_tokens(io.StringIO(source(module)).readline):
            if token.type == tokenize.COMMENT:
                yield token.start[0], token.string
    for match in DOCSTRING.finditer(source(module)):
        begin = source(module).count("\n", 0, match.start(1)) + 1
        yield from enumerate(match[1].splitlines(), begin)


def faults(text: str, file: Path) -> list[str]:
    """List what a line of a file names that is not there."""
    named = [name for name in TICKED.findall(text) if not leads_somewhere(name, file)]
    checks = [number for match in CHECKS.finditer(text) for number in match.groups() if number]
    return named + NUMBERED.findall(text) + [f"check {number}" for number in checks if number not in numbered_checks()]


def leads_somewhere(name: str, file: Path) -> bool:
    """Return whether what stands in backticks is there, or names nothing of ours."""
    if name in MADE_BY_THE_READER or name.startswith(SUBJECTS):
        return True
    if match := PATH.fullmatch(name):
        found = [path for base in (file.parent, *BASES) if (path := base / match["path"]).is_file()]
        if match["name"] is None:
            return bool(found)
        last = match["name"].rpartition(".")[2]
        return any(defines(path, last) for path in found if path.suffix == ".py")
    if FOLDER.fullmatch(name) and name.partition("/")[0] in OUR_FOLDERS:
        return any((base / name).is_dir() for base in (file.parent, *BASES))
    if TEST.fullmatch(name):
        return name in names_of_tests()
    if MODULE.fullmatch(name) and name.partition(".")[0] in {*OUR_FOLDERS, "nats_scheduler"}:
        return resolves(name.removeprefix("nats_scheduler.").split(".")) or is_value_of_the_chart(name.split("."))
    return True


def resolves(parts: list[str]) -> bool:
    """Return whether a dotted name is a room, a module, or something that is defined in one."""
    for base in (PACKAGE, TESTS, ROOT):
        for length in range(len(parts), 0, -1):
            path = base.joinpath(*parts[:length])
            rest = parts[length:]
            if path.is_dir() and not rest:
                return True
            module = path.with_suffix(".py")
            if module.is_file() and (not rest or defines(module, rest[-1])):
                return True
    return False


def is_value_of_the_chart(parts: list[str]) -> bool:
    """Return whether a dotted name is a value of the Helm chart, which has parts that are called as rooms are."""
    node: Any = values_of_the_chart()
    for part in parts:
        form = node.get("$ref", "").rpartition("/")[2]
        node = (values_of_the_chart()["definitions"][form] if form else node).get("properties", {}).get(part)
        if node is None:
            return False
    return True


@cache
def values_of_the_chart() -> dict[str, Any]:
    """Read the schema of the chart's values."""
    path = ROOT / "deploy" / "helm" / "nats-scheduler" / "values.schema.json"
    return dict(json.loads(path.read_text("utf-8")))


def defines(module: Path, name: str) -> bool:
    """Return whether a module defines a function, a class or a value of this name, at any depth."""
    value = rf"(?:[\w.]+, )*(?:self\.)?{name}(?:, [\w.]+)*(?:: | = )"
    return re.search(rf"^\s*(?:(?:(?:async )?def|class) {name}\b|{value})", source(module), re.M) is not None


@cache
def numbered_checks() -> frozenset[str]:
    """Return the numbers of the checks that the reference lists."""
    page = (ROOT / "docs" / "reference" / "headers.md").read_text("utf-8").partition("## Order of checks")[2]
    return frozenset(re.findall(r"^\| (\d+) \|", page, re.M))


@cache
def names_of_tests() -> frozenset[str]:
    """Return the names of all tests, and of the modules that hold them."""
    return frozenset(name for module in modules(TESTS) for name in (module.stem, *names_of_tests_in(module)))


@pytest.mark.slow
def test_what_a_comment_or_a_docstring_names_is_there() -> None:
    lost = [
        f"{place(module)}:{line}: {fault}"
        for module in (*modules(PACKAGE), *modules(TESTS))
        for line, text in comments(module)
        for fault in faults(text, module)
    ]
    assert lost == []


def test_what_a_page_names_is_there() -> None:
    lost = [
        f"{place(page)}:{line}: {fault}"
        for page in markdown_files()
        for line, text in enumerate(prose(page).splitlines(), 1)
        for fault in (faults(text, page) if page not in HISTORY else ())
    ]
    assert lost == []
