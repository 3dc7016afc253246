"""The behaviour of servers: the API level of each part, when the native scheduler fires, and what it gets wrong.

One rule: this file describes what nats-server does; what a pattern means is in `patterns`, and which versions have the
scheduler in `message.capabilities`.
A server adopts the schedules that are stored when the flag of their stream is switched on
(`docs/operating/graduate.md`): it counts from the stored time, or from now if that gives a time that has passed.
Cost: some microseconds a pattern; the changes of a zone are searched once per zone.
Limit: the judgement is about the zone, not the pattern: if its clock skips a midnight, every cron pattern in it is
suspect.
"""

from dataclasses import replace
from enum import StrEnum
from functools import lru_cache

from nats_scheduler.schedule.instants import DAY, SECOND, SECONDS_PER_DAY, next_multiple, round_to_second
from nats_scheduler.schedule.patterns import At, Cron, Every, Pattern
from nats_scheduler.schedule.tzif import OffsetTable
from nats_scheduler.schedule.zones import Zone

MIN_INSTANT_NS, MAX_INSTANT_NS = -(1 << 63), (1 << 63) - 1
"""The server's instants are 64 bits of nanoseconds, and wrap around."""

ZONE_SEARCH_NS = 5 * 366 * DAY
"""The time ahead for which the changes of a zone are searched: as far as the search for a match goes."""

_SECONDS_PER_HOUR = 3_600


class Quirk(StrEnum):
    """The reason why the server fires at other times than the pattern says."""

    ROUNDED = "rounded"
    """The interval has a fraction of a second: the server rounds each fire time to the second."""
    FAR = "far"
    """The time or the interval exceeds 64 bits of nanoseconds, and wraps around."""
    GAP = "gap"
    """The clock of the zone skips a midnight, or half an hour: the server skips days, or fires on wrong ones."""


def adopted_fire(pattern: Pattern, stored_at: int, now: int) -> int | None:
    """Return when a server that adopts the schedule at `now` first fires it; a time that has passed means immediately.

    Bounds are ours alone: the server fires the pattern without them.
    As the server does: a repeating schedule whose first fire time has passed counts from now, rounded to the second.
    """
    pattern = pattern.base
    first = pattern.first_fire(stored_at)
    if isinstance(pattern, At) or first is None or first >= now:
        return first
    if isinstance(pattern, Every):
        return round_to_second(now) + pattern.interval
    return pattern.next_fire(round_to_second(now), stored_at)


def fire_after(pattern: Pattern, stored_at: int, due: int, now: int) -> int | None:
    """Return the first fire time after `now`, and after `due`, if the server fires at `due` and is never late by more.

    As the server does: an interval counts from the fire before, rounded to the second. So one with a fraction of a
    second has another grid than its pattern says, and `due` decides which.
    """
    if not isinstance(pattern, Every):
        return pattern.next_fire(max(due, now), stored_at)
    following = round_to_second(due) + pattern.interval
    if following > now:
        return following
    step = round_to_second(pattern.interval)
    return following + next_multiple(now - following, step)


def at_offset(pattern: Pattern, offset: int) -> Pattern:
    """Return a cron pattern as a server reads it whose zone data has this offset (s) now; others as they are.

    Limit: the offset of the server's zone may change later, and is not known beyond that.
    """
    if not isinstance(pattern, Cron) or pattern.zone is None:
        return pattern
    return replace(pattern, zone=Zone(pattern.zone.name, OffsetTable(offset, (), "")), _found=[])


def quirk_of(pattern: Pattern, now: int) -> Quirk | None:
    """Return why the server gets a pattern wrong; None if it fires as the pattern says."""
    pattern = pattern.base
    if isinstance(pattern, At):
        return None if MIN_INSTANT_NS <= pattern.instant <= MAX_INSTANT_NS else Quirk.FAR
    if isinstance(pattern, Every):
        if now + pattern.interval > MAX_INSTANT_NS:
            return Quirk.FAR
        return Quirk.ROUNDED if pattern.interval % SECOND else None
    if isinstance(pattern, Cron) and pattern.zone is not None and _skips_a_midnight(pattern.zone, now // DAY):
        return Quirk.GAP
    return None


@lru_cache(maxsize=1024)
def _skips_a_midnight(zone: Zone, day: int) -> bool:
    """Return whether a zone's clock skips a midnight, or a time that is no whole hours, within `ZONE_SEARCH_NS`."""
    segment = zone.segment_at(day * DAY)
    while segment.end is not None and segment.end < day * DAY + ZONE_SEARCH_NS:
        following = zone.segment_at(segment.end)
        gap = following.offset - segment.offset
        begins = (segment.end // SECOND + segment.offset) % SECONDS_PER_DAY
        if gap > 0 and (begins == 0 or begins + gap > SECONDS_PER_DAY or gap % _SECONDS_PER_HOUR):
            return True
        segment = following
    return False
