"""Bugs in the division of work that are planted on purpose, among them some that were fixed.

Its rule: a bug is one small change of the product, undone when the block of `tests.simulation.planted` ends.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from nats_scheduler.engine.firing.course import NEGLECT_LIMIT_NS, Neglect
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import CheckpointLoaded
from nats_scheduler.engine.removing.purges import OTHER_HOLDER_LIMIT_NS
from nats_scheduler.engine.sharing import leases
from nats_scheduler.engine.sharing.leases import Ability, Holders, Leases, Record
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.runtime import instances, sidecar
from nats_scheduler.runtime.checkpoints import CheckpointKeeper
from nats_scheduler.runtime.instances import Instances
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import MILLISECOND

Changes = Iterable[tuple[Any, str, Any]]


def record_taken_for_written() -> Changes:
    """Hold the shards of a record that was not written because another instance wrote first."""
    original = Instances._record

    async def record(self: Instances, key: str, holders: Holders) -> bool:
        if not await original(self, key, holders):
            self._leases.recorded(key, Record(holders, self._leases.record(key).revision + 1))
        return True

    yield Instances, "_record", record


def shards_never_let_go() -> Changes:
    """Continue to fire for shards that a record gives to another instance."""
    original = StreamService.hold

    async def hold(self: StreamService, shards: frozenset[int], *rest: Any) -> bool:
        return await original(self, shards | self.shards, *rest)

    yield StreamService, "hold", hold


def dead_holders_never_buried() -> Changes:
    """Leave the shards of an instance whose heartbeats have ended to it."""
    yield Leases, "discard_gone", lambda _self, _now: []
    yield Leases, "relieve_idle", lambda *_: []  # it would repair the damage after some seconds


def dead_holders_buried_late() -> Changes:
    """Wait longer for an instance without heartbeats than the promise allows."""
    yield leases, "LEASE_DURATION_NS", 3_500 * MILLISECOND


def checkpoint_for_the_shards_of_others() -> Changes:
    """Report shards of other holders as settled."""
    original = CheckpointKeeper.write

    async def write(self: CheckpointKeeper, settled: CheckpointLoaded) -> bool:
        return await original(self, replace(settled, shards=ALL_SHARDS))

    yield CheckpointKeeper, "write", write


def drained_before_handing_over() -> Changes:
    """Stop starting fires before the others have taken over."""
    original = Instances.leave

    async def leave(self: Instances) -> None:
        for service in self._served.by_key().values():
            await service.drain(0)
        await original(self)

    yield Instances, "leave", leave


def last_word_awaited() -> Changes:
    """Wait at the end for a checkpoint that no server takes."""
    yield sidecar, "LAST_CHECKPOINTS_LIMIT_SECONDS", 10.0


def shards_given_to_one_who_reads() -> Changes:
    """Report a stream as served that is yet to be read."""
    original = Leases.able

    def able(self: Leases, caught_up: Iterable[str], now: int) -> frozenset[str]:
        return original(self, {*caught_up, *self._records}, now)

    yield Leases, "able", able


def life_not_told_while_waiting() -> Changes:
    """Send heartbeats only between two divisions, and wait there for lost answers."""

    async def keep_sending(_self: Instances) -> None:
        return

    yield Instances, "_keep_sending", keep_sending
    yield instances, "BUCKET_WRITE_LIMIT_SECONDS", 10.0


def dead_brought_back_to_life() -> Changes:
    """Treat an instance as alive by heartbeats that were stored before the watch began again."""

    def listening_anew(self: Leases) -> None:
        self._own_received_at = None
        self._records = {key: Record(record.holders) for key, record in self._records.items()}

    def own_received(self: Leases, now: int, _stored_at: int) -> bool:
        is_news, self._own_received_at = self._own_received_at is None, now
        return is_news

    yield Leases, "listening_anew", listening_anew
    yield Leases, "_own_received", own_received


def removal_held_against_the_holder() -> Changes:
    """Treat a schedule that was removed without a visible request as one that its holder does not fire."""

    def wait(self: Neglect, held: Held, now: int) -> bool:
        since = max(held.send_time, self._live_since) + NEGLECT_LIMIT_NS
        if now >= since:
            self._ownership.neglect(held)
            since = held.send_time + OTHER_HOLDER_LIMIT_NS
        self._lifecycle.set_aside(held, since)
        return True

    yield Neglect, "wait", wait


def idle_holders_fought() -> Changes:
    """Claim the shards of an idle holder again each time it takes them back."""
    yield from removal_held_against_the_holder()
    yield Ability, "has_claimed", lambda *_: False
