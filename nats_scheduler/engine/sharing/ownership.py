"""Which shards of a stream are ours to fire, and what is noticed about those of other holders.

The rule: one object knows the shards; everything that depends on them asks it.
A holder may be alive and unable to fire. So it is noted here when a schedule of another holder came due and no fire of
it was read back, and when our own user was denied what a holder has to do; `engine.sharing.leases` decides what
follows.

Cost: a set look-up for each question.
"""

from typing import NamedTuple

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, SHARDS, shard_of


class Denied(NamedTuple):
    """The last thing that a holder has to do and that our user may not."""

    at: int
    shard: int
    reason: str


class Ownership:
    """The shards of one stream that this instance holds."""

    def __init__(self, *, reads_all: bool) -> None:
        """Begin as the only holder; `reads_all` is False if the fires of other holders cannot be read back."""
        self.reads_all = reads_all
        self.shards = ALL_SHARDS
        """The shards whose schedules are ours to fire; set by `engine.sharing.holdings`."""
        self.denied: Denied | None = None
        """What was denied to our user last, of what is ours to do."""
        self.neglected: dict[int, int] = {}
        """Of shards of other holders, the send time (ns) of a schedule that came due and was not read back."""
        self.last_fired = [0] * SHARDS
        """The last send time (ns) of each shard of which a fire was read back."""

    def is_ours(self, held: Held) -> bool:
        """Return whether a schedule is ours to fire."""
        return held.shard in self.shards

    def is_ours_on(self, subject: str) -> bool:
        """Return whether what is stored on a subject is ours to report, to fire and to purge."""
        return shard_of(subject) in self.shards

    def deny(self, held: Held, reason: str, now: int) -> None:
        """Note that our user may not do what the holder of a schedule has to do."""
        if self.is_ours(held):
            self.denied = Denied(now, held.shard, reason)

    def neglect(self, held: Held) -> None:
        """Note that a schedule of another holder is due and that no fire of it was read back."""
        self.neglected[held.shard] = held.send_time

    def excuse(self, held: Held) -> None:
        """Discard that note: the schedule has advanced, or is not held any more."""
        if self.neglected and self.neglected.get(held.shard) == held.send_time:
            del self.neglected[held.shard]
