"""The names in backticks in a comment, a docstring or a page are there; `test_documents.py` holds the links.

The rule: a text in backticks is resolved where its form says that it names something of ours: a path with a suffix of
ours, a path with the name of a function behind it (`engine/stream.py: StreamEngine.step`, `….py::test_…`), a
module with a dot (`runtime.account`), a test.
Limit: any other word in backticks (a header, a command, a bare class) names nothing here.
"""

import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

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
DOCSTRING = re.compile(r'^[ \t]*r?"""(.*?)"""', re.M | re.S)
"""A text in three quotes that begins a line: one that is a value stands behind a name or a bracket."""
COMMENT = re.compile(r"(?:^ *|  )#.*`.*", re.M)
"""A line with a comment that names something."""
SUBJECTS = ("nats_scheduler.advisory.", "nats_scheduler.v1.", "nats_scheduler.control.v1.")
"""The beginnings of names that are subjects, and no modules."""
OF_THE_CHART = {"kubernetes.md"}
"""Its names with dots are values of the chart, some of whose parts are called as rooms are."""
MADE_BY_THE_READER = {"chain.py", "move.py", "publish.py", "paid.py", "report.py", "sensor.py", "worker.py"}
"""Files that a page asks its reader to make."""


def comments(module: Path) -> Iterator[tuple[int, str]]:
    """Give the comments and docstrings of a module with their lines."""
    text = source(module)
    for match in (*COMMENT.finditer(text), *DOCSTRING.finditer(text)):
        if "`" in match[0]:
            yield from enumerate(match[0].splitlines(), text.count("\n", 0, match.start()) + 1)


def lost_in(lines: Iterable[tuple[int, str]], file: Path) -> list[str]:
    """List what the lines of a file name that is not there."""
    return [
        f"{place(file)}:{line}: {name}"
        for line, text in lines
        for name in TICKED.findall(text)
        if not leads_somewhere(name, file)
    ]


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
    if MODULE.fullmatch(name) and name.partition(".")[0] in OUR_FOLDERS and file.name not in OF_THE_CHART:
        return resolves(name.removeprefix("nats_scheduler.").split("."))
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


def defines(module: Path, name: str) -> bool:
    """Return whether a module defines a function, a class or a value of this name, at any depth."""
    value = rf"(?:[\w.]+, )*(?:self\.)?{name}(?:, [\w.]+)*(?:: | = )"
    return re.search(rf"^\s*(?:(?:(?:async )?def|class) {name}\b|{value})", source(module), re.M) is not None


@cache
def names_of_tests() -> frozenset[str]:
    """Return the names of all tests, and of the modules that hold them."""
    return frozenset(name for module in modules(TESTS) for name in (module.stem, *names_of_tests_in(module)))


@pytest.mark.slow
def test_what_a_comment_or_a_docstring_names_is_there() -> None:
    both = (*modules(PACKAGE), *modules(TESTS))
    assert [lost for module in both for lost in lost_in(comments(module), module)] == []


def test_what_a_page_names_is_there() -> None:
    pages = [page for page in markdown_files() if page not in HISTORY]
    assert [lost for page in pages for lost in lost_in(enumerate(prose(page).splitlines(), 1), page)] == []
