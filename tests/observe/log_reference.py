"""`docs/reference/log.md` as data: its events, and whether it describes a given line."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "log.md"

_EVENT = re.compile(r"^\| `(?P<name>\w+)` \| (?P<levels>[a-z, ]+) \| (?P<fields>[^|]*) \| (?P<meaning>[^|]+) \|$", re.M)
_FIELD = re.compile(r"`(\w+)`(\??)")


@dataclass(frozen=True)
class Described:
    """One row: the levels that the event may have, and its fields."""

    levels: frozenset[str]
    always: frozenset[str]
    sometimes: frozenset[str]

    @property
    def fields(self) -> frozenset[str]:
        return self.always | self.sometimes


@cache
def described_events() -> dict[str, Described]:
    """Return the rows of the events, by name; raises AssertionError if an event has two rows."""
    found: dict[str, Described] = {}
    for row in _EVENT.finditer(_part("## The process", "## Fields")):
        fields = _FIELD.findall(row["fields"])
        always, sometimes = (frozenset(name for name, mark in fields if mark == wanted) for wanted in ("", "?"))
        assert row["name"] not in found, f"{row['name']} stands twice"
        found[row["name"]] = Described(frozenset(row["levels"].split(", ")), always, sometimes)
    return found


def described_fields() -> list[str]:
    """List the fields that the table of fields explains."""
    rows = re.findall(r"^\| (`.*?`) \|", _part("## Fields", "\nA time is"), re.M)
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def fault_of(level: str, line: Mapping[str, Any]) -> str | None:
    """Return how a line differs from its description on the page; None if it does not."""
    event = str(line.get("event"))
    fields = {"exception" if key == "exc_info" else key for key in line} - {"event", "level", "log_level", "timestamp"}
    row = described_events().get(event)
    if row is None:
        return f"{event} is not described"
    if level not in row.levels:
        return f"{event} has the level {level}, not {sorted(row.levels)}"
    if not row.always <= fields <= row.fields:
        return f"{event} has the fields {sorted(fields)}, not {sorted(row.always)} and perhaps {sorted(row.sometimes)}"
    return None


def _part(begin: str, end: str) -> str:
    return PAGE.read_text("utf-8").partition(begin)[2].partition(end)[0]
