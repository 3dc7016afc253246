"""Bugs in what surrounds an engine, planted on purpose: how a driver carries out actions, and how checkpoints are read.

Its rule: a bug is one small change of the product, undone when the block of `tests.simulation.planted` ends.
Limit: a checkpoint that is missing or claims too little breaks no promise here, and must not: an instance that starts
without one reads what the stream holds, and the server drops what is repeated within the duplicate window. So only
checkpoints that claim too much are planted; `tests/runtime/test_checkpoints.py` holds the rest.
"""

from nats_scheduler.engine.actions import (
    PublishFires,
    PurgeSchedule,
    RemoveExpired,
    WakeAt,
)
from nats_scheduler.engine.fire import Question, ReadDuplicate
from nats_scheduler.engine.firing.contents import Contents
from nats_scheduler.engine.inputs import Input, PurgeConcluded
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.runtime.checkpoints import Entry
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.schedule.instants import MILLISECOND
from tests.simulation.planted_division import Changes


def last_fire_of_a_burst_not_sent() -> Changes:
    """Send all fires of an action but the last one, if there are several."""
    original = StreamDriver._publish

    def publish(self: StreamDriver, request: PublishFires) -> None:
        original(self, PublishFires(request.fires[:-1]) if len(request.fires) > 1 else request)

    yield StreamDriver, "_publish", publish


def duplicate_not_read() -> Changes:
    """Carry out no request to read the message that has the identity of a fire."""

    original = StreamDriver._ask

    def ask(self: StreamDriver, question: Question) -> None:
        if not isinstance(question, ReadDuplicate):
            original(self, question)

    yield StreamDriver, "_ask", ask


def purge_reported_and_not_sent() -> Changes:
    """Report each purge as done that the engine asks for."""

    def purge(self: StreamDriver, request: PurgeSchedule) -> None:
        _pass_on(self, PurgeConcluded(request.schedule, request.through))

    yield StreamDriver, "_purge", purge


def expired_message_not_removed() -> Changes:
    """Carry out no removal of an expired message."""

    def remove(_self: StreamDriver, _request: RemoveExpired) -> None:
        return

    yield StreamDriver, "_remove", remove


def woken_late() -> Changes:
    """Wake an engine a second after the instant that it named."""
    original = StreamDriver._wake_at
    yield StreamDriver, "_wake_at", lambda self, action: original(self, WakeAt(action.instant + 1_000 * MILLISECOND))


def checkpoint_of_all_shards_believed() -> Changes:
    """Take what one holder wrote for its shards as settled for all that begin to be held."""
    yield Entry, "left", ALL_SHARDS


def _pass_on(driver: StreamDriver, given: Input) -> None:
    driver._inputs.add(given)
    driver._soon()


def waiting_read_forgotten() -> Changes:
    """Never read what had to wait for room."""
    yield Contents, "granted", lambda _self: iter(())
