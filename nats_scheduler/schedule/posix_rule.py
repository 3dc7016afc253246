"""The POSIX TZ rule in the footer of zone data: how the UTC offset changes in every future year.

The rule repeats every year (`CET-1CEST,M3.5.0,M10.5.0/3`), so years beyond the table of a zone need no table.
RFC 9636's extensions are supported: times from -167 to 167 hours, and daylight time that lasts all year.
"""

import re
from dataclasses import dataclass

from nats_scheduler.schedule.instants import SECONDS_PER_DAY, days_from_civil, days_in_month, is_leap, weekday_of

_NAME = r"(?:<[^>]+>|[^-+,<0-9]{3,})"
_TIME = r"[+-]?[0-9]{1,3}(?::[0-9]{1,2}(?::[0-9]{1,2})?)?"
_DATE = r"(?:J?[0-9]{1,3}|M(?:0?[1-9]|1[0-2])\.[1-5]\.[0-6])"
_split = re.compile(
    rf"{_NAME}({_TIME})(?:({_NAME})({_TIME})?(?:,({_DATE})(?:/({_TIME}))?,({_DATE})(?:/({_TIME}))?)?)?"
).fullmatch

_DEFAULT_START, _DEFAULT_END = "M3.2.0", "M11.1.0"
"""The dates that Go assumes for a rule that has daylight time and no dates; POSIX does not define it."""


@dataclass(frozen=True, slots=True)
class PosixRule:
    """Standard offset all year, or an offset that changes twice a year."""

    standard: int
    """Seconds east of Greenwich."""
    daylight: int | None = None
    start: str = _DEFAULT_START
    """The day on which daylight time starts, as it is written."""
    start_time: int = 2 * 3600
    """In seconds after midnight, local standard time."""
    end: str = _DEFAULT_END
    end_time: int = 2 * 3600
    """In local daylight time."""

    def changes(self, year: int) -> list[tuple[int, int]]:
        """Return the changes of a year as (second since the epoch, offset from then on), ascending."""
        if self.daylight is None:
            return []
        start = _day_of(self.start, year) * SECONDS_PER_DAY + self.start_time - self.standard
        end = _day_of(self.end, year) * SECONDS_PER_DAY + self.end_time - self.daylight
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
        return PosixRule(standard)
    starts, ends = _seconds(start_time or "2"), _seconds(end_time or "2")
    return PosixRule(standard, daylight, start or _DEFAULT_START, starts, end or _DEFAULT_END, ends)


def _seconds(text: str) -> int:
    """Parse `[+-]h[hh][:mm[:ss]]` as seconds."""
    hours, minutes, seconds = (text.lstrip("+-") + ":0:0").split(":")[:3]
    value = int(hours) * 3600 + int(minutes) * 60 + int(seconds)
    return -value if text.startswith("-") else value


def _day_of(text: str, year: int) -> int:
    """Return a day of a year, in days since 1970-01-01.

    It is written as `Mm.w.d` (the w-th weekday of a month, 5 for the last one; Sunday is 0), `Jn` (from 1, 29 February
    is not counted) or `n` (from 0, 29 February is counted).
    """
    if text.startswith("M"):
        month, week, weekday = map(int, text[1:].split("."))
        first = days_from_civil(year, month, 1)
        day = first + (weekday - weekday_of(first)) % 7 + 7 * (week - 1)
        return day if day < first + days_in_month(year, month) else day - 7
    if text.startswith("J"):
        number = int(text[1:])
        return days_from_civil(year, 1, 1) + number - 1 + (number >= 60 and is_leap(year))
    return days_from_civil(year, 1, 1) + int(text)
