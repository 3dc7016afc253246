"""Leases: each shard gets one holder, each instance its part, and the shards of one that is gone are claimed."""

from collections import Counter
from typing import Any

import pytest

from nats_scheduler.engine.sharing.leases import (
    ABSENCE_CONFIRMED_NS,
    HEARTBEAT_LIMIT_NS,
    LEASE_DURATION_NS,
    NO_HOLDER,
    OWN_HEARTBEAT_LIMIT_NS,
    RETURN_GRACE_NS,
    SERVING_KEPT_NS,
    STALE_HEARTBEAT_NS,
    Leases,
    Record,
    wanted_holders,
)
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, SHARDS
from tests.engine.lease_builders import BEAT, KEY, instance, write
from tests.harness.seeds import generator


def test_one_that_is_alone_takes_everything_at_once_if_the_record_can_be_known() -> None:
    alone = instance("a")
    write(alone, 1)
    assert alone.held(KEY) == ALL_SHARDS
    assert alone.change(KEY, 0) is None
    unsubscribed = Leases("a", frozenset({KEY}))
    assert unsubscribed.change(KEY, 0) is None


def test_work_is_divided_about_evenly() -> None:
    random = generator("leases")
    for count in (2, 3, 5, 8) * 20:
        names = [random.randbytes(6).hex() for _ in range(count)]
        counts = Counter(wanted_holders(KEY, names))
        assert len(counts) >= min(count, 7), names  # the shares of eight are small enough for one to be empty
        assert set(counts) <= set(names)
        assert max(counts.values()) <= 3 * SHARDS / count, names


def test_the_holders_are_drawn_the_same_for_ever() -> None:
    """Instances of two versions share a stream during an upgrade: these may never change."""
    drawn = "".join(wanted_holders(KEY, ["a", "b", "c"]))
    assert drawn == "bbcbbbbcbcbabcaabbaccababacbbccbbbaacbbacbaaacccccabbacabbbcacca"
    odd = "".join(name[0] for name in wanted_holders("emulated.\udcff", ["a", "b\udcfe", "c"]))
    assert odd == "acbaaaccacaabbaacababbcbacacbacabaccabbacbabcacccbcaccabcaccabab"


def test_a_heartbeat_is_news_if_its_sender_was_unknown_or_is_able_to_do_other_things() -> None:
    a = instance("a")
    beats = [((), True), ((), False), ({KEY}, True), ({KEY}, False), ((), True)]
    assert [a.received("b", {KEY}, 1, 1, unable=unable) for unable, _is_news in beats] == [news for _, news in beats]
    assert a.received("b", {"other"}, 1, 1)


