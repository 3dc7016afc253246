"""The POSIX TZ rule in the footer of zone data: how the UTC offset changes in every future year.

One rule: for a given year, return the seconds at which the offset changes, and the new offsets.
The rule repeats every year (`CET-1CEST,M3.5.0,M10.5.0/3`), so years beyond the table of a zone need no table.
RFC 9636's extensions are supported: times from -167 to 167 hours, and daylight time that lasts all year.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from nats_scheduler.schedule.instants import (
    SECONDS_PER_DAY,
    days_from_civil,
    days_in_month,
    is_leap,
    weekday_of,
)

_NAME = r"(?:<[^>]+>|[^-+,<0-9]{3,})"
_TIME = r"[+-]?[0-9]{1,3}(?::[0-9]{1,2}(?::[0-9]{1,2})?)?"
_DATE = r"(?:J?[0-9]{1,3}|M(?:0?[1-9]|1[0-2])\.[1-5]\.[0-6])"
_split = re.compile(
    rf"{_NAME}({_TIME})(?:({_NAME})({_TIME})?(?:,({_DATE})(?:/({_TIME}))?,({_DATE})(?:/({_TIME}))?)?)?"
).fullmatch

_DEFAULT_START, _DEFAULT_END = "M3.2.0", "M11.1.0"
"""What Go assumes for a rule that has daylight time and no dates; POSIX does not define it."""

Day = Callable[[int], int]
"""Returns the day of a change in a given year, in days since 1970-01-01."""


@dataclass(frozen=True, slots=True)
class PosixRule:
    """Standard offset all year, or an offset that changes twice a year."""

    standard: int
    """Seconds east of Greenwich."""
    daylight: int | None
    starts: tuple[Day, int]
    """Day and local standard time (seconds after midnight) at which daylight time starts."""
    ends: tuple[Day, int]
    """Day and local daylight time at which it ends."""

    def changes(self, year: int) -> list[tuple[int, int]]:
        """Return the changes of a year as (second since the epoch, offset from then on), ascending."""
        if self.daylight is None:
            return []
        start_day, start_time = self.starts
        end_day, end_time = self.ends
        start = start_day(year) * SECONDS_PER_DAY + start_time - self.standard
        end = end_day(year) * SECONDS_PER_DAY + end_time - self.daylight
        return sorted([(start, self.daylight), (end, self.standard)])


def parse_posix_rule(text: str) -> PosixRule | None:
    """Parse a rule such as `EST5EDT,M3.2.0,M11.1.0`; None if the text is no rule."""
    parts = _split(text)
    if parts is None:
        return None
    standard_text, daylight_name, daylight_text, start, start_time, end, end_time = parts.groups()
    # POSIX counts offsets west of Greenwich.
    standard = -_seconds(standard_text)
    daylight = standard + 3600 if daylight_text is None else -_seconds(daylight_text)
    if daylight_name is None or daylight == standard:
        return PosixRule(standard, None, (_no_day, 0), (_no_day, 0))
    starts = _day(start or _DEFAULT_START), _seconds(start_time or "2")
    ends = _day(end or _DEFAULT_END), _seconds(end_time or "2")
    return PosixRule(standard, daylight, starts, ends)


def _no_day(_year: int) -> int:
    """Stand in for the day of a change in a rule that has none."""
    return 0


def _seconds(text: str) -> int:
    """Parse `[+-]h[hh][:mm[:ss]]` as seconds."""
    hours, minutes, seconds = (text.lstrip("+-") + ":0:0").split(":")[:3]
    value = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return -value if text.startswith("-") else value


def _day(text: str) -> Day:
    """Parse `Mm.w.d`, `Jn` (from 1, 29 February is not counted) or `n` (from 0, 29 February is counted)."""
    if text.startswith("M"):
        month, week, weekday = map(int, text[1:].split("."))
        return lambda year: _weekday_of_month(year, month, week, weekday)
    if text.startswith("J"):
        number = int(text[1:])
        return lambda year: days_from_civil(year, 1, 1) + number - 1 + (number >= 60 and is_leap(year))
    number = int(text)
    return lambda year: days_from_civil(year, 1, 1) + number


def _weekday_of_month(year: int, month: int, week: int, weekday: int) -> int:
    """Find the n-th weekday (Sunday is 0) of a month; week 5 is the last one."""
    first = days_from_civil(year, month, 1)
    day = first + (weekday - weekday_of(first)) % 7 + 7 * (week - 1)
    return day if day < first + days_in_month(year, month) else day - 7
