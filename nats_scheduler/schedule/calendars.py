"""Calendars: days without fires that have a name, are kept apart from the schedules, and can be edited.

A calendar is a text with one day or range of days in each line, or several with commas between them. What follows a `#`
is a comment:

    2026-12-25  # Christmas Day
    2026-12-27..2027-01-01, 2027-01-06

The rules:

- A schedule names a calendar (`X-Except: calendar:de-by`), and its own message does not say which days that are. So a
  pattern that names one must not fire until the days are known (`Bounded.unknown_calendar`).
- A calendar is never changed: an edit makes another one, and all patterns that name it share one object.
- Calendars are equal if their names and days are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nats_scheduler.schedule.days import DayRows, Days, days_text, in_order, read_days, without
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS, FaultError, Invalid

MAX_CALENDAR_BYTES = 64 * 1024
"""Longest text of a calendar."""

MAX_CALENDAR_PARTS = 2_000
"""Most days and ranges in one calendar."""

MAX_NAME_CHARS = 64

NAME_GRAMMAR = f"up to {MAX_NAME_CHARS} letters, digits, '-' and '_', such as 'de-by'"

_is_name = re.compile(rf"[A-Za-z0-9_-]{{1,{MAX_NAME_CHARS}}}").fullmatch


@dataclass(frozen=True, slots=True)
class Calendar:
    """A calendar that is named, and its days if they are known."""

    name: str
    days: DayRows | None = None
    """None if they are not known."""

    def __hash__(self) -> int:
        """Return the hash of its name: that of thousands of days would be computed for each question to a pattern."""
        return hash(self.name)


class InvalidCalendar(Invalid):
    """A text that is no calendar."""


@dataclass(frozen=True, slots=True)
class KnownCalendars:
    """All calendars, as they are at one moment."""

    by_name: Mapping[str, Calendar | InvalidCalendar]
    """Those that exist; the days of a `Calendar` are known."""
    absent: str = "there is no such calendar"
    """Why any other one is not known."""
    is_read: bool = True
    """True if it is known which calendars exist."""

    def calendar(self, name: str) -> Calendar:
        """Return a calendar, without days if they are not known."""
        found = self.by_name.get(name)
        return found if isinstance(found, Calendar) else Calendar(name)

    def fault(self, name: str) -> str:
        """Return why the days of a calendar are not known; "" if they are."""
        found = self.by_name.get(name)
        return self.absent if found is None else "" if isinstance(found, Calendar) else found.reason


NOT_READ = KnownCalendars({}, "the calendars have not been read yet", is_read=False)
"""Nothing is known of calendars."""


def is_calendar_name(text: str) -> bool:
    """Return whether a text can be the name of a calendar: it is a key of a bucket, and part of a header's value."""
    return _is_name(text) is not None


def read_calendar(name: str, text: bytes) -> Calendar | InvalidCalendar:
    """Read the text of a calendar."""
    if len(text) > MAX_CALENDAR_BYTES:
        return _invalid(text, f"has {len(text):,} bytes: expected at most {MAX_CALENDAR_BYTES:,}")
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError:
        return _invalid(text, "is not UTF-8 text")
    parts = [(number, part) for number, line in enumerate(lines, 1) for part in _written(line)]
    if len(parts) > MAX_CALENDAR_PARTS:
        return _invalid(text, f"has {len(parts):,} days and ranges: expected at most {MAX_CALENDAR_PARTS:,}")
    found: list[Days] = []
    for number, part in parts:
        try:
            found.append(read_days(part))
        except FaultError as fault:
            return _invalid(text, f"line {number} {fault}")
    return Calendar(name, DayRows(found))


def with_days(text: str, added: Iterable[Days]) -> str:
    """Return the text of a valid calendar with more days, in lines at its end; days that it has are not repeated."""
    lines = text.splitlines()
    known = tuple(part for line in lines for part in _parts(line))
    for one in added:
        left: tuple[Days, ...] = (one,)
        for before in known:
            left = without(left, before)
        lines += map(days_text, left)
        known += left
    return "".join(f"{line}\n" for line in lines)


def without_days(text: str, removed: Iterable[Days]) -> str:
    """Return the text of a valid calendar without some days; a line that has none any more is left out."""
    gone = tuple(removed)
    lines = []
    for line in text.splitlines():
        parts = _parts(line)
        left = parts
        for one in gone:
            left = without(left, one)
        if left == in_order(parts):
            lines.append(line)
        elif left:
            comment = "".join(line.partition("#")[1:])
            lines.append(", ".join(map(days_text, left)) + (f"  {comment}" if comment else ""))
    return "".join(f"{line}\n" for line in lines)


def _parts(line: str) -> tuple[Days, ...]:
    """Return the days in a line of a valid calendar."""
    return tuple(map(read_days, _written(line)))


def _written(line: str) -> list[str]:
    """Return what is written for days and ranges in a line, without its comment."""
    return [stripped for part in line.partition("#")[0].split(",") if (stripped := part.strip())]


def _invalid(text: bytes, reason: str) -> InvalidCalendar:
    shown = text[: MAX_SHOWN_CHARS + 1].decode("utf-8", "backslashreplace")  # one more, so that it is seen to be cut
    return InvalidCalendar(shown, reason)