def test_one_whose_heartbeats_were_received_has_its_lease_from_the_last_one() -> None:
    """Its heartbeats may be delivered late; of the first one since a subscription it is not known how late."""
    for is_anew in (False, True):
        a = instance("a", "b")
        a.received("b", {KEY}, BEAT, BEAT)
        if is_anew:
            a.listening_anew()
            a.received("b", {KEY}, BEAT, BEAT)
        a.received("a", {KEY}, 2 * BEAT, 2 * BEAT)
        for stored_at in range(2 * BEAT, BEAT + LEASE_DURATION_NS + BEAT, BEAT // 2):
            a.received("a", {KEY}, 2 * BEAT, stored_at)
        assert a.living(KEY) == (["a"] if is_anew else ["b", "a"])


def test_one_that_joins_moves_only_what_it_gets() -> None:
    before, after = wanted_holders(KEY, ["a", "b", "c"]), wanted_holders(KEY, ["c", "d", "a", "b"])
    assert {new for old, new in zip(before, after, strict=True) if old != new} == {"d"}


def test_a_holder_hands_over_and_is_not_robbed() -> None:
    a = instance("a")
    b = instance("b", "a")
    b.recorded(KEY, Record(write(a, 1), 1))
    assert b.change(KEY, 0) is None
    a.received("b", {KEY}, 0, 0)
    handed = write(a, 2)
    b.recorded(KEY, Record(handed, 2))
    assert b.held(KEY) == ALL_SHARDS - a.held(KEY) != frozenset()
    assert (a.change(KEY, 0), b.change(KEY, 0)) == (None, None)


def test_the_dead_are_claimed_from_when_they_were_not_heard_for_the_lease() -> None:
    a = instance("a", "b")
    a.recorded(KEY, Record(("b",) * SHARDS, 5))
    a.received("a", {KEY}, LEASE_DURATION_NS - 1, 0)
    assert a.discard_gone(LEASE_DURATION_NS - 1) == {}
    assert a.change(KEY, LEASE_DURATION_NS - 1) is None
    assert a.discard_gone(LEASE_DURATION_NS) == {"b": False}
    assert write(a, 6, LEASE_DURATION_NS) == ("a",) * SHARDS
    away = instance("a", "b")
    away.received("b", {KEY}, 1, 1)
    away.received("a", {KEY}, OWN_HEARTBEAT_LIMIT_NS, OWN_HEARTBEAT_LIMIT_NS)
    assert away.discard_gone(1 + LEASE_DURATION_NS) == {"b": False}, "as early as ever after we were away for a moment"


def test_one_who_does_not_hear_himself_judges_nobody_and_hands_nothing_over_to_whom_he_remembers() -> None:
    """The bucket delivered nothing to any instance: none can know which are alive until heartbeats arrive again."""
    a = instance("a", "b")
    assert a.discard_gone(10 * LEASE_DURATION_NS) == {}
    a.recorded(KEY, Record(("a",) * SHARDS, 1))
    a.serves = frozenset()  # what comes of it after `OWN_HEARTBEAT_LIMIT_NS` and `SERVING_KEPT_NS`
    assert a.change(KEY, LEASE_DURATION_NS) is None
    a.received("a", (), LEASE_DURATION_NS, LEASE_DURATION_NS)
    assert a.living(KEY) == []
    assert a.change(KEY, LEASE_DURATION_NS) is None, "no other instance is alive"
    a.listening_anew()
    assert a.discard_gone(10 * LEASE_DURATION_NS) == {}


def test_who_was_dead_before_we_came_is_not_waited_for() -> None:
    """A sidecar that crashed and was started again takes over from itself at once."""
    a = Leases("a", frozenset({KEY}))
    a.received("crashed", {KEY}, 7, 0)
    a.received("alive", {KEY}, 7, LEASE_DURATION_NS)
    a.received("a", {KEY}, 8, LEASE_DURATION_NS + BEAT)
    assert a.living(KEY) == ["alive", "a"]


def test_the_dead_are_not_brought_back_to_life_by_what_is_stored_of_them_or_of_ourselves() -> None:
    """An instance that subscribes again receives heartbeats of gone instances, and hands nothing over to them.

    One that stalled first receives its own last heartbeat, as old as that of one that died meanwhile.
    """
    now, record = 10 * LEASE_DURATION_NS, Record(("a",) * SHARDS, 1)
    a = instance("a")
    a.listening_anew()
    a.received("dead", {KEY}, now, 5 * LEASE_DURATION_NS)
    a.received("a", {KEY}, now, now)
    assert a.living(KEY) == ["a"]
    a.recorded(KEY, record)
    assert a.change(KEY, now) is None
    a.listening_anew()
    a.received("dead", {KEY}, now, 1)
    a.received("a", {KEY}, now, 0)
    assert a.living(KEY) == ["dead", "a"]
    assert a.received("a", {KEY}, now, now)
    assert a.living(KEY) == ["a"]


def test_who_was_not_heard_while_we_were_deaf_is_not_taken_for_dead_at_once() -> None:
    a = instance("a", "b")
    a.listening_anew()
    a.received("a", {KEY}, 3 * LEASE_DURATION_NS, 3 * LEASE_DURATION_NS)
    assert a.discard_gone(3 * LEASE_DURATION_NS) == {}
    a.received("a", {KEY}, 4 * LEASE_DURATION_NS, 4 * LEASE_DURATION_NS)
    assert a.discard_gone(4 * LEASE_DURATION_NS) == {"b": False}


def test_one_who_leaves_hands_everything_over_and_the_last_one_leaves_nothing_to_wait_for() -> None:
    for others, expected in ((["b"], "b"), ([], NO_HOLDER)):
        a = instance("a", *others)
        a.recorded(KEY, Record(("a",) * SHARDS, 1))
        a.is_leaving = True
        assert write(a, 2) == (expected,) * SHARDS


def test_an_instance_that_does_not_serve_the_stream_or_still_reads_it_is_given_nothing() -> None:
    a = instance("a")
    a.received("b", {"emulated.OTHER"}, 0, 0)
    a.recorded(KEY, Record(("b",) * SHARDS, 1))
    assert write(a, 2) == ("a",) * SHARDS
    a.received("b", (), 0, 0)
    assert a.change(KEY, 0) is None
    a.received("b", None, 0, 0)
    assert a.living(KEY) == ["b", "a"], "one that serves more than it can name serves all"


def test_a_holder_who_lost_contact_is_relieved_at_once_and_where_nobody_has_any_all_stays() -> None:
    a = instance("a", "b")
    a.recorded(KEY, Record(("a", "b") * (SHARDS // 2), 5))
    a.received("b", (), 0, 0)
    a.serves = frozenset()
    assert a.change(KEY, 0) is None
    a.serves = frozenset({KEY})
    assert write(a, 6) == ("a",) * SHARDS


def test_what_nobody_holds_is_taken_by_who_is_still_reading_where_nobody_else_can_fire() -> None:
    a = instance("a", "b")
    a.received("b", (), 0, 0)
    a.serves = frozenset()
    a.recorded(KEY, Record(("b", NO_HOLDER, "dead", "a") * (SHARDS // 4), 5))
    assert write(a, 6) == ("b", "a", "a", "a") * (SHARDS // 4)


def test_a_stream_is_served_once_it_is_read_and_we_hear_ourselves() -> None:
    a = Leases("a")
    assert a.able([KEY], 0) == frozenset()
    a.received("a", (), 0, 0)
    assert a.able([], OWN_HEARTBEAT_LIMIT_NS // 2) == frozenset()
    assert a.able([KEY], OWN_HEARTBEAT_LIMIT_NS - 1) == {KEY}


def test_a_loss_of_contact_is_told_after_a_moment() -> None:
    a, silent = instance("a"), instance("a")
    assert a.able([KEY], 0) == silent.able([KEY], 0) == {KEY}
    assert a.able([], SERVING_KEPT_NS - 1) == {KEY}
    assert a.able([], SERVING_KEPT_NS) == frozenset()
    assert silent.able([KEY], OWN_HEARTBEAT_LIMIT_NS - 1) == {KEY}
    assert silent.able([KEY], OWN_HEARTBEAT_LIMIT_NS + SERVING_KEPT_NS - 1) == frozenset(), "it hears nothing"


def test_one_who_stood_still_serves_again_when_he_has_heard_himself_and_read_what_happened() -> None:
    a = instance("a")
    assert a.able([KEY], 0) == {KEY}
    awake = 10 * LEASE_DURATION_NS
    assert a.able([KEY], awake) == frozenset()  # what was read is old, which is not known yet
    a.received("a", (), awake, awake)
    assert a.able([], awake) == frozenset()
    assert a.able([KEY], awake + 1) == {KEY}


def test_words_that_were_long_on_their_way_give_nobody_shards_and_do_not_make_a_dead_one_of_him() -> None:
    a, now = instance("a"), LEASE_DURATION_NS - 1
    a.received("b", {KEY}, 0, 2 * STALE_HEARTBEAT_NS, last_received=STALE_HEARTBEAT_NS + 1)
    assert a.living(KEY) == ["b", "a"]
    assert a.received("b", {KEY}, now, 3 * STALE_HEARTBEAT_NS, last_received=2 * STALE_HEARTBEAT_NS), (
        "its part belongs to another one from now on"
    )
    assert a.living(KEY) == ["a"]
    a.received("a", {KEY}, now, 3 * STALE_HEARTBEAT_NS)
    assert a.discard_gone(LEASE_DURATION_NS) == {}


def test_one_whose_own_words_come_back_late_says_that_he_does_not_serve() -> None:
    a = instance("a")
    assert a.able([KEY], 0) == {KEY}
    a.received("a", {KEY}, STALE_HEARTBEAT_NS, STALE_HEARTBEAT_NS + 1, last_received=1)
    assert a.able([KEY], STALE_HEARTBEAT_NS) == frozenset()
    assert a.is_receiving(STALE_HEARTBEAT_NS), "it still receives what others send"
    a.received("a", (), STALE_HEARTBEAT_NS + 1, STALE_HEARTBEAT_NS + 2, last_received=STALE_HEARTBEAT_NS + 1)
    assert a.able([KEY], STALE_HEARTBEAT_NS + 1) == {KEY}


def test_what_is_held_is_held_until_a_record_names_another() -> None:
    a = instance("a")
    write(a, 1)
    a.listening_anew()
    a.discard_gone(100 * LEASE_DURATION_NS)
    assert a.held(KEY) == ALL_SHARDS
    a.recorded(KEY, Record(("b",) * SHARDS, 2))
    assert a.held(KEY) == frozenset()


def test_a_record_that_was_lost_is_written_again_as_it_was() -> None:
    a = instance("a", "b")
    holders = wanted_holders(KEY, ["a", "b"])
    a.recorded(KEY, Record(holders, 9))
    assert a.change(KEY, 0) is None
    a.listening_anew()
    assert a.change(KEY, 0) is None, "the record may be received yet"
    a.received("a", {KEY}, 1, 1)
    assert a.record(KEY).revision == 0
    assert write(a, 1) == holders
    assert a.change(KEY, 0) is None


def test_what_is_looked_up_counts_though_more_was_told_of_a_bucket_that_is_gone() -> None:
    one = instance("a", "b")
    one.recorded(KEY, Record(("b",) * SHARDS, 13))
    one.recorded(KEY, Record(("a",) * SHARDS, 4))
    assert one.record(KEY).revision == 13
    one.looked_up(KEY, Record(("a",) * SHARDS, 4))
    assert one.held(KEY) == ALL_SHARDS
    one.recorded("of a later version", Record(revision=2, is_foreign=True))
    assert one.on_record() == [KEY]


def test_shards_without_a_living_holder_are_unassigned() -> None:
    a = instance("a", "b")
    assert a.unassigned(KEY, 0) == SHARDS
    a.recorded(KEY, Record(("a", "b") * (SHARDS // 2), 1))
    assert a.unassigned(KEY, 0) == 0
    a.recorded(KEY, Record(("a", NO_HOLDER) * (SHARDS // 2), 2))
    assert a.unassigned(KEY, 0) == SHARDS // 2
    a.recorded(KEY, Record(("b",) * SHARDS, 3))
    assert a.unassigned(KEY, 0) == 0, "one that holds nothing is no reason for alarm"
    for now in range(BEAT, 5 * BEAT, BEAT):
        a.received("a", {KEY}, now, now)
    assert a.unassigned(KEY, 4 * BEAT) == SHARDS
    assert a.unassigned(KEY, 40 * BEAT) == 0, "without heartbeats of our own nobody is judged"


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


@pytest.mark.parametrize("connects_anew", [True, False])
def test_the_first_one_back_from_an_outage_leaves_the_others_their_part_for_a_moment(connects_anew: bool) -> None:
    a = back_from_an_outage(*wanted_holders(KEY, ["a", "b"]), connects_anew=connects_anew)
    soon = BACK + RETURN_GRACE_NS - 1
    a.received("a", {KEY}, soon, soon)
    assert (a.discard_gone(soon), a.change(KEY, soon)) == ({}, None)
    assert a.discard_gone(BACK + RETURN_GRACE_NS) == {"b": False}, "and no longer, since it may be gone"
    assert write(a, 6, BACK + RETURN_GRACE_NS) == ("a",) * SHARDS


@pytest.mark.parametrize("who", ["a", "b"])
def test_one_who_is_back_and_still_reads_keeps_his_part_for_that_moment(who: str) -> None:
    """Though another one serves already."""
    a, other = back_from_an_outage(*wanted_holders(KEY, ["a", "b"])), "b" if who == "a" else "a"
    served: dict[str, set[str]] = {who: set(), other: {KEY}}
    a.serves = frozenset(served["a"])
    a.received("b", served["b"], BACK, BACK)
    assert a.change(KEY, BACK) is None
    for now in (*range(BACK, BACK + RETURN_GRACE_NS, BEAT), BACK + RETURN_GRACE_NS):
        for one, keys in served.items():
            a.received(one, keys, now, now)
    assert write(a, 6, BACK + RETURN_GRACE_NS) == (other,) * SHARDS


def test_who_is_only_counted_on_is_given_nothing_and_what_the_dead_held_is_claimed_at_once() -> None:
    wanted = wanted_holders(KEY, ["a", "b"])
    a = back_from_an_outage("a")
    a.received("b", (), BACK, BACK)
    assert a.change(KEY, BACK) is None
    a.received("b", {KEY}, BACK, BACK)
    assert write(a, 6, BACK) == wanted
    assert write(back_from_an_outage("dead"), 6, BACK) == tuple("a" if one == "a" else "dead" for one in wanted)


def test_who_took_over_while_we_were_away_keeps_what_he_has() -> None:
    """The outage was ours alone: we are handed our part after we have caught up."""
    a = back_from_an_outage("b")
    a.serves = frozenset()
    a.received("b", {KEY}, BACK, BACK)
    assert a.change(KEY, BACK) is None
    a.serves = frozenset({KEY})
    assert a.change(KEY, BACK) is None


LATE = BEAT + HEARTBEAT_LIMIT_NS
"""When the second heartbeat of another instance has none after it in time."""


def asked_when_late(*, has_answered: bool = True, receives: bool = True, absent: tuple[bool | None, ...]) -> Leases:
    """Let an instance be asked after its heartbeat is late, each `ABSENCE_CONFIRMED_NS` once, with these answers."""
    a = instance("a", "b")
    for one in ("a", "b"):
        a.received(one, {KEY}, BEAT, BEAT)
    assert a.asked("b", has_answered or None, BEAT) is has_answered
    if receives:
        a.received("a", {KEY}, LATE, LATE)
    for number, answer in enumerate(absent):
        a.asked("b", answer, LATE + number * ABSENCE_CONFIRMED_NS)
    return a


def test_one_that_is_not_there_twice_is_gone_before_its_lease_is_over() -> None:
    soon = LATE + 2 * ABSENCE_CONFIRMED_NS
    a = asked_when_late(absent=(False, False))
    assert a.discard_gone(soon) == {"b": True}
    assert write(a, 1, soon) == ("a",) * SHARDS
    assert a.ask_after("b", soon) is None
    assert not a.asked("b", False, soon)
    a.received("b", {KEY}, soon, soon)
    a.received("b", {KEY}, soon, soon)
    assert a.ask_after("b", soon) == 0, "what was known of its connection is known no more"


@pytest.mark.parametrize(
    "kept",
    [
        {"absent": (False,)},
        {"absent": (False, True, False)},
        {"absent": (False, None, False)},
        {"absent": (None, None, None)},
        {"absent": (False, False), "has_answered": False},
        {"absent": (False, False), "receives": False},
    ],
    ids=["once", "there-meanwhile", "not-known-meanwhile", "not-known", "never-answered", "not-receiving"],
)
def test_one_of_which_it_is_not_certain_that_it_is_not_there_keeps_its_lease(kept: Any) -> None:
    a = asked_when_late(**kept)
    assert a.discard_gone(LATE + 2 * ABSENCE_CONFIRMED_NS) == {}


def test_one_that_may_connect_again_after_an_outage_of_all_is_expected_and_not_asked_for() -> None:
    a = back_from_an_outage(*wanted_holders(KEY, ["a", "b"]))
    assert a.ask_after("c", BACK) is None
    a.asked("b", True, BACK)
    for now in range(BACK, BACK + RETURN_GRACE_NS, ABSENCE_CONFIRMED_NS):
        a.received("a", {KEY}, now, now)
        a.asked("b", False, now)
        assert a.discard_gone(now) == {}


def test_one_is_asked_when_its_heartbeat_is_late_and_one_that_never_answered_seldom() -> None:
    a = instance("a")
    waits = []
    for number in range(1, 10):
        a.received("b", {KEY}, number * BEAT, number * BEAT)
        waits.append(a.ask_after("b", number * BEAT))
    assert waits == [None, 0, None, 0, None, None, None, 0, None]
    assert a.asked("b", True, 9 * BEAT)
    assert a.ask_after("b", 9 * BEAT) == HEARTBEAT_LIMIT_NS
    assert a.ask_after("b", 9 * BEAT + LEASE_DURATION_NS) == ABSENCE_CONFIRMED_NS
    a.listening_anew()
    a.received("b", {KEY}, 20 * BEAT, 9 * BEAT)
    assert a.ask_after("b", 20 * BEAT) is None, "it may have been stored long before"
