"""The days and seconds that cron fields match, on a calendar without time zones.

The rules:

- Local seconds in, local seconds out; a local second counts from 1970-01-01T00:00:00 local time.
- The fields are bit masks, so "the next one" is the lowest bit left after a shift and "the last one" the highest bit
  left under a mask. A search looks once at each month that the pattern names, and never at single days or seconds.
- A month has one of four lengths and begins on one of seven weekdays, and nothing else decides which of its days match.
  So all that can be written about days, `L`, `W` and `#` of other syntaxes included, is a table of 28 masks.
- The forward and the backward search are the same one, with a step of 1 or -1.
- All matching days have the same times of day. So fires of excepted days move to other days (`DayMove`) by moving days.
- Days that bounds leave out (`schedule.bounds`) are left out of the mask of each month, so they cost no step of their
  own.

The caller gives the year at which the search ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from nats_scheduler.schedule.days import DayRows, EveryNth
from nats_scheduler.schedule.instants import SECONDS_PER_DAY, civil_from_days, days_from_civil, days_in_month

STAR = 1 << 63
"""Set in a day field by which both day fields must match, and not either: its grammar says which that is."""

FIRST_YEAR, LAST_YEAR = 1970, 2099
"""The years that a pattern can name."""

MONTH_LENGTHS = (28, 29, 30, 31)

LAST = 0
"""The number of the last Friday of a month, where 1 is that of the first."""

_SUNDAY, _SATURDAY = 0, 6
_ALL_WEEKDAYS = (1 << 7) - 1
_EACH_WEEK = sum(1 << 7 * week for week in range(5))
"""A product with a mask of weekdays repeats it in each week of a month."""


class NthWeekday(NamedTuple):
    """One weekday of each month: the second Tuesday is (2, 2), the last one (2, LAST)."""

    weekday: int
    """0–6, Sunday is 0."""
    number: int
    """1–5, or `LAST`."""


@dataclass(frozen=True, slots=True)
class NamedDays:
    """The days that masks cannot name, since they are not the same in each month."""

    last: bool = False
    """True if the last day of the month matches, besides the days of the month."""
    nearest: int | None = None
    """The day of the month (1–31) whose nearest weekday matches, and no other day."""
    nth: tuple[NthWeekday, ...] = ()
    """The weekdays that match, and no other day."""


NO_NAMED_DAYS = NamedDays()

MAX_MOVED_DAYS = 31
"""A day moves by so many days at most; if they are excepted too, it is left out."""

_ALL_MONTHS = (1 << 13) - 2


class DayMove(NamedTuple):
    """Where a day that is excepted moves: to the nearest one that is not, in one direction."""

    step: int
    """1 is to later days, -1 to earlier ones."""
    months: int
    """The months of the pattern: a day may move into any other one."""
    is_open: bool
    """True if it is not known which days are excepted: then each that can be moved to matches, besides all others."""


@dataclass(frozen=True, slots=True)
class CronFields:
    """The fields of a pattern as bit masks: bit n is set if n matches."""

    seconds: int
    minutes: int
    hours: int
    days_of_month: int
    """With STAR if both day fields must match because of this one."""
    months: int
    days_of_week: int
    """With STAR if both day fields must match because of this one; Sunday is bit 0."""
    days: tuple[tuple[int, ...], ...]
    """The matching days (bits 1–31) of months of 28, 29, 30 and 31 days that begin on a Sunday, on a Monday, …"""
    named: NamedDays = NO_NAMED_DAYS
    years: int | None = None
    """Bit n is the year 1970 + n; None is every year."""
    excepted: tuple[DayRows, ...] = ()
    """The days that do not match, whatever the other fields say."""
    every: EveryNth | None = None
    """The only days that match, whatever the other fields say; None is all days."""
    move: DayMove | None = None
    """Where excepted days move; None is nowhere."""

    def without_days(self, excepted: tuple[DayRows, ...], step: int = 0, *, is_open: bool = False) -> "CronFields":
        """Return the fields without days; with a step of 1 or -1 these move, as `DayMove` says."""
        if not step:
            return replace(self, excepted=excepted)
        return replace(self, excepted=excepted, months=_ALL_MONTHS, move=DayMove(step, self.months, is_open))

    def first_match(self, local: int, last_year: int) -> int | None:
        """Return the first matching second at or after `local`, up to the end of the last year."""
        return self._match(local, last_year, 1)

    def last_match(self, local: int, first_year: int) -> int | None:
        """Return the last matching second at or before `local`, down to the beginning of the first year."""
        return self._match(local, first_year, -1)

    def _match(self, local: int, end_year: int, step: int) -> int | None:
        """Return the nearest matching second from `local` on, in the direction of `step`, up to a year."""
        days, time_of_day = divmod(local, SECONDS_PER_DAY)
        year, month, day = civil_from_days(days)
        if (year - end_year) * step > 0:
            return None
        if self.months >> month & 1 and self.days_of(year, month, days - day + 1) >> day & 1:
            time = self._time(time_of_day, step)
            if time is not None:
                return days * SECONDS_PER_DAY + time
        found = self._day(year, month, day, end_year, step)
        if found is None:
            return None
        time = outermost(self.hours, step) * 3600 + outermost(self.minutes, step) * 60 + outermost(self.seconds, step)
        return found * SECONDS_PER_DAY + time

    def _time(self, time_of_day: int, step: int) -> int | None:
        """Return the nearest matching second of a day from `time_of_day` (0–86,399) on."""
        minute_of_day, second = divmod(time_of_day, 60)
        hour, minute = divmod(minute_of_day, 60)
        if self.hours >> hour & 1:
            if self.minutes >> minute & 1 and (found := nearest(self.seconds, second, step)) is not None:
                return minute_of_day * 60 + found
            if (found := nearest(self.minutes, minute + step, step)) is not None:
                return hour * 3600 + found * 60 + outermost(self.seconds, step)
        if (found := nearest(self.hours, hour + step, step)) is not None:
            return found * 3600 + outermost(self.minutes, step) * 60 + outermost(self.seconds, step)
        return None

    def _day(self, year: int, month: int, day: int, end_year: int, step: int) -> int | None:
        """Return the nearest matching day beyond a date, in days since 1970-01-01."""
        while True:
            if self.months >> month & 1:
                first = days_from_civil(year, month, 1)
                found = nearest(self.days_of(year, month, first), day + step, step)
                if found is not None:
                    return first - 1 + found
            day = 0 if step > 0 else 32
            other = nearest(self.months, month + step, step)
            if other is not None:
                month = other
            elif year == end_year:
                return None
            else:
                year, month = year + step, outermost(self.months, step)

    def is_same_after(self, seconds: int) -> bool:
        """Return whether the times of a day that match are the same ones if each of them is this much later."""
        minutes, second = divmod(seconds, 60)
        shift, all_minutes, all_hours = minutes % 60, (1 << 60) - 1, (1 << 24) - 1
        later = (self.minutes << shift | self.minutes >> 60 - shift) & all_minutes
        return self.hours & all_hours == all_hours and second == 0 and later == self.minutes & all_minutes

    def days_of(self, year: int, month: int, first: int) -> int:
        """Return the matching days of a month as bits 1–31; `first` is its first day, in days since 1970-01-01."""
        if self.move is not None:
            return self._days_with_moved(self.move, year, month, first)
        days = self._days_of_pattern(year, month, first)
        for excepted in self.excepted:
            days &= ~excepted.of_month(first)
        return days

    def _days_with_moved(self, move: DayMove, year: int, month: int, first: int) -> int:
        """Return the matching days of a month after excepted ones have moved, here from a window of two months."""
        begin = first - MAX_MOVED_DAYS if move.step > 0 else first  # bit n of what follows is the day n after it
        excepted = 0
        for rows in self.excepted:
            excepted |= rows.of_month(begin) >> 1 | rows.of_month(begin + 31) << 30
        if not (excepted or move.is_open):
            return self._days_of_pattern(year, month, first)
        days, length = self._days_around(move.step, year, month, first, begin), days_in_month(year, month)
        if move.is_open:
            for reach in (1, 2, 4, 8, 16):  # together `MAX_MOVED_DAYS`
                days |= _shifted(days, reach * move.step)
            days &= ~excepted
        else:
            moving = days & excepted
            days ^= moving
            for _ in range(MAX_MOVED_DAYS):
                if not moving:
                    break
                moving = _shifted(moving, move.step)
                days |= moving & ~excepted
                moving &= excepted
        return days >> first - begin << 1 & (2 << length) - 2

    def _days_around(self, step: int, year: int, month: int, first: int, begin: int) -> int:
        """Return the days of a month, and of the two from which days move into it; bit 0 is the day `begin`."""
        days = 0
        for _ in range(3):
            days |= _shifted(self._days_of_pattern(year, month, first) >> 1, first - begin)
            if step < 0:
                first += days_in_month(year, month)
            year, month = (year, month - step) if 1 <= month - step <= 12 else (year - step, 12 if step > 0 else 1)
            if step > 0:
                first -= days_in_month(year, month)
        return days

    def _days_of_pattern(self, year: int, month: int, first: int) -> int:
        """Return the days of a month that match if none is excepted."""
        if self.move is not None and not self.move.months >> month & 1:
            return 0
        if self.years is not None and not (year >= FIRST_YEAR and self.years >> year - FIRST_YEAR & 1):
            return 0
        days = self.days[days_in_month(year, month) - MONTH_LENGTHS[0]][(first + 4) % 7]
        if self.every is not None:
            days &= self.every.of_month(first)
        return days


@lru_cache(maxsize=1_024)
def days_by_length(
    days_of_month: int, days_of_week: int, named: NamedDays = NO_NAMED_DAYS
) -> tuple[tuple[int, ...], ...]:
    """Return the matching days of months of 28 to 31 days, for each weekday on which a month can begin.

    If one of the two day fields has the star, both must match; otherwise one is enough (`docs/reference/patterns.md`,
    "Which day").
    """
    both = (days_of_month | days_of_week) & STAR
    table = []
    for length in MONTH_LENGTHS:
        masks = []
        for first in range(7):
            month_days = _month_days(days_of_month, named, length, first)
            week_days = _week_days(days_of_week, named.nth, length, first)
            masks.append((month_days & week_days if both else month_days | week_days) & (2 << length) - 2)
        table.append(tuple(masks))
    return tuple(table)


def nearest_weekday(day: int, length: int, first: int) -> int:
    """Return the day from Monday to Friday that is nearest to a day, in the same month.

    `length` is that of the month, `first` the weekday on which it begins. A day that the month does not have is its
    last one.
    """
    day = min(day, length)
    weekday = (first + day - 1) % 7
    if weekday == _SATURDAY:
        return day - 1 if day > 1 else day + 2
    if weekday == _SUNDAY:
        return day + 1 if day < length else day - 2
    return day


def _month_days(days_of_month: int, named: NamedDays, length: int, first: int) -> int:
    if named.nearest is not None:
        return 1 << nearest_weekday(named.nearest, length, first)
    return days_of_month & ~STAR | (1 << length if named.last else 0)


def _week_days(days_of_week: int, nth: Sequence[NthWeekday], length: int, first: int) -> int:
    if not nth:
        week = days_of_week & _ALL_WEEKDAYS
        return ((week >> first | week << 7 - first) & _ALL_WEEKDAYS) * _EACH_WEEK << 1
    mask = 0
    for weekday, number in nth:
        earliest = 1 + (weekday - first) % 7
        if number == LAST:
            mask |= 1 << earliest + (length - earliest) // 7 * 7
        else:
            mask |= 1 << earliest + (number - 1) * 7
    return mask


def nearest(mask: int, number: int, step: int) -> int | None:
    """Return the first bit that is set from a number (-1 or more) on, in the direction of `step`; None if none is."""
    if step > 0:
        rest = mask >> number
        return number + (rest & -rest).bit_length() - 1 if rest else None
    rest = mask & (1 << number + 1) - 1
    return rest.bit_length() - 1 if rest else None


def _shifted(mask: int, days: int) -> int:
    """Return a mask moved to later days; to earlier ones if their number is negative."""
    return mask << days if days > 0 else mask >> -days


def outermost(mask: int, step: int) -> int:
    """Return the bit that is set and comes first in the direction of `step`; the mask must not be 0."""
    return (mask & -mask if step > 0 else mask).bit_length() - 1


def values_of(mask: int) -> list[int]:
    """Return the numbers of the bits that are set."""
    return [value for value in range(mask.bit_length()) if mask >> value & 1]
