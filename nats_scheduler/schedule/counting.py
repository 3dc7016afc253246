"""How many times a pattern fires between two instants, without finding each of these times.

The rule: the count is that of the fire times that the pattern itself returns (`next_fire`). Intervals are counted by
arithmetic. A cron pattern is counted month by month, in each segment of constant UTC offset: all days that match have
the same times of day.

Cost: a microsecond for an interval; about one for each month of a cron pattern, and some for each excepted range.
Limit: the horizon of a cron pattern is not regarded, which ends a schedule without a fire in five years.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.calendars import Days
from nats_scheduler.schedule.cron import CronFields, next_fire
from nats_scheduler.schedule.instants import (
    DAY,
    MINUTE,
    SECOND,
    SECONDS_PER_DAY,
    civil_from_days,
    days_from_civil,
    round_to_second,
)
from nats_scheduler.schedule.patterns import At, Cron, Every, Pattern
from nats_scheduler.schedule.zones import UTC


def count_fires(pattern: Pattern, stored_at: int, after: int, until: int) -> int:
    """Return how many fire times in (after, until] a schedule has that was stored at `stored_at`."""
    if isinstance(pattern, Bounded):
        first, end, grid = pattern.span(after, until + 1, stored_at)
        return _count(pattern.base, grid, first, end - 1, pattern.excepted)
    return _count(pattern, stored_at, after, until, ())


def _count(pattern: Pattern, stored_at: int, after: int, until: int, excepted: Sequence[Days]) -> int:
    """Count the fire times of a pattern without bounds that are on none of the excepted days."""
    if until <= after:
        return 0
    if isinstance(pattern, Cron):
        return sum(_of_fields(pattern.fields, *part, excepted) for part in _local_parts(pattern, after, until))
    parts = [(days.first * DAY - 1, (days.last + 1) * DAY - 1) for days in excepted]
    if isinstance(pattern, Every):
        left_out = sum(_of_interval(pattern, stored_at, max(after, a), min(until, b)) for a, b in parts)
        return _of_interval(pattern, stored_at, after, until) - left_out
    assert isinstance(pattern, At), f"{pattern!r}: an @at was expected"
    instant = pattern.instant
    return int(after < instant <= until and not any(a < instant <= b for a, b in parts))


def _of_interval(pattern: Every, stored_at: int, after: int, until: int) -> int:
    first = pattern.next_fire(after, stored_at)
    return 0 if first is None or first > until else (until - first) // pattern.interval + 1


def _local_parts(pattern: Cron, after: int, until: int) -> Iterator[tuple[int, int]]:
    """Yield the local seconds of (after, until], first and last, of each segment of constant offset."""
    zone, start, end = pattern.zone or UTC, after // SECOND + 1, until // SECOND
    while start <= end:
        segment = zone.segment_at(start * SECOND)
        last = end if segment.end is None else min(end, segment.end // SECOND - 1)
        yield start + segment.offset, last + segment.offset
        start = last + 1


def _of_fields(fields: CronFields, first: int, last: int, excepted: Sequence[Days]) -> int:
    """Count the local seconds from `first` to `last` that match, and are on none of the excepted days."""
    left_out = 0
    for days in excepted:
        begin, end = max(first, days.first * SECONDS_PER_DAY), min(last, (days.last + 1) * SECONDS_PER_DAY - 1)
        left_out += _of_seconds(fields, begin, end) if begin <= end else 0
    return _of_seconds(fields, first, last) - left_out


def _of_seconds(fields: CronFields, first: int, last: int) -> int:
    first_day, begin = divmod(first, SECONDS_PER_DAY)
    last_day, end = divmod(last, SECONDS_PER_DAY)
    in_a_day = _up_to(fields, SECONDS_PER_DAY - 1)
    count = 0
    year, month, _day = civil_from_days(first_day)
    while (month_begins := days_from_civil(year, month, 1)) <= last_day:
        if fields.months >> month & 1:
            begins, ends = first_day - month_begins + 1, last_day - month_begins + 1
            days = fields.days_of(year, month, month_begins)
            days &= (2 << min(ends, 31)) - (1 << max(begins, 1))  # bit n is day n of the month
            count += days.bit_count() * in_a_day
            if begins >= 1 and days >> begins & 1:
                count -= _up_to(fields, begin - 1)
            if ends <= 31 and days >> ends & 1:
                count -= in_a_day - _up_to(fields, end)
        year, month = (year, month + 1) if month < 12 else (year + 1, 1)
    return count


def _up_to(fields: CronFields, time_of_day: int) -> int:
    """Return how many times of day match up to this one (-1 to 86,399 s)."""
    minute_of_day, second = divmod(time_of_day, 60)
    hour, minute = divmod(minute_of_day, 60)
    if time_of_day < 0:
        return 0
    seconds = fields.seconds.bit_count()
    count = (fields.hours & (1 << hour) - 1).bit_count() * fields.minutes.bit_count() * seconds
    if fields.hours >> hour & 1:
        count += (fields.minutes & (1 << minute) - 1).bit_count() * seconds
        if fields.minutes >> minute & 1:
            count += (fields.seconds & (2 << second) - 1).bit_count()
    return count


# How many times a pattern fires in each minute, without one search for each fire.
#
# The rule: the counts are those of the fire times that the pattern itself returns (`next_fire`), minute by minute of
# UTC. There is one search for each minute in which it fires, and the fires in it are counted as above.
#
# Cost: a microsecond for each minute of an interval, some microseconds for each of a cron pattern.
# Limits: a day without fires begins and ends with a minute of UTC. The searches do not use what `Cron.next_fire`
# keeps, which belongs to the fires themselves.


def grid_of(pattern: Pattern, stored_at: int) -> Hashable:
    """Return what schedules have in common whose fires lie at the same instants, as long as both patterns exist."""
    if isinstance(pattern, Every):
        return pattern.interval, round_to_second(stored_at) % pattern.interval
    return (pattern, stored_at) if isinstance(pattern, Bounded) else id(pattern)


def fires_by_minute(pattern: Pattern, stored_at: int, after: int, until: int) -> Iterator[tuple[int, int]]:
    """Yield the start of each minute (ns) with fires in (after, until), and how many there are; in order."""
    bounded = pattern if isinstance(pattern, Bounded) else None
    if bounded is not None:
        after, until, stored_at = bounded.span(after, until, stored_at)
    while (fire := _first_after(pattern.base, stored_at, after)) is not None and fire < until:
        minute = fire - fire % MINUTE
        after = min(minute + MINUTE, until) - 1
        if bounded is None or not bounded.is_excepted(minute):
            yield minute, count_fires(pattern.base, stored_at, fire - 1, after)


def _first_after(pattern: Pattern, stored_at: int, after: int) -> int | None:
    if isinstance(pattern, Cron):
        return next_fire(pattern.fields, pattern.zone, after)
    if pattern.repeats:
        return pattern.next_fire(after, stored_at)
    fire = pattern.first_fire(stored_at)
    return None if fire is None or fire <= after else fire
