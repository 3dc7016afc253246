"""RFC 3339 times as Go parses and prints them.

One rule: the accepted texts are exactly those of Go's `time.Parse(time.RFC3339, …)`, the printed ones exactly
those of its `RFC3339Nano`.
Go is laxer than the RFC in some places (a one-digit hour, a comma, offsets up to 24:60) and stricter in others
(no lower-case letters, no leap second). Publishers see the server's behaviour, so this module follows it.
A regular expression splits the text and integer arithmetic does the rest. Many texts have the same date, so it is
cached; of a million messages at a start the minute is (`usual_instant`).
Cost: a microsecond and a half; half of one for a usual time whose minute is cached.
Limit: years 0000–9999 are parsed, any year is printed.
"""

from __future__ import annotations

import re
from functools import lru_cache

from nats_scheduler.schedule.instants import (
    SECOND,
    SECONDS_PER_DAY,
    civil_from_days,
    days_from_civil,
    days_in_month,
)
from nats_scheduler.schedule.invalid import Invalid

_split = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})T"
    r"([0-9]{1,2}):([0-9]{2}):([0-9]{2})(?:[.,]([0-9]+))?"
    r"(?:Z|([+-][0-9]{2}:[0-9]{2}))"
).fullmatch

USUAL_TIME = rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:)([0-5][0-9])(?:\.([0-9]{1,9}+))?Z"
"""A time in UTC with two digits in each place, as a part of a regular expression; `usual_instant` takes its groups."""

_NS_BY_FRACTION_DIGITS = tuple(10 ** (9 - digits) for digits in range(10))
_NS_BY_SECOND = {b"%02d" % second: second * SECOND for second in range(60)}

_EXPECTED_TIME = "expected a time such as 2026-11-20T15:04:05Z or 2026-11-20T15:04:05.25+01:00"


def parse_rfc3339(text: str) -> int | Invalid:
    """Parse a time as an instant in nanoseconds.

    As the server does: a one-digit hour, a decimal comma, digits beyond the nanosecond (dropped) and offsets up to
    24:60 are accepted (`test_times_are_read_as_go_reads_them`).
    """
    parts = _split(text)
    if parts is None:
        return Invalid(text, _EXPECTED_TIME)
    date, hour_text, minute_text, second_text, digits, offset_text = parts.groups()
    days = _days_of(date)
    hour, minute, second = int(hour_text), int(minute_text), int(second_text)
    if days is None or hour > 23 or minute > 59 or second > 59:
        return Invalid(text, _explain(date, hour, minute, second))
    seconds = days * SECONDS_PER_DAY + hour * 3600 + minute * 60 + second
    if offset_text is not None:
        offset = _offset(offset_text)
        if offset is None:
            return Invalid(text, f"offset {offset_text} is above 24 hours or 60 minutes")
        seconds -= offset
    if digits is None:
        return seconds * SECOND
    return seconds * SECOND + int(f"{digits[:9]:0<9}")


def offset_in(text: str) -> int | None:
    """Return the offset from UTC (s) that a time is written with; None if it is no time."""
    parts = _split(text)
    if parts is None or isinstance(parse_rfc3339(text), Invalid):
        return None
    written = parts.groups()[-1]
    return 0 if written is None else _offset(written)


def usual_instant(minute_text: bytes, second: bytes, digits: bytes | None) -> int | None:
    """Return the instant of a `USUAL_TIME` from its groups; None: there is no such minute."""
    minute = _minute_of(minute_text)
    if minute is None:
        return None
    whole = minute + _NS_BY_SECOND[second]
    return whole if digits is None else whole + int(digits) * _NS_BY_FRACTION_DIGITS[len(digits)]


def is_as_printed(text: str) -> bool:
    """Return whether a time that `parse_rfc3339` accepts is written as `format_rfc3339` prints it in UTC.

    A few positions show it: with an hour of one digit, a comma, an offset, too many digits or a last zero they differ.
    """
    if text[-1] != "Z":
        return False
    return len(text) == 20 or (text[19:20] == "." and text[-2] != "0" and len(text) <= 30)


@lru_cache(maxsize=4096)
def _minute_of(text: bytes) -> int | None:
    """Return the instant at which the minute `YYYY-MM-DDThh:mm:` begins; None if there is no such minute."""
    instant = parse_rfc3339(f"{text.decode()}00Z")
    return None if isinstance(instant, Invalid) else instant


@lru_cache(maxsize=4096)
def _days_of(date: str) -> int | None:
    """Return the days from the epoch to a `YYYY-MM-DD`; None if that day does not exist."""
    year, month, day = int(date[:4]), int(date[5:7]), int(date[8:])
    if not 1 <= month <= 12 or not 1 <= day <= days_in_month(year, month):
        return None
    return days_from_civil(year, month, day)


@lru_cache(maxsize=512)
def _offset(text: str) -> int | None:
    """Parse an offset `±hh:mm` as seconds; None above Go's limits.

    As the server does: 24 hours and 60 minutes are still accepted (`test_times_are_read_as_go_reads_them`).
    """
    hours, minutes = int(text[1:3]), int(text[4:])
    if hours > 24 or minutes > 60:
        return None
    seconds = (hours * 60 + minutes) * 60
    return -seconds if text[0] == "-" else seconds


def _explain(date: str, hour: int, minute: int, second: int) -> str:
    """Explain which part of a well-formed time does not exist."""
    if _days_of(date) is None:
        return f"there is no day {date}"
    if hour > 23:
        return f"hour {hour} is above 23"
    if minute > 59:
        return f"minute {minute} is above 59"
    return f"second {second} is above 59 (leap seconds are not accepted)"


def format_rfc3339(instant: int, offset: int = 0) -> str:
    """Print an instant at an offset from UTC in seconds, as Go's RFC3339Nano, without trailing zeros of the fraction.

    As the server does: any zone whose offset is zero prints `Z`, and the seconds of an offset are cut off, towards zero
    (`test_times_are_printed_as_go_prints_them`).
    """
    seconds, fraction = divmod(instant, SECOND)
    days, time_of_day = divmod(seconds + offset, SECONDS_PER_DAY)
    year, month, day = civil_from_days(days)
    minutes, second = divmod(time_of_day, 60)
    years = f"{year:04d}" if year >= 0 else f"-{-year:04d}"
    text = f"{years}-{month:02d}-{day:02d}T{minutes // 60:02d}:{minutes % 60:02d}:{second:02d}"
    if fraction:
        text += f".{fraction:09d}".rstrip("0")
    return text + offset_text(offset)


def offset_text(offset: int) -> str:
    """Print an offset in seconds as `Z` or `±hh:mm`."""
    if offset == 0:
        return "Z"
    hours, minutes = divmod(abs(offset) // 60, 60)
    # Go decides the sign after the division, so an offset within a minute of zero is "+00:00".
    sign = "-" if offset <= -60 else "+"
    return f"{sign}{hours:02d}:{minutes:02d}"
