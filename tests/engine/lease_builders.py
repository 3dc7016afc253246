"""Instances that divide one stream among themselves, for the tests of leases and of what is judged by them."""

from nats_scheduler.engine.sharing.leases import Holders, Leases, Record
from nats_scheduler.schedule.instants import MILLISECOND

KEY = "emulated.ORDERS"
BEAT = 500 * MILLISECOND


def instance(name: str, *others: str, now: int = 0) -> Leases:
    """Make an instance that serves the stream and receives its own heartbeats and those of others."""
    leases = Leases(name, frozenset({KEY}))
    for one in (*others, name):
        leases.received(one, {KEY}, now, now)
    return leases


def write(leases: Leases, revision: int, now: int = 0) -> Holders:
    """Carry out the change that an instance wants."""
    holders = leases.change(KEY, now)
    assert holders is not None
    leases.recorded(KEY, Record(holders, revision))
    return holders
