"""The next fires of a schedule, with what the changes of the clock in its zone do to them.

One rule: nothing here decides when a schedule fires: the fires are those of the pattern, and beside them stands what a
person would wonder about.

| the clock goes | what is marked |
|---|---|
| forward, over a matching time | that time is *skipped*: it does not exist, and there is no fire |
| back, over a matching time | that time exists twice: the fires are the *first of two* and the *second of two* |
| either way, between two fires | the later one is *moved*: it would be at another time, had the clock not changed |

A pattern that matches at the same instants by the old and the new time, such as every 15 minutes, is not moved.
Cost: some microseconds for each fire, and for each change of the clock between two fires.
Limit: what is skipped after the last fire is not listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.cron_fields import CronFields
from nats_scheduler.schedule.instants import SECOND, SECONDS_PER_DAY, civil_from_days
from nats_scheduler.schedule.patterns import Cron, Pattern
from nats_scheduler.schedule.zones import Zone


class ClockChange(StrEnum):
    """The effect of a change of the clock on a fire."""

    MOVED = "moved"
    FIRST_OF_TWO = "first_of_two"
    SECOND_OF_TWO = "second_of_two"


@dataclass(frozen=True, slots=True)
class NextFire:
    """A fire that is to come."""

    fire_time: int
    """Nanoseconds since the Unix epoch."""
    change: ClockChange | None = None
    shift: int = 0
    """By how many seconds the clock goes forward at that change; negative if it goes back."""


@dataclass(frozen=True, slots=True)
class SkippedTimes:
    """Matching local times that the clock of the zone skips, in seconds since 1970-01-01T00:00:00 local time."""

    first: int
    last: int
    """The same as `first` if there is only one."""
    gap_start: int
    """The first local time that does not exist: what the clock would show when it goes forward."""
    gap_end: int
    """The time that the clock shows instead."""


def with_clock_changes(pattern: Pattern, since: int, fires: Iterable[int]) -> list[NextFire | SkippedTimes]:
    """Return the fires (ns) of a schedule after the instant `since`, and the times skipped between them.

    The fires are all that there are from `since` on to the last of them, in their order.
    """
    base = pattern.base
    left = pattern.left if isinstance(pattern, Bounded) else base
    if not isinstance(base, Cron) or not isinstance(left, Cron) or base.zone is None:
        return [NextFire(fire) for fire in fires]
    found: list[NextFire | SkippedTimes] = []
    start = pattern.bounds.start if isinstance(pattern, Bounded) else None
    before = since if start is None else max(since, start - 1)  # what is earlier is not skipped by a clock
    for fire in fires:
        found += _skipped(left.fields, base.zone, before, fire)
        found.append(_marked(base.fields, base.zone, before, fire))
        before = fire
    return found


def _skipped(fields: CronFields, zone: Zone, before: int, fire: int) -> list[SkippedTimes]:
    """Return the matching times in the gaps between two instants; `fields` match on no day that is excepted."""
    found = []
    segment = zone.segment_at(before)
    while segment.end is not None and segment.end <= fire:
        following = zone.segment_at(segment.end)
        start, end = segment.end // SECOND + segment.offset, segment.end // SECOND + following.offset
        if start < end:
            year = civil_from_days(end // SECONDS_PER_DAY)[0]
            first, last = fields.first_match(start, year), fields.last_match(end - 1, year - 1)
            if first is not None and last is not None and start <= first <= last < end:
                found.append(SkippedTimes(first, last, start, end))
        segment = following
    return found


def _marked(fields: CronFields, zone: Zone, before: int, fire: int) -> NextFire:
    """Return a fire with what the nearest change of the clock does to it; `fields` match on excepted days too."""
    segment = zone.segment_at(fire)
    if segment.end is not None:
        shift = zone.offset_at(segment.end) - segment.offset
        if shift < 0 and fire >= segment.end + shift * SECOND:
            return NextFire(fire, ClockChange.FIRST_OF_TWO, shift)
    if segment.start is None:
        return NextFire(fire)
    shift = segment.offset - zone.offset_at(segment.start - 1)
    if shift < 0 and fire < segment.start - shift * SECOND:
        return NextFire(fire, ClockChange.SECOND_OF_TWO, shift)
    if before < segment.start:
        shift = segment.offset - zone.offset_at(before)
        unchanged = fire // SECOND + segment.offset - shift
        year = civil_from_days(unchanged // SECONDS_PER_DAY)[0]
        if shift and fields.first_match(unchanged, year) != unchanged:
            return NextFire(fire, ClockChange.MOVED, shift)
    return NextFire(fire)
