"""Leases after an outage that hit all instances: the first one back leaves the others their part for a moment."""

import pytest

from nats_scheduler.engine.sharing.leases import (
    LEASE_DURATION_NS,
    OWN_HEARTBEAT_LIMIT_NS,
    RETURN_GRACE_NS,
    Leases,
    Record,
    wanted_holders,
)
from nats_scheduler.engine.sharing.shards import SHARDS
from tests.engine.lease_builders import BEAT, KEY, instance, write

BACK = 3 * LEASE_DURATION_NS
"""The end of an outage that began at 0."""


def back_from_an_outage(*holders: str, connects_anew: bool = True) -> Leases:
    """Let two instances hold a stream during an outage of the bucket; return the first that is back and serves."""
    a = instance("a", "b")
    for one in ("b", "a"):
        a.received(one, {KEY}, 0, 0)
    a.recorded(KEY, Record(holders * (SHARDS // len(holders)), 5))
    if connects_anew:
        a.listening_anew()
        a.received("b", {KEY}, BACK, 0)
        a.received("a", {KEY}, BACK, 0)
        a.recorded(KEY, Record(holders * (SHARDS // len(holders)), 5))
    a.received("a", {KEY}, BACK, BACK)
    return a


def tell_on(a: Leases, served: dict[str, set[str]]) -> None:
    """Let all instances send heartbeats until none is expected back any more."""
    for now in (*range(BACK, BACK + RETURN_GRACE_NS, BEAT), BACK + RETURN_GRACE_NS):
        for one, keys in served.items():
            a.received(one, keys, now, now)


@pytest.mark.parametrize("connects_anew", [True, False])
def test_the_first_one_back_from_an_outage_leaves_the_others_their_part_for_a_moment(connects_anew: bool) -> None:
    a = back_from_an_outage(*wanted_holders(KEY, ["a", "b"]), connects_anew=connects_anew)
    soon = BACK + RETURN_GRACE_NS - 1
    a.received("a", {KEY}, soon, soon)
    assert (a.discard_gone(soon), a.change(KEY, soon)) == ([], None)
    assert a.discard_gone(BACK + RETURN_GRACE_NS) == ["b"], "and no longer, since it may be gone"
    assert write(a, 6, BACK + RETURN_GRACE_NS) == ("a",) * SHARDS


def test_one_who_is_back_and_still_reads_keeps_his_part_for_that_moment() -> None:
    a = back_from_an_outage(*wanted_holders(KEY, ["a", "b"]))
    a.received("b", (), BACK, BACK)
    assert a.change(KEY, BACK) is None
    tell_on(a, {"a": {KEY}, "b": set()})
    assert write(a, 6, BACK + RETURN_GRACE_NS) == ("a",) * SHARDS


def test_one_who_still_reads_keeps_his_own_part_for_that_moment_though_another_serves_already() -> None:
    a = back_from_an_outage(*wanted_holders(KEY, ["a", "b"]))
    a.serves = frozenset()
    a.received("b", {KEY}, BACK, BACK)
    assert a.change(KEY, BACK) is None
    tell_on(a, {"a": set(), "b": {KEY}})
    assert write(a, 6, BACK + RETURN_GRACE_NS) == ("b",) * SHARDS


def test_who_is_only_counted_on_is_given_nothing() -> None:
    a = back_from_an_outage("a")
    a.received("b", (), BACK, BACK)
    assert a.change(KEY, BACK) is None
    a.received("b", {KEY}, BACK, BACK)
    assert write(a, 6, BACK) == wanted_holders(KEY, ["a", "b"])


def test_what_the_dead_held_before_the_outage_is_claimed_at_once() -> None:
    a = back_from_an_outage("dead")
    assert write(a, 6, BACK) == tuple("a" if one == "a" else "dead" for one in wanted_holders(KEY, ["a", "b"]))


def test_who_died_while_we_were_away_for_a_moment_is_missed_as_early_as_ever() -> None:
    a = instance("a", "b")
    a.received("b", {KEY}, 1, 1)
    a.received("a", {KEY}, OWN_HEARTBEAT_LIMIT_NS, OWN_HEARTBEAT_LIMIT_NS)
    assert a.discard_gone(1 + LEASE_DURATION_NS) == ["b"]


def test_who_took_over_while_we_were_away_keeps_what_he_has() -> None:
    """The outage was ours alone: we are handed our part after we have caught up."""
    a = back_from_an_outage("b")
    a.serves = frozenset()
    a.received("b", {KEY}, BACK, BACK)
    assert a.change(KEY, BACK) is None
    a.serves = frozenset({KEY})
    assert a.change(KEY, BACK) is None
