"""Cron fields whose days depend on the length of the month, or that name years: what `L`, `W` and `#` need.

One rule: a month has one of four lengths and begins on one of seven weekdays, and nothing else decides which of its
days match. So all that can be written about days is a table of 28 masks, made when the pattern is parsed, and the
search is that of six fields.
Cost: 5 µs, plus 1 µs for each month without a match that the search passes.
Limit: years 1970 to 2099.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nats_scheduler.schedule.cron_calendar import STAR, CronFields, highest, lowest
from nats_scheduler.schedule.instants import SECONDS_PER_DAY, civil_from_days, days_in_month

FIRST_YEAR, LAST_YEAR = 1970, 2099
"""The years that a pattern can name."""

MONTH_LENGTHS = (28, 29, 30, 31)

LAST = 0
"""The number of the last Friday of a month, where 1 is that of the first."""

_SUNDAY, _SATURDAY = 0, 6


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
    """Whether the last day of the month matches, besides the days of the month."""
    nearest: int | None = None
    """The day of the month (1–31) whose nearest weekday matches, and no other day."""
    nth: tuple[NthWeekday, ...] = ()
    """The weekdays that match, and no other day."""


NO_NAMED_DAYS = NamedDays()


@dataclass(frozen=True, slots=True)
class MonthFields(CronFields):
    """Fields of which `days` are the days that match in some month with this first weekday."""

    days_by_length: tuple[tuple[int, ...], ...]
    """The same for months of 28, 29, 30 and 31 days: four times seven masks, without days beyond the length."""
    named: NamedDays
    years: int | None
    """Bit n is the year 1970 + n; None is every year."""

    def first_match(self, local: int, last_year: int) -> int | None:
        """Return the first matching second at or after `local`, up to the end of the last year."""
        days = local // SECONDS_PER_DAY
        year, month, day = civil_from_days(days)
        if self._is_a_day(days, year, month, day):
            return CronFields.first_match(self, local, last_year)
        later_day = None if year > last_year else self._later_day(year, month, day, last_year)
        if later_day is None:
            return None
        earliest = lowest(self.hours) * 3600 + lowest(self.minutes) * 60 + lowest(self.seconds)
        return later_day * SECONDS_PER_DAY + earliest

    def last_match(self, local: int, first_year: int) -> int | None:
        """Return the last matching second at or before `local`, down to the beginning of the first year."""
        days = local // SECONDS_PER_DAY
        year, month, day = civil_from_days(days)
        if self._is_a_day(days, year, month, day):
            return CronFields.last_match(self, local, first_year)
        earlier_day = None if year < first_year else self._earlier_day(year, month, day, first_year)
        if earlier_day is None:
            return None
        latest = highest(self.hours) * 3600 + highest(self.minutes) * 60 + highest(self.seconds)
        return earlier_day * SECONDS_PER_DAY + latest

    def _is_a_day(self, days: int, year: int, month: int, day: int) -> bool:
        """Return whether a date, which is `days` days after 1970-01-01, matches."""
        return bool(self.months >> month & 1 and self.days_of(year, month, days - day + 1) >> day & 1)

    def days_of(self, year: int, month: int, first: int) -> int:
        """Return the matching days of a month as bits 1–31; `first` is its first day, in days since 1970-01-01."""
        if self.years is not None and not (year >= FIRST_YEAR and self.years >> year - FIRST_YEAR & 1):
            return 0
        return self.days_by_length[days_in_month(year, month) - MONTH_LENGTHS[0]][(first + 4) % 7]


def days_by_length(days_of_month: int, days_of_week: int, named: NamedDays) -> tuple[tuple[int, ...], ...]:
    """Return the matching days of months of 28 to 31 days that begin on a Sunday, on a Monday, …

    If one of the two day fields has the star, both must match; otherwise one is enough.
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
        return sum(1 << day for day in range(1, 32) if days_of_week >> (first + day - 1) % 7 & 1)
    mask = 0
    for weekday, number in nth:
        earliest = 1 + (weekday - first) % 7
        if number == LAST:
            mask |= 1 << earliest + (length - earliest) // 7 * 7
        else:
            mask |= 1 << earliest + (number - 1) * 7
    return mask
