"""What the scheduler inside a server makes of a pattern: when it fires after it was adopted, and where it is wrong.

One rule: this file says what nats-server does, never what is right; what is right is in `patterns`.
Adopting is what a server does with the schedules that are stored when a stream's flag is switched on (behaviour 3.1
and 6.4): it counts from the stored time, or, where that gives a time that has passed, from now.
Cost: some microseconds a pattern; the changes of a zone are looked through once a zone.
Limit: a zone is judged, not a pattern: where its clock skips a midnight, every cron pattern in it is suspect.
"""

from enum import StrEnum
from functools import lru_cache

from nats_scheduler.schedule.instants import DAY, SECOND, SECONDS_A_DAY, round_to_second
from nats_scheduler.schedule.patterns import At, Cron, Every, Pattern
from nats_scheduler.schedule.zones import Zone

REPEATING_LEVEL = 4
"""From this API level on (2.14) a server reads `@every` and cron, time zones, sources and roll-ups."""

LEAST_INSTANT, GREATEST_INSTANT = -(1 << 63), (1 << 63) - 1
"""The server's instants are 64 bits of nanoseconds, and wrap around."""

HORIZON = 5 * 366 * DAY
"""How far (ns) the changes of a zone are looked through: as far as the search for a match goes."""

_SECONDS_AN_HOUR = 3_600


class Quirk(StrEnum):
    """Where the server fires at other times than the pattern says."""

    ROUNDED = "rounded"
    """An interval with a fraction: each fire is rounded to the second."""
    FAR = "far"
    """A time or an interval beyond 64 bits of nanoseconds, which wraps around."""
    GAP = "gap"
    """A zone whose clock skips a midnight, or half an hour: days are skipped or taken for others."""


def reads(pattern: Pattern, api_level: int) -> bool:
    """Tell whether a server of this API level adopts a schedule with this pattern."""
    return isinstance(pattern, At) or api_level >= REPEATING_LEVEL


def adopted_fire(pattern: Pattern, stored_at: int, now: int) -> int | None:
    """Return when a server that adopts the schedule at `now` fires it first; a time that has passed means at once.

    As the server does: a repeating schedule whose first fire has passed is counted from now, rounded to the second.
    """
    first = pattern.first_fire(stored_at)
    if isinstance(pattern, At) or first is None or first >= now:
        return first
    if isinstance(pattern, Every):
        return round_to_second(now) + pattern.interval
    return pattern.next_fire(round_to_second(now), stored_at)


def quirk_of(pattern: Pattern, now: int) -> Quirk | None:
    """Return where the server is wrong about a pattern, None where it does what the pattern says."""
    if isinstance(pattern, At):
        return None if LEAST_INSTANT <= pattern.instant <= GREATEST_INSTANT else Quirk.FAR
    if isinstance(pattern, Every):
        if now + pattern.interval > GREATEST_INSTANT:
            return Quirk.FAR
        return Quirk.ROUNDED if pattern.interval % SECOND else None
    if isinstance(pattern, Cron) and pattern.zone is not None and _skips_a_midnight(pattern.zone, now // DAY):
        return Quirk.GAP
    return None


@lru_cache(maxsize=1024)
def _skips_a_midnight(zone: Zone, day: int) -> bool:
    """Tell whether a zone's clock is put forward over a midnight, or not by whole hours, within the horizon."""
    segment = zone.segment_at(day * DAY)
    while segment.end is not None and segment.end < day * DAY + HORIZON:
        following = zone.segment_at(segment.end)
        gap = following.offset - segment.offset
        begins = (segment.end // SECOND + segment.offset) % SECONDS_A_DAY
        if gap > 0 and (begins == 0 or begins + gap > SECONDS_A_DAY or gap % _SECONDS_AN_HOUR):
            return True
        segment = following
    return False
