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

Cost: a microsecond for each day or range to read a text.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import NamedTuple

from nats_scheduler.schedule.instants import DAY, days_from_civil, days_in_month
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS, FaultError, Invalid
from nats_scheduler.schedule.rfc3339 import format_rfc3339

# Days and ranges of days as text: `2026-12-25`, `2026-12-27..2027-01-01`.
#
# The rule: the policy `X-Except` and a calendar (`schedule.calendars`) write days in the same way, read here.
#
# Cost: a microsecond for each day or range.
# Limit: days are those of the Gregorian calendar, of the years 0000 to 9999.

_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})").fullmatch


class Days(NamedTuple):
    """Days in a row, both included, as days since 1970-01-01."""

    first: int
    last: int


def read_days(text: str) -> Days:
    """Read a day or a range of days; raises `FaultError` if it is neither."""
    first, dots, last = text.partition("..")
    begin, end = _day(first), _day(last if dots else first)
    shown = repr(text[:MAX_SHOWN_CHARS])
    if begin is None or end is None:
        raise FaultError(f"contains {shown}: expected days such as 2026-12-25 or 2026-12-27..2027-01-01")
    if end < begin:
        raise FaultError(f"contains {shown}, which ends before it begins")
    return Days(begin, end)


def days_text(days: Days) -> str:
    """Print days in a row as they are read."""
    first, last = day_text(days.first), day_text(days.last)
    return first if first == last else f"{first}..{last}"


def day_text(day: int) -> str:
    """Print one day, by its number since 1970-01-01."""
    return format_rfc3339(day * DAY)[:10]


def in_order(days: Iterable[Days]) -> tuple[Days, ...]:
    """Return days in their order, with those that overlap or follow each other in one; empty ones are left out."""
    found: list[Days] = []
    for one in sorted(one for one in days if one.first <= one.last):
        if found and one.first <= found[-1].last + 1:
            found[-1] = Days(found[-1].first, max(found[-1].last, one.last))
        else:
            found.append(one)
    return tuple(found)


def without(days: Iterable[Days], removed: Days) -> tuple[Days, ...]:
    """Return days in their order, less those that are removed."""
    parts: list[Days] = []
    for one in days:
        parts.append(Days(one.first, min(one.last, removed.first - 1)))
        parts.append(Days(max(one.first, removed.last + 1), one.last))
    return in_order(parts)


def row_around(days: Sequence[Days], day: int) -> Days | None:
    """Return the days in a row that contain a day, of some in their order; None if none do."""
    number = bisect_right(days, day, key=itemgetter(0)) - 1
    return None if number < 0 or days[number].last < day else days[number]


def _day(text: str) -> int | None:
    """Return the number of a day since 1970-01-01; None if there is no such day."""
    match = _DAY(text)
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    if not (1 <= month <= 12 and 1 <= day <= days_in_month(year, month)):
        return None
    return days_from_civil(year, month, day)


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
    days: tuple[Days, ...] | None = None
    """In their order, without overlaps. None if they are not known."""

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
    return Calendar(name, in_order(found))


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
    return InvalidCalendar(text[:MAX_CALENDAR_BYTES].decode("utf-8", "backslashreplace"), reason)
