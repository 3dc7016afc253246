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

Cost: half a microsecond for each day or range to read a text, and eight bytes for each row of days that is kept.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import chain
from typing import NamedTuple, overload

from nats_scheduler.schedule.instants import DAY, days_from_civil, days_in_month
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS, FaultError, Invalid
from nats_scheduler.schedule.rfc3339 import format_rfc3339

# Days and ranges of days as text: `2026-12-25`, `2026-12-27..2027-01-01`.
#
# The rule: the policy `X-Except` and a calendar (`schedule.calendars`) write days in the same way, read here.
#
# Cost: half a microsecond for each day or range.
# Limit: days are those of the Gregorian calendar, of the years 0000 to 9999.

_DAY_CHARS = 10
_YEAR_0 = re.compile(r"0000-([0-9]{2})-([0-9]{2})").fullmatch


class Days(NamedTuple):
    """Days in a row, both included, as days since 1970-01-01."""

    first: int
    last: int


def read_days(text: str) -> Days:
    """Read a day or a range of days; raises `FaultError` if it is neither."""
    first, dots, last = text.partition("..")
    begin = _day(first)
    end = _day(last) if dots else begin
    if begin is None or end is None:
        shown = repr(text[:MAX_SHOWN_CHARS])
        raise FaultError(f"contains {shown}: expected days such as 2026-12-25 or 2026-12-27..2027-01-01")
    if end < begin:
        raise FaultError(f"contains {text!r}, which ends before it begins")
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
    return tuple(DayRows(days))


def without(days: Iterable[Days], removed: Days) -> tuple[Days, ...]:
    """Return days in their order, less those that are removed."""
    parts: list[Days] = []
    for one in days:
        parts.append(Days(one.first, min(one.last, removed.first - 1)))
        parts.append(Days(max(one.first, removed.last + 1), one.last))
    return in_order(parts)


def _day(text: str) -> int | None:
    """Return the number of a day since 1970-01-01; None if there is no such day."""
    if len(text) != _DAY_CHARS or not text[4] == text[7] == "-":
        return None
    try:
        return date.fromisoformat(text).toordinal() - _ORDINAL_OF_1970
    except ValueError:
        return _day_of_year_0(text)


def _day_of_year_0(text: str) -> int | None:
    """Return the number of a day of the year 0, which `date` does not have; None if there is no such day."""
    match = _YEAR_0(text)
    month, day = map(int, match.groups()) if match is not None else (0, 0)
    return days_from_civil(0, month, day) if 1 <= month <= 12 and 1 <= day <= days_in_month(0, month) else None


_ORDINAL_OF_1970 = date(1970, 1, 1).toordinal()

_MONTH = (2 << 31) - 2
"""Bits 1 to 31."""


class DayRows(Sequence[Days]):
    """Days in their order, as rows without overlaps: a year is as small as a day, and each is found at once.

    It is kept as the days at which a row begins or has ended, one after the other. So a day is in a row if an odd
    number of them is not later.

    Cost: eight bytes for each row, and a third of a microsecond to find one.
    """

    __slots__ = ("_edges",)

    def __init__(self, days: Iterable[Days] = ()) -> None:
        """Hold these days, in any order; empty ranges are left out."""
        edges = list[int]()
        for first, last in sorted(days):
            if first > last:
                continue
            if edges and first <= edges[-1]:
                edges[-1] = max(edges[-1], last + 1)
            else:
                edges += first, last + 1
        self._edges = array("i", edges)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._edges) // 2

    @overload
    def __getitem__(self, number: int) -> Days: ...
    @overload
    def __getitem__(self, number: slice) -> Sequence[Days]: ...
    def __getitem__(self, number: int | slice) -> Days | Sequence[Days]:
        """Return one row, or some."""
        if isinstance(number, slice):
            return tuple(self[one] for one in range(*number.indices(len(self))))
        first = range(0, len(self._edges), 2)[number]
        return Days(self._edges[first], self._edges[first + 1] - 1)

    def __eq__(self, other: object) -> bool:
        """Compare the days."""
        return isinstance(other, DayRows) and self._edges == other._edges

    def __hash__(self) -> int:
        """Return a hash of the days."""
        return hash(self._edges.tobytes())

    def __repr__(self) -> str:
        """Show the rows."""
        return f"DayRows({list(self)!r})"

    def around(self, day: int) -> Days | None:
        """Return the row that contains a day; None if none does."""
        number = bisect_right(self._edges, day)
        return Days(self._edges[number - 1], self._edges[number] - 1) if number & 1 else None

    def between(self, first: int, last: int) -> Iterator[Days]:
        """Yield the rows with a day from `first` to `last`, whole."""
        edges = self._edges
        number = bisect_right(edges, first)
        for begin in range(number - (number & 1), len(edges), 2):
            if edges[begin] > last:
                return
            yield Days(edges[begin], edges[begin + 1] - 1)

    def of_month(self, first: int) -> int:
        """Return which of the 31 days from `first` on are in a row, as bits 1 to 31."""
        edges = self._edges
        number = bisect_right(edges, first)
        days = -1 if number & 1 else 0
        while number < len(edges) and (ahead := edges[number] - first) < 31:
            days ^= -2 << ahead  # all from this one on are on the other side
            number += 1
        return days & _MONTH


NO_DAYS = DayRows()


def row_around(sets: Iterable[DayRows], day: int) -> Days | None:
    """Return a row of one of some sets that contains a day; None if none does."""
    for rows in sets:
        if (row := rows.around(day)) is not None:
            return row
    return None


def rows_between(sets: Sequence[DayRows], first: int, last: int) -> Iterable[Days]:
    """Return the rows of all sets together that have a day from `first` to `last`, without overlaps."""
    if len(sets) == 1:
        return sets[0].between(first, last)
    return in_order(chain.from_iterable(rows.between(first, last) for rows in sets))


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
