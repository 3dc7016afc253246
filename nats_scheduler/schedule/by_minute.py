"""How many times a pattern fires in each minute, without one search for each fire.

The rule: the counts are those of the fire times that the pattern itself returns (`next_fire`), minute by minute of UTC.
Intervals are counted by arithmetic. A cron pattern is searched once for each minute in which it fires: the fires within
a minute are the bits of its field of seconds.

Cost: a fraction of a microsecond for each minute of an interval, some microseconds for each of a cron pattern.
Limits: a day without fires begins and ends with a minute of UTC. The searches do not use what `Cron.next_fire` keeps,
which belongs to the fires themselves.
"""

from collections.abc import Hashable, Iterator

from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.cron_search import next_fire
from nats_scheduler.schedule.instants import MINUTE, SECOND, round_to_second
from nats_scheduler.schedule.patterns import At, Cron, Every, Pattern


def grid_of(pattern: Pattern, stored_at: int) -> Hashable:
    """Return what schedules have in common whose fires lie at the same instants, as long as both patterns exist."""
    if isinstance(pattern, Every):
        return pattern.interval, round_to_second(stored_at) % pattern.interval
    return (pattern, stored_at) if isinstance(pattern, Bounded) else id(pattern)


def fires_by_minute(pattern: Pattern, stored_at: int, after: int, until: int) -> Iterator[tuple[int, int]]:
    """Yield the start of each minute (ns) with fires in (after, until), and how many there are; in order."""
    if isinstance(pattern, Bounded):
        return _of_bounded(pattern, stored_at, after, until)
    if isinstance(pattern, Every):
        return _of_interval(pattern, stored_at, after, until)
    if isinstance(pattern, Cron):
        return _of_cron(pattern, after, until)
    assert isinstance(pattern, At), f"{pattern!r}: an @at was expected"
    instant = pattern.instant
    return iter([(instant - instant % MINUTE, 1)] if after < instant < until else [])


def _of_bounded(pattern: Bounded, stored_at: int, after: int, until: int) -> Iterator[tuple[int, int]]:
    first, end, grid = pattern.span(after, until, stored_at)
    for minute, count in fires_by_minute(pattern.base, grid, first, end):
        if not pattern.is_excepted(minute):
            yield minute, count


def _of_interval(pattern: Every, stored_at: int, after: int, until: int) -> Iterator[tuple[int, int]]:
    fire = pattern.next_fire(after, stored_at)
    while fire is not None and fire < until:
        minute = fire - fire % MINUTE
        count = (min(minute + MINUTE, until) - 1 - fire) // pattern.interval + 1
        yield minute, count
        fire += count * pattern.interval


def _of_cron(pattern: Cron, after: int, until: int) -> Iterator[tuple[int, int]]:
    fields, zone = pattern.fields, pattern.zone
    fire = next_fire(fields, zone, after)
    while fire is not None and fire < until:
        minute = fire - fire % MINUTE
        end = min(minute + MINUTE, until)
        yield minute, _within(pattern, fire, end)
        fire = next_fire(fields, zone, end - 1)


def _within(pattern: Cron, fire: int, end: int) -> int:
    """Return how many fires there are from one of them to before `end`, in the same minute."""
    segment = None if pattern.zone is None else pattern.zone.segment_at(fire)
    if segment is None or (segment.offset % 60 == 0 and (segment.end is None or segment.end >= end)):
        first = fire % MINUTE // SECOND
        last = (end - 1) % MINUTE // SECOND
        return (pattern.fields.seconds >> first & (2 << last - first) - 1).bit_count()
    count, following = 0, next_fire(pattern.fields, pattern.zone, fire - 1)  # an offset of old times, with seconds
    while following is not None and following < end:
        count += 1
        following = next_fire(pattern.fields, pattern.zone, following)
    return count
