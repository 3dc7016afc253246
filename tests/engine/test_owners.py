"""Owners: each stream gets one, the first instance in its order, and the streams of one that is gone are claimed."""

from typing import Any

import pytest

from nats_scheduler.engine.ownership import owners as module
from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.engine.ownership.owners import (
    ABSENCE_CONFIRMED_NS,
    GONE_AFTER_NS,
    HEARTBEAT_LIMIT_NS,
    MAX_OTHERS,
    NO_OWNER,
    NO_RECORD,
    OWN_HEARTBEAT_LIMIT_NS,
    RETURN_GRACE_NS,
    SERVING_KEPT_NS,
    STALE_HEARTBEAT_NS,
    OwnerChange,
    Owners,
    Reason,
    Record,
)
from tests.engine.owner_builders import BEAT, KEY, A, B, C, instance, owned, write


def test_one_that_is_alone_owns_every_stream_at_once() -> None:
    alone = instance("a")
    assert write(alone, 1) == OwnerChange("a", Reason.FIRST)
    assert (alone.is_owner(KEY), alone.change(KEY, 0)) == (True, None)
    assert Owners("a", frozenset({KEY})).change(KEY, 0) is None, "it is not subscribed yet"


def test_a_heartbeat_is_news_if_its_sender_is_new_or_able_to_do_more() -> None:
    a = instance("a")
    beats = [((), True), ((), False), ({KEY}, True), ({KEY}, False), ((), True)]
    assert [a.received("b", {KEY}, 1, 1, unable=unable) for unable, _is_news in beats] == [news for _, news in beats]
    assert a.received("b", {"other"}, 1, 1)


