"""Instances that own one stream or stand by, for the tests of owners and of what is judged by them."""

from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.engine.ownership.owners import OwnerChange, Owners, Record
from nats_scheduler.schedule.instants import MILLISECOND

KEY = "emulated.ORDERS"
BEAT = 500 * MILLISECOND

A, B, C = order_of(KEY, ("a", "b", "c"))
"""The names of three instances, in the order of the stream."""


def instance(name: str, *others: str, now: int = 0) -> Owners:
    """Make an instance that serves the stream and receives its own heartbeats and those of others."""
    owners = Owners(name, frozenset({KEY}))
    for one in (*others, name):
        owners.received(one, {KEY}, now, now)
    return owners


def owned(owners: Owners, owner: str, revision: int = 1) -> Owners:
    """Let an instance receive who owns the stream."""
    owners.recorded(KEY, Record(owner, revision=revision))
    return owners


def write(owners: Owners, revision: int, now: int = 0) -> OwnerChange:
    """Carry out the change that an instance wants."""
    change = owners.change(KEY, now)
    assert change is not None
    owners.recorded(KEY, Record(change.owner, reason=change.reason, revision=revision))
    return change
