"""What a schedule does at the local times that a clock skips (a gap), and at those that it shows twice (a fold).

One rule: each segment of constant UTC offset stands for a span of local times, and what a policy changes is where that
span begins and ends. Within a span every local time is there once.

| | the span of a segment |
|---|---|
| `skip`, `both` | what its clock shows |
| `after` | begins with the gap before it: these times are those of its first instant |
| `first` | begins where the clock was when it went back |
| `last` | ends where the clock will be when it has gone back |

Why spans: the searches and the count of `schedule.cron_fires` are the same for all policies, so they agree.
Cost: one or two look-ups of a neighbour for each segment that is searched, and nothing without a policy.
Limit: only the neighbours of a segment are looked at, and no zone changes its offset twice within the time by which it
does so.
"""

from enum import StrEnum
from typing import NamedTuple

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.zones import Segment, Zone


class Gap(StrEnum):
    """The policy for matching local times that do not exist, because the clock goes forward."""

    SKIP = "skip"
    """They have no fire."""
    AFTER = "after"
    """All of one gap have one fire, at the first instant after it."""


class Fold(StrEnum):
    """The policy for a matching local time that exists twice, because the clock goes back."""

    BOTH = "both"
    """It has two fires."""
    FIRST = "first"
    """It has a fire the first time."""
    LAST = "last"
    """It has a fire the second time."""


class ClockPolicy(NamedTuple):
    """What a schedule does when the clock of its zone is changed; as a text, the value of `X-Clock-Change`."""

    gap: Gap = Gap.SKIP
    fold: Fold = Fold.BOTH

    def __str__(self) -> str:
        """Write it as a publisher does."""
        return f"{self.gap},{self.fold}"


BY_THE_CLOCK = ClockPolicy()
"""The policy of a schedule that names none, which is that of ADR-51: it fires whenever the clock shows its time."""

_ALWAYS = 1 << 62
"""Later, in seconds, than any local time."""


def local_span(zone: Zone, segment: Segment, policy: ClockPolicy) -> tuple[int, int]:
    """Return the first local second for which a segment stands, and the one after its last.

    What is earlier than its clock shows at its start belongs to its first instant.
    """
    start, end, offset = segment
    first = -_ALWAYS if start is None else start // SECOND + offset
    until = _ALWAYS if end is None else end // SECOND + offset
    if policy is BY_THE_CLOCK:
        return first, until
    if start is not None and (policy.gap is Gap.AFTER or policy.fold is Fold.FIRST):
        before = start // SECOND + zone.offset_at(start - 1)
        if policy.gap is Gap.AFTER if before < first else policy.fold is Fold.FIRST:
            first = before
    if end is not None and policy.fold is Fold.LAST:
        until = min(until, end // SECOND + zone.offset_at(end))
    return first, until
