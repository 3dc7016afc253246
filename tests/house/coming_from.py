"""`docs/coming-from/` as data: the commands of its pages, the headers that they show, and the fires in their tables.

The rule: a header is what stands in a code span of the form `Header: value`, where `X-Name: value` is a policy.
Limit: whether another system means what a page says of it is judged by people.
"""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.house.sources import ROOT, place
from tests.house.test_documents import prose, shell_blocks

PAGES = sorted((ROOT / "docs" / "coming-from").glob("*.md"))
STREAM_FILE = re.findall(r"^```json\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)[0]
"""The stream of the examples, as the README shows it."""

HEADER = re.compile(r"`((?:X-)?Nats-Schedule[\w-]*|X-(?!Nats-)[A-Z]\w*): ([^`]+)`")
"""A code span that is a header of a schedule, or a policy without its prefix."""
FIRES = re.compile(r"first fires after `([^`]+)`")
"""The head of a column with fires, and when their schedules were stored."""
SPAN = re.compile(r"`([^`]+)`")


class Fires(NamedTuple):
    """A row of a table of fires."""

    where: str
    pattern: str
    syntax: str | None
    stored_at: str
    shown: tuple[str, ...]


def commands(page: Path) -> list[list[str]]:
    """List the commands of a page's `sh` blocks, each as its arguments."""
    lines = "\n".join(shell_blocks(page)).replace("\\\n", " ").splitlines()
    return [arguments for line in lines if (arguments := shlex.split(line, comments=True))]


def headers(page: Path) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Give the headers that the cells of tables and the sentences of a page show, with their place."""
    for number, line in enumerate(prose(page).splitlines(), 1):
        for cell in line.split("|") if line.startswith("|") else [line]:
            yield f"{place(page)}:{number}", HEADER.findall(cell)


def fires(page: Path) -> Iterator[Fires]:
    """Give the rows of the tables of fires on a page; the pattern is the last code span before the fires."""
    stored_at, syntax = "", None
    for number, line in enumerate(prose(page).splitlines(), 1):
        if not line.startswith("|"):
            stored_at = ""
        elif head := FIRES.search(line):
            named = re.search(r"`X-Syntax: (\w+)`", line)
            stored_at, syntax = head[1], named[1] if named else None
        elif stored_at and not line.startswith("|-"):
            *_, pattern, times = line.strip("| ").split(" | ")
            yield Fires(
                f"{place(page)}:{number}", SPAN.findall(pattern)[-1], syntax, stored_at, tuple(SPAN.findall(times))
            )