def test_one_whose_heartbeats_came_is_waited_for_from_the_last_one() -> None:
    """Its heartbeats may be delivered late; of the first one since a subscription it is not known how late."""
    for is_anew in (False, True):
        a = instance("a", "b")
        a.received("b", {KEY}, BEAT, BEAT)
        if is_anew:
            a.listening_anew()
            a.received("b", {KEY}, BEAT, BEAT)
        a.received("a", {KEY}, 2 * BEAT, 2 * BEAT)
        for stored_at in range(2 * BEAT, BEAT + GONE_AFTER_NS + BEAT, BEAT // 2):
            a.received("a", {KEY}, 2 * BEAT, stored_at)
        assert a.living(KEY) == (["a"] if is_anew else ["b", "a"])


def test_an_owner_hands_over_to_one_that_is_earlier_in_the_order() -> None:
    later, earlier = owned(instance(B), B), owned(instance(A, B), B)
    assert earlier.change(KEY, 0) is None
    later.received(A, {KEY}, 0, 0)
    assert write(later, 2) == OwnerChange(A, Reason.ORDER)
    owned(earlier, A, 2)
    assert (later.is_owner(KEY), earlier.is_owner(KEY)) == (False, True)
    assert (later.change(KEY, 0), earlier.change(KEY, 0)) == (None, None)


def test_the_standbys_are_those_that_have_read_it_in_their_order() -> None:
    owner = owned(instance(A, B, C), A)
    assert owner.standbys(KEY) == [B, C]
    owner.received(B, (), 0, 0, reading=[KEY])
    assert owner.standbys(KEY) == [C], "one that still reads it takes nothing over"
    standby = owned(instance(B, A, C), A)
    assert standby.standbys(KEY) == [B, C]


def test_one_that_leaves_waits_for_a_successor_as_long_as_one_may_come() -> None:
    serves, reads, neither = ((KEY,), ()), ((), (KEY,)), ((), ())
    for others, leaving, may_leave, serving in (
        ([], [], True, []),
        ([serves], [], True, [0]),
        ([], [serves], True, []),
        ([reads], [], False, []),
        ([], [reads], True, []),
        ([neither], [], True, []),
        ([neither, neither], [], False, []),
        ([reads, serves], [serves], True, [1]),
        ([reads], [serves], False, []),
    ):
        a = instance("a")
        for number, (served, reading) in enumerate((*others, *leaving)):
            a.received(f"b{number}", served, 0, 0, reading=reading, is_ending=number >= len(others))
        expected = may_leave, [f"b{number}" for number in serving]
        assert (a.has_successor(KEY), a.served_by_others(KEY)) == expected, (others, leaving)


def test_streams_of_one_without_heartbeats_are_claimed_after_that_time() -> None:
    a = owned(instance("a", "b"), "b", 5)
    a.received("a", {KEY}, GONE_AFTER_NS - 1, 0)
    assert a.discard_gone(GONE_AFTER_NS - 1) == {}
    assert (a.change(KEY, GONE_AFTER_NS - 1), a.fires(KEY, GONE_AFTER_NS - 1)) == (None, False)
    assert a.discard_gone(GONE_AFTER_NS) == {"b": False}
    assert a.fires(KEY, GONE_AFTER_NS), "it does not wait until the record says so"
    assert write(a, 6, GONE_AFTER_NS) == OwnerChange("a", Reason.GONE)
    away = instance("a", "b")
    away.received("b", {KEY}, 1, 1)
    away.received("a", {KEY}, OWN_HEARTBEAT_LIMIT_NS, OWN_HEARTBEAT_LIMIT_NS)
    assert away.discard_gone(1 + GONE_AFTER_NS) == {"b": False}, "as early as ever after we were away for a moment"


def test_one_that_does_not_receive_itself_judges_nobody() -> None:
    """The bucket delivered nothing to any instance: none can know which are alive until heartbeats arrive again."""
    a = owned(instance(B, A), B)
    assert a.discard_gone(10 * GONE_AFTER_NS) == {}
    a.serves = frozenset()  # what follows after `OWN_HEARTBEAT_LIMIT_NS` and `SERVING_KEPT_NS`
    assert a.change(KEY, GONE_AFTER_NS) is None
    a.received(B, (), GONE_AFTER_NS, GONE_AFTER_NS)
    assert a.change(KEY, GONE_AFTER_NS) is None, "the others may be about to come back"
    a.listening_anew()
    assert a.discard_gone(10 * GONE_AFTER_NS) == {}
    silent = owned(instance(B), "gone")
    assert not silent.fires(KEY, GONE_AFTER_NS), "the owner may be alive, and only not be received"


def test_one_that_was_gone_before_we_came_is_not_waited_for() -> None:
    """A sidecar that crashed and was started again takes over from itself at once."""
    a = Owners("a", frozenset({KEY}))
    a.received("crashed", {KEY}, 7, 0)
    a.received("alive", {KEY}, 7, GONE_AFTER_NS)
    a.received("a", {KEY}, 8, GONE_AFTER_NS + BEAT)
    assert a.living(KEY) == ["alive", "a"]


def judged(one: Owners, me: str, now: int) -> int:
    """Let an instance that is back from an outage receive itself until it judges others; return the time (ns) then."""
    until = now + RETURN_GRACE_NS
    for instant in (*range(now, until, BEAT), until):
        one.received(me, {KEY}, instant, instant)
    return until


def test_one_that_leaves_hands_everything_over_or_back() -> None:
    for others, expected in ([B, C], B), ([], NO_OWNER):
        one = owned(instance(A, *others), A)
        one.is_leaving = True
        assert write(one, 2) == OwnerChange(expected, Reason.LEFT)
        assert not one.fires(KEY, 0)


def test_one_that_left_is_not_given_back_what_it_handed_over() -> None:
    """Its last heartbeat is still known when its record is received, and it is the first in the order."""
    later = instance(B, A)
    later.recorded(KEY, Record(B, before=A, reason=Reason.LEFT, revision=2))
    assert (later.living(KEY), later.change(KEY, 0)) == ([B], None)
    assert later.standbys(KEY) == [], "nor does it stand by"
    later.recorded(KEY, Record(B, before=A, reason=Reason.ORDER, revision=3))
    assert later.change(KEY, 0) == OwnerChange(A, Reason.ORDER)


def test_an_instance_that_does_not_serve_a_stream_does_not_own_it() -> None:
    one = instance(B)
    one.received(A, {"emulated.OTHER"}, 0, 0)
    assert write(owned(one, A), 2) == OwnerChange(B, Reason.NOT_READY)
    one.received(A, (), 0, 0)
    assert one.change(KEY, 0) is None
    one.received(A, None, 0, 0)
    assert one.living(KEY) == [A, B], "one that serves more than it can name serves all"


def test_the_stream_of_an_owner_that_lost_contact_is_claimed_at_once() -> None:
    b = owned(instance(B, A), A, 5)
    b.received(A, (), 0, 0)
    b.serves = frozenset()
    assert b.change(KEY, 0) is None
    b.serves = frozenset({KEY})
    assert write(b, 6) == OwnerChange(B, Reason.NOT_READY)
    lost = owned(instance(A, B), A, 5)
    lost.serves = frozenset()
    assert write(lost, 6) == OwnerChange(B, Reason.NOT_READY)


def test_what_nobody_owns_is_taken_by_the_first_that_reads_it() -> None:
    for owner, expected in ("b", None), ("a", None), (NO_OWNER, Reason.FIRST), ("gone", Reason.GONE):
        a = owned(instance("a", "b"), owner, 5)
        a.received("b", (), 0, 0)
        a.serves = frozenset()
        assert a.change(KEY, 0) == (expected and OwnerChange("a", expected))
    for me, other, expected in (A, B, Reason.FIRST), (B, A, None):
        one = instance(me, other)
        one.received(other, (), 0, 0, reading=[KEY])
        one.serves = frozenset()
        assert one.change(KEY, 0) == (expected and OwnerChange(me, expected)), "both read it"


def test_a_stream_is_served_once_it_is_read_and_we_receive_ourselves() -> None:
    a = Owners("a")
    assert a.able([KEY], 0) == frozenset()
    a.received("a", (), 0, 0)
    assert a.able([], OWN_HEARTBEAT_LIMIT_NS // 2) == frozenset()
    assert a.able([KEY], OWN_HEARTBEAT_LIMIT_NS - 1) == {KEY}


def test_a_loss_of_contact_counts_after_a_moment() -> None:
    a, silent = instance("a"), instance("a")
    assert a.able([KEY], 0) == silent.able([KEY], 0) == {KEY}
    assert a.able([], SERVING_KEPT_NS - 1) == {KEY}
    assert a.able([], SERVING_KEPT_NS) == frozenset()
    assert silent.able([KEY], OWN_HEARTBEAT_LIMIT_NS - 1) == {KEY}
    assert silent.able([KEY], OWN_HEARTBEAT_LIMIT_NS + SERVING_KEPT_NS - 1) == frozenset(), "it receives nothing"


def test_late_heartbeats_make_nobody_an_owner_and_nobody_gone() -> None:
    a, now = instance("a"), GONE_AFTER_NS - 1
    a.received("b", {KEY}, 0, 2 * STALE_HEARTBEAT_NS, last_received=STALE_HEARTBEAT_NS + 1)
    assert a.living(KEY) == ["b", "a"]
    assert a.received("b", {KEY}, now, 3 * STALE_HEARTBEAT_NS, last_received=2 * STALE_HEARTBEAT_NS), (
        "its streams belong to another one from now on"
    )
    assert a.living(KEY) == ["a"]
    a.received("a", {KEY}, now, 3 * STALE_HEARTBEAT_NS)
    assert a.discard_gone(GONE_AFTER_NS) == {}


def test_one_whose_own_heartbeats_come_back_late_does_not_serve() -> None:
    a = instance("a")
    assert a.able([KEY], 0) == {KEY}
    a.received("a", {KEY}, STALE_HEARTBEAT_NS, STALE_HEARTBEAT_NS + 1, last_received=1)
    assert a.able([KEY], STALE_HEARTBEAT_NS) == frozenset()
    assert a.is_receiving(STALE_HEARTBEAT_NS), "it still receives what others send"
    a.received("a", (), STALE_HEARTBEAT_NS + 1, STALE_HEARTBEAT_NS + 2, last_received=STALE_HEARTBEAT_NS + 1)
    assert a.able([KEY], STALE_HEARTBEAT_NS + 1) == {KEY}


def test_a_record_that_was_lost_is_written_again_as_it_was() -> None:
    b = instance(B, A)
    b.recorded(KEY, Record(A, 5, C, Reason.IDLE, 9))
    assert b.change(KEY, 0) is None
    b.listening_anew()
    assert b.change(KEY, 0) is None, "the record may be received yet"
    b.received(B, {KEY}, 1, 1)
    assert b.record(KEY) == Record(A, 5, C, Reason.IDLE, 0)
    assert write(b, 1) == OwnerChange(A, Reason.IDLE)
    assert b.change(KEY, 0) is None


def test_what_is_looked_up_counts_before_what_a_gone_bucket_said() -> None:
    one = owned(instance("a", "b"), "b", 13)
    owned(one, "a", 4)
    assert one.record(KEY).revision == 13
    one.looked_up(KEY, Record("a", revision=4))
    assert one.is_owner(KEY)
    one.recorded("of a later version", Record(revision=2, is_foreign=True))
    assert one.on_record() == [KEY]
    one.looked_up(KEY, NO_RECORD)
    assert one.on_record() == []


def test_a_stream_whose_record_is_of_a_later_version_is_left_alone() -> None:
    a = owned(instance("a"), "a")
    a.recorded(KEY, Record(revision=2, is_foreign=True))
    assert (a.change(KEY, 0), a.fires(KEY, 0), a.able([KEY], 0)) == (None, False, frozenset())
    assert a.judge_owner(KEY, 10, 9, 0) is None


BACK = 3 * GONE_AFTER_NS
"""The end of an outage that began at 0."""


def back_from_an_outage(owner: str, me: str = A, other: str = B) -> Owners:
    """Let two instances know of a stream during an outage of the bucket; return the first that is back and serves."""
    one = instance(me, other)
    for name in (other, me):
        one.received(name, {KEY}, 0, 0)
    owned(one, owner, 5)
    one.listening_anew()
    one.received(other, {KEY}, BACK, 0)
    one.received(me, {KEY}, BACK, 0)
    owned(one, owner, 5)
    one.received(me, {KEY}, BACK, BACK)
    return one


def test_the_first_one_back_from_an_outage_waits_for_the_others() -> None:
    b = back_from_an_outage(A, B, A)
    soon = BACK + RETURN_GRACE_NS - 1
    b.received(B, {KEY}, soon, soon)
    assert (b.discard_gone(soon), b.change(KEY, soon), b.fires(KEY, soon)) == ({}, None, False)
    now = judged(b, B, BACK)
    b.discard_gone(now)
    assert write(b, 6, now) == OwnerChange(B, Reason.GONE), "and no longer, since it may be gone"


def test_one_that_is_back_changes_no_record_and_fires_what_nobody_owns() -> None:
    one = back_from_an_outage(B, B, A)
    one.received(A, {KEY}, BACK, BACK)
    assert one.change(KEY, BACK) is None
    until = BACK + RETURN_GRACE_NS
    for now in (*range(BACK, until, BEAT), until):
        for name in (A, B):
            one.received(name, {KEY}, now, now)
    assert write(one, 6, until) == OwnerChange(A, Reason.ORDER)
    orphan = back_from_an_outage("gone")
    orphan._others.pop(B)
    assert (orphan.change(KEY, BACK), orphan.fires(KEY, BACK)) == (None, True)
    assert write(orphan, 6, judged(orphan, A, BACK)) == OwnerChange(A, Reason.GONE)


LATE = BEAT + HEARTBEAT_LIMIT_NS
"""When the second heartbeat of another instance has none after it in time."""


def asked_when_late(
    *, has_answered: bool = True, receives: bool = True, since: int = LATE, absent: tuple[bool | None, ...]
) -> Owners:
    """Let an instance be asked since its heartbeat is late, each `ABSENCE_CONFIRMED_NS` once, with these answers."""
    a = instance("a", "b")
    for one in ("a", "b"):
        a.received(one, {KEY}, BEAT, BEAT)
    assert a.asked("b", has_answered or None, BEAT) is has_answered
    if receives:
        a.received("a", {KEY}, LATE, LATE)
    for number, answer in enumerate(absent):
        a.asked("b", answer, since + number * ABSENCE_CONFIRMED_NS)
    return a


def test_one_that_is_not_there_twice_is_gone_before_its_time() -> None:
    soon = LATE + 2 * ABSENCE_CONFIRMED_NS
    a = owned(asked_when_late(absent=(False, False)), "b")
    assert a.discard_gone(soon) == {"b": True}
    assert write(a, 2, soon) == OwnerChange("a", Reason.GONE)
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
        {"absent": (False, False), "has_answered": False},
        {"absent": (False, False), "receives": False},
        {"absent": (False, False), "since": LATE - ABSENCE_CONFIRMED_NS - 1},
    ],
    ids=["once", "there meanwhile", "never answered", "not receiving", "not late"],
)
def test_one_that_may_be_there_is_waited_for(kept: Any) -> None:
    a = asked_when_late(**kept)
    assert a.discard_gone(LATE + 2 * ABSENCE_CONFIRMED_NS) == {}


