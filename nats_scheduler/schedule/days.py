"""Days and ranges of days: their text (`2026-12-25`, `2026-12-27..2027-01-01`), and sets of them.

The policy `X-Except` and a calendar (`schedule.calendars`) write days in the same way. The policy `X-Every` names each
n-th day or week (`2w from 2026-01-05`). Days are those of the Gregorian calendar, of the years 0000 to 9999.
"""

import re
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import chain
from typing import NamedTuple, overload

from nats_scheduler.schedule.instants import DAY, days_from_civil, days_in_month
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS, FaultError
from nats_scheduler.schedule.rfc3339 import format_rfc3339

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


MAX_EVERY_DAYS, MAX_EVERY_WEEKS = 366, 53
"""A year is the longest distance between two days or weeks."""

_every = re.compile(r"([0-9]{1,3})([dw]) from (.*)").fullmatch
_WEEK = 7
_MONDAY = -3
"""1969-12-29: a week begins on Monday, as in ISO 8601."""


@dataclass(frozen=True, slots=True)
class EveryNth:
    """Each n-th day, or all days of each n-th week, in both directions from the one that contains a day."""

    number: int
    """2 to `MAX_EVERY_DAYS` or `MAX_EVERY_WEEKS`."""
    is_weeks: bool
    day: int
    """As it was written."""
    _bits: int = field(init=False, repr=False, compare=False)
    """Bit n is the day n after the first one; a month more than the distance, so that each month is a part of it."""

    def __post_init__(self) -> None:
        """Compute the days of one distance and a month."""
        length = _WEEK if self.is_weeks else 1
        row, count = (1 << length) - 1, 31 // self.distance + 2
        object.__setattr__(self, "_bits", sum(row << number * self.distance for number in range(count)))

    @property
    def distance(self) -> int:
        """From one to the next, in days."""
        return self.number * (_WEEK if self.is_weeks else 1)

    def of_month(self, first: int) -> int:
        """Return which of the 31 days from `first` on are among them, as bits 1 to 31."""
        begin = self.day - (self.day - _MONDAY) % _WEEK if self.is_weeks else self.day
        return self._bits >> (first - begin) % self.distance << 1 & _MONTH


def read_every_nth(text: str) -> EveryNth:
    """Read `3d from 2026-01-05` or `2w from 2026-01-05`; raises `FaultError`."""
    written = _every(text)
    day = None if written is None else _day(written[3])
    if written is None or day is None:
        shown = repr(text[:MAX_SHOWN_CHARS])
        raise FaultError(f"is {shown}: expected days or weeks from one of them on, such as '2w from 2026-01-05'")
    number, is_weeks = int(written[1]), written[2] == "w"
    most = MAX_EVERY_WEEKS if is_weeks else MAX_EVERY_DAYS
    if not 2 <= number <= most:
        raise FaultError(f"is every {number}{written[2]}: expected 2{written[2]} to {most}{written[2]}")
    return EveryNth(number, is_weeks, day)


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
