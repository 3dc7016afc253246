"""Schedules of the calendar in plain words: `hourly`, `daily`, `weekly`, `monthly`.

Each is a `cron` that its author need not spell. Times are those of the clock of `tz`, UTC without one: a time that this
clock skips does not exist that day, and one that it repeats comes twice.
"""

from datetime import time
from typing import Literal

from nats_scheduler.client.when import InvalidScheduleError, TimeZone, When, cron
from nats_scheduler.message.rejection import PATTERN_INVALID

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]

_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def hourly(minute: int = 0, second: int = 0, *, tz: TimeZone | None = None) -> When:
    """Fire once in each hour, at a minute (0 to 59) and a second of it.

    The zone counts only if its clock is not a whole number of hours off UTC.

    >>> hourly(15).pattern
    '0 15 * * * *'
    """
    return cron(f"{_number(second, 'the second')} {_number(minute, 'the minute')} * * * *", tz)


def daily(at: time, tz: TimeZone | None = None) -> When:
    """Fire each day at a time of the clock of `tz`.

    Raises `ValueError` for a time with a zone of its own, or with a fraction of a second.

    >>> daily(time(9, 30), tz="Europe/Berlin").pattern
    '0 30 9 * * *'
    """
    return cron(f"{_clock(at)} * * *", tz)


def weekly(*days: Weekday, at: time, tz: TimeZone | None = None) -> When:
    """Fire on some days of each week, at a time of the clock of `tz`.

    Raises `ValueError` for what is no day of the week, or no day at all.

    >>> weekly("mon", "fri", at=time(9), tz="Europe/Berlin").pattern
    '0 0 9 * * mon,fri'
    """
    wrong = [day for day in days if day not in _WEEKDAYS]
    if wrong or not days:
        shown = f"day of {wrong[0]!r}" if wrong else "no day"
        raise InvalidScheduleError(f"{shown}: expected some of {', '.join(_WEEKDAYS)}", PATTERN_INVALID.code)
    return cron(f"{_clock(at)} * * {','.join(days)}", tz)


def monthly(day: int | Literal["last"], at: time, tz: TimeZone | None = None) -> When:
    """Fire on a day of each month (1 to 31), at a time of the clock of `tz`.

    Months without that day have no fire: write `"last"` for their last day, which only a sidecar fires.

    >>> monthly(1, time(6)).pattern
    '0 0 6 1 * *'
    >>> monthly("last", time(6)).pattern, monthly("last", time(6)).syntax
    ('0 0 6 L * ?', 'quartz')
    """
    if day == "last":
        return cron(f"{_clock(at)} L * ?", tz, syntax="quartz")
    return cron(f"{_clock(at)} {_number(day, 'the day')} * *", tz)


def _clock(at: time) -> str:
    """Return the first three fields of a pattern."""
    if not isinstance(at, time):
        raise TypeError(f"at of {at!r} is no time of day: write one such as time(9, 30)")
    if at.tzinfo is not None:
        raise ValueError(
            f"at of {at} has a zone of its own: write time({at.hour}, {at.minute}) and give the zone as tz"
        )
    if at.microsecond:
        raise ValueError(f"at of {at} has a fraction of a second: a pattern has whole seconds")
    return f"{at.second} {at.minute} {at.hour}"


def _number(value: int, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{what} of {value!r} is no number")
    return value
