"""`docs/coming-from/` as data: the commands of its pages, the schedules that they show, and the fires in their tables.

The rule: a schedule is what stands in code spans of the form `Header: value`, in the order of a cell or of a line.
A pattern begins a schedule, and so does a header that the schedule has already; what a span leaves out is added: a
target, a pattern, and the prefix of a policy.
Limit: whether another system means what a page says of it is judged by people.
"""

import re
import shlex
from argparse import ArgumentParser
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.house.sources import ROOT, place
from tests.house.test_documents import prose, shell_blocks

PAGES = sorted((ROOT / "docs" / "coming-from").glob("*.md"))
STREAM_FILE = re.findall(r"^```json\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.M | re.S)[0]
"""The stream of the examples, as the README shows it."""

HEADER = re.compile(r"`((?:(?:X-)?Nats-Schedule[\w-]*|X-(?!Nats-)[A-Z]\w*): [^`]+)`")
"""A code span that is a header of a schedule, or a policy without its prefix."""
FIRES = re.compile(r"first fires after `([^`]+)`")
"""The head of a column with fires, and when their schedules were stored."""
SPAN = re.compile(r"`([^`]+)`")
TARGET = "orders.due"
ANY_TIME, ANY_INTERVAL = "0 0 9 * * *", "@every 1h"


class Message(NamedTuple):
    """A message that a page shows."""

    where: str
    headers: tuple[tuple[str, str], ...]
    subject: str = "orders.schedules.example"

    @property
    def is_schedule(self) -> bool:
        """Return whether it has a header of a schedule; any other message is published on a target."""
        return any("Nats-Schedule" in name for name, _ in self.headers)


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


def published(page: Path) -> Iterator[Message]:
    """Give the messages that the commands of a page publish."""
    parser = ArgumentParser(exit_on_error=False, allow_abbrev=False)
    parser.add_argument("-J", action="store_true", required=True)
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("subject")
    parser.add_argument("body")
    for program, *arguments in commands(page):
        if (program, arguments[0]) == ("nats", "pub"):
            given = parser.parse_args(arguments[1:])
            yield Message(place(page), tuple(split(header) for header in given.H), given.subject)


def shown(page: Path) -> Iterator[Message]:
    """Give the schedules that the tables and sentences of a page show."""
    for number, line in enumerate(prose(page).splitlines(), 1):
        for cell in line.split("|") if line.startswith("|") else [line]:
            for headers in schedules([split(span) for span in HEADER.findall(cell)]):
                yield Message(f"{place(page)}:{number}", tuple(completed(headers).items()))


def schedules(headers: list[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """Divide the headers of a cell into schedules."""
    found: dict[str, str] = {}
    for name, value in headers:
        if found and (name in found or name.removeprefix("X-") == "Nats-Schedule"):
            yield found
            found = {}
        found[name] = value
    if found:
        yield found


def completed(headers: dict[str, str]) -> dict[str, str]:
    """Add what the headers of a schedule leave out, in the spelling of its pattern; portable without a pattern."""
    prefix = "" if "Nats-Schedule" in headers else "X-"
    whole = {
        "Nats-Schedule": ANY_INTERVAL if "X-Anchor" in headers else ANY_TIME,
        "Nats-Schedule-Target": TARGET,
    }
    for name, value in headers.items():
        plain = name.removeprefix("X-") if name.startswith("X-Nats-") else name
        whole[plain if plain.startswith("Nats-") else f"Nats-Schedule-{plain}"] = value
    return {prefix + name: value for name, value in whole.items()}


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


def split(header: str) -> tuple[str, str]:
    """Split `Name: value` at the first colon."""
    name, _, value = header.partition(":")
    return name.strip(), value.strip()