def test_one_is_asked_when_its_heartbeat_is_late() -> None:
    a = instance("a")
    waits = []
    for number in range(1, 10):
        a.received("b", {KEY}, number * BEAT, number * BEAT)
        waits.append(a.ask_after("b", number * BEAT))
    assert waits == [None, 0, None, 0, None, None, None, 0, None]
    assert a.asked("b", True, 9 * BEAT)
    assert a.ask_after("b", 9 * BEAT) == HEARTBEAT_LIMIT_NS
    assert a.ask_after("b", 9 * BEAT + GONE_AFTER_NS) == ABSENCE_CONFIRMED_NS
    a.listening_anew()
    a.received("b", {KEY}, 20 * BEAT, 9 * BEAT)
    assert a.ask_after("b", 20 * BEAT) is None, "it may have been stored long before"


class TestAHostileNeighbourInTheBucket:
    """Any client of the account may write there."""

    def test_a_record_that_names_nobody_stops_no_fire(self) -> None:
        a = owned(instance("a", "b"), "a")
        for revision in range(2, 50, 2):
            owned(a, "nobody", revision)
            first = order_of(KEY, ("a", "b"))[0] == "a"
            assert a.fires(KEY, 0) is first
            assert a.change(KEY, 0) == (OwnerChange("a", Reason.GONE) if first else None)

    def test_a_bounded_number_of_instances_is_noted_and_known_ones_stay(self) -> None:
        a = instance("a", "b")
        for number in range(2 * MAX_OTHERS):
            a.received(f"forged{number}", None, 0, 0, unable=[KEY])
        assert a.count == MAX_OTHERS + 1
        assert a.received("b", (), 0, 0)
        for now in range(0, GONE_AFTER_NS + BEAT, BEAT):
            a.received("a", {KEY}, now, now)
        a.discard_gone(now)
        assert (a.count, a.ability.is_flawless) == (1, True)

    def test_few_records_are_noted_and_a_real_one_is_looked_up(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "MAX_RECORDS_NOTED", 100)
        a = instance("a")
        for number in range(105):
            a.recorded(f"emulated.FORGED{number}", Record("nobody", revision=1))
        assert len(a.on_record()) == 100
        assert a.change(KEY, 0) == OwnerChange("a", Reason.FIRST)
        a.looked_up(KEY, Record("a", revision=7))
        assert a.change(KEY, 0) is None

    def test_an_instance_that_only_sends_heartbeats_keeps_no_stream(self) -> None:
        b = owned(instance(B, A), "gone")
        assert (b.change(KEY, 0), b.fires(KEY, 0)) == (None, False), "it is left to the first in the order"
        for now in range(0, GONE_AFTER_NS, BEAT):
            for name in (A, B):
                b.received(name, {KEY}, now, now)
            judged = b.judge_owner(KEY, 10, 9, now)
        assert judged == A
        assert b.fires(KEY, now)
        assert write(b, 2, now) == OwnerChange(B, Reason.GONE)
