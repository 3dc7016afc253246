"""Instants as integers, and the calendar dates that they stand for.

One rule: an instant is a number of nanoseconds since the Unix epoch, of any size, and never wraps.
`datetime` covers only the years 1 to 9999 and has no nanoseconds, so the proleptic Gregorian calendar is computed
here, by the usual arithmetic on 400-year eras; all functions are correct for negative numbers too.
Cost: about half a microsecond a conversion.
"""

from __future__ import annotations

from typing import TypeVar

Number = TypeVar("Number", int, float)

# The units of time, in nanoseconds.
NANOSECOND = 1
MICROSECOND = 1_000 * NANOSECOND
MILLISECOND = 1_000 * MICROSECOND
SECOND = 1_000 * MILLISECOND
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR

SECONDS_PER_DAY = 86_400

ZERO_TIME_NS = -62_135_596_800 * SECOND
"""0001-01-01T00:00:00Z in ns, which is "no time" to Go and "no schedule" to the server."""

_DAYS_PER_ERA = 146_097
_DAYS_TO_1970 = 719_468
"""Days from 0000-03-01, where the eras start, to the Unix epoch."""

_DAYS_PER_MONTH = (0, 31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def round_to_second(instant: int) -> int:
    """Round to the nearest whole second, half up."""
    return (instant + SECOND // 2) // SECOND * SECOND


def floor_to_second(instant: int) -> int:
    """Cut off the fraction of the second, towards the past."""
    return instant // SECOND * SECOND


def next_multiple(at: Number, period: Number) -> Number:
    """Return the first multiple of a period after `at`, in the unit of both, of any clock.

    What is done periodically is done at multiples of its period, so that it shares its wakes.
    """
    return (at // period + 1) * period


def is_leap(year: int) -> bool:
    """Return whether the Gregorian year has a 29 February."""
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def days_in_month(year: int, month: int) -> int:
    """Return the length of a month (1–12) in days."""
    return 29 if month == 2 and is_leap(year) else _DAYS_PER_MONTH[month]


def days_from_civil(year: int, month: int, day: int) -> int:
    """Count the days from 1970-01-01 to a date; the date must exist."""
    if month <= 2:
        year -= 1
        month += 12
    return year * 365 + year // 4 - year // 100 + year // 400 + (153 * month - 457) // 5 + day - 1 - _DAYS_TO_1970


def civil_from_days(days: int) -> tuple[int, int, int]:
    """Return year, month (1–12) and day (1–31) of the day that is `days` days after 1970-01-01."""
    era, day_of_era = divmod(days + _DAYS_TO_1970, _DAYS_PER_ERA)
    year_of_era = (day_of_era - day_of_era // 1_460 + day_of_era // 36_524 - day_of_era // 146_096) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    shifted = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * shifted + 2) // 5 + 1
    if shifted < 10:
        return era * 400 + year_of_era, shifted + 3, day
    return era * 400 + year_of_era + 1, shifted - 9, day


def weekday_of(days: int) -> int:
    """Return the weekday (Sunday is 0) of the day that is `days` days after 1970-01-01."""
    return (days + 4) % 7
