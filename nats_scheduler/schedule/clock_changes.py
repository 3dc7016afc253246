"""The next fires of a schedule, with what the changes of the clock in its zone do to them.

One rule: nothing here decides when a schedule fires: the fires are those of the pattern, and beside them stands what a
person would wonder about.

| the clock goes | what is marked |
|---|---|
| forward, over a matching time | that time is *skipped*: it does not exist, and there is no fire |
| the same, with the policy `after` | the fire *after a gap* stands for it |
| back, over a matching time | that time exists twice: a fire is that of the *first of two* or of the *second of two* |
| either way, between two fires | the later one is *moved*: it would be at another time, had the clock not changed |

A pattern that matches at the same instants by the old and the new time, such as every 15 minutes, is not moved.
Cost: some microseconds for each fire, and for each change of the clock between two fires.
Limit: what is skipped after the last fire is not listed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.clock_policy import Gap
from nats_scheduler.schedule.cron_fields import CronFields
from nats_scheduler.schedule.instants import SECOND, SECONDS_PER_DAY, civil_from_days
from nats_scheduler.schedule.patterns import Cron, Pattern
from nats_scheduler.schedule.zones import Segment, Zone


class ClockChange(StrEnum):
    """The effect of a change of the clock on a fire."""

    MOVED = "moved"
    AFTER_GAP = "after_gap"
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
    changed_at: int
    """The instant at which it does, in nanoseconds since the Unix epoch."""


def with_clock_changes(pattern: Pattern, since: int, fires: Iterable[int]) -> list[NextFire | SkippedTimes]:
    """Return the fires (ns) of a schedule after the instant `since`, and the times skipped between them.

    The fires are all that there are from `since` on to the last of them, in their order.
    """
    base, left = pattern.base, _left(pattern)
    if left is None or left.zone is None or not isinstance(base, Cron):
        return [NextFire(fire) for fire in fires]
    found: list[NextFire | SkippedTimes] = []
    offset, before = pattern.offset, _not_before_start(pattern, since)
    for fire in fires:
        found += skipped_between(pattern, before, fire)
        fields = base.fields if left.fields.move is None else left.fields
        marked = _marked(left, fields, left.zone, before - offset, fire - offset)
        found.append(replace(marked, fire_time=fire))
        before = fire
    return found


def skipped_between(pattern: Pattern, before: int, fire: int) -> list[SkippedTimes]:
    """Return the matching times that a clock skips between two instants (ns), and that have no fire.

    Cost: a look-up of the offset if the clock is not changed between the two.
    """
    left = _left(pattern)
    if left is None or left.zone is None or left.clock.gap is Gap.AFTER:
        return []
    found = []
    segment = left.zone.segment_at(_not_before_start(pattern, before) - pattern.offset)
    while segment.end is not None and segment.end <= fire - pattern.offset:
        following = left.zone.segment_at(segment.end)
        if (skipped := _skipped(left.fields, segment, following)) is not None:
            found.append(skipped)
        segment = following
    return found


def disturbs(pattern: Pattern, skipped: SkippedTimes) -> bool:
    """Return whether a schedule fires less often because of the times that are skipped.

    One that fires at the same minutes of each hour does not, if the clock goes forward by hours: the fires before and
    after the gap are as far apart as always.
    """
    left = _left(pattern)
    return left is not None and not left.fields.is_same_after(skipped.gap_end - skipped.gap_start)


def _not_before_start(pattern: Pattern, instant: int) -> int:
    """Return an instant (ns), or that before the start of a pattern: what is earlier is not skipped by a clock."""
    start = pattern.bounds.start if isinstance(pattern, Bounded) else None
    return instant if start is None else max(instant, start - 1)


def _left(pattern: Pattern) -> Cron | None:
    """Return what excepted days leave of a pattern of fields; None if it is none."""
    left = pattern.left if isinstance(pattern, Bounded) else pattern
    return left if isinstance(left, Cron) else None


def _skipped(fields: CronFields, segment: Segment, following: Segment) -> SkippedTimes | None:
    """Return the matching times between two segments; None if there are none."""
    assert segment.end is not None, "another segment follows"
    start, end = segment.end // SECOND + segment.offset, segment.end // SECOND + following.offset
    if start >= end:
        return None
    year = civil_from_days(end // SECONDS_PER_DAY)[0]
    first, last = fields.first_match(start, year), fields.last_match(end - 1, year - 1)
    if first is None or last is None or not start <= first <= last < end:
        return None
    return SkippedTimes(first, last, start, end, segment.end)


def _marked(left: Cron, fields: CronFields, zone: Zone, before: int, fire: int) -> NextFire:
    """Return a fire with what the nearest change of the clock does to it; `fields` match on excepted days too."""
    segment = zone.segment_at(fire)
    if segment.end is not None:
        shift = zone.offset_at(segment.end) - segment.offset
        if shift < 0 and fire >= segment.end + shift * SECOND:
            return NextFire(fire, ClockChange.FIRST_OF_TWO, shift)
    if segment.start is None:
        return NextFire(fire)
    earlier = zone.segment_at(segment.start - 1)
    shift = segment.offset - earlier.offset
    if shift < 0 and fire < segment.start - shift * SECOND:
        return NextFire(fire, ClockChange.SECOND_OF_TWO, shift)
    is_first = fire == segment.start and left.clock.gap is Gap.AFTER
    if is_first and _skipped(left.fields, earlier, segment) is not None:
        return NextFire(fire, ClockChange.AFTER_GAP, shift)
    if before < segment.start:
        shift = segment.offset - zone.offset_at(before)
        unchanged = fire // SECOND + segment.offset - shift
        year = civil_from_days(unchanged // SECONDS_PER_DAY)[0]
        if shift and fields.first_match(unchanged, year) != unchanged:
            return NextFire(fire, ClockChange.MOVED, shift)
    return NextFire(fire)
