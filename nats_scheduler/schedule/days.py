"""Days and ranges of days as text: `2026-12-25`, `2026-12-27..2027-01-01`.

The rule: the policy `X-Except` and a calendar (`schedule.calendars`) write days in the same way, read here.

Cost: a microsecond for each day or range.
Limit: days are those of the Gregorian calendar, of the years 0000 to 9999.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from nats_scheduler.schedule.instants import DAY, days_from_civil, days_in_month
from nats_scheduler.schedule.rfc3339 import format_rfc3339

MAX_SHOWN_TEXT_CHARS = 80
"""How much of a text that is no day is repeated in the reason."""

_DAY = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})").fullmatch


class Days(NamedTuple):
    """Days in a row, both included, as days since 1970-01-01."""

    first: int
    last: int


def read_days(text: str) -> Days | str:
    """Read a day or a range of days; a reason if it is neither."""
    first, dots, last = text.partition("..")
    begin, end = _day(first), _day(last if dots else first)
    if begin is None or end is None:
        shown = repr(text[:MAX_SHOWN_TEXT_CHARS])
        return f"contains {shown}: expected days such as 2026-12-25 or 2026-12-27..2027-01-01"
    if end < begin:
        return f"contains {text[:MAX_SHOWN_TEXT_CHARS]!r}, which ends before it begins"
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
    number = bisect_right(days, day, key=_first_day) - 1
    return None if number < 0 or days[number].last < day else days[number]


def _first_day(days: Days) -> int:
    return days.first


def _day(text: str) -> int | None:
    """Return the number of a day since 1970-01-01; None if there is no such day."""
    match = _DAY(text)
    if match is None:
        return None
    year, month, day = map(int, match.groups())
    if not (1 <= month <= 12 and 1 <= day <= days_in_month(year, month)):
        return None
    return days_from_civil(year, month, day)
