"""Alive is not able: an instance that cannot hold, or does not fire, gets no shards while another one can hold them."""

import pytest

from nats_scheduler.engine.fire import ReadContent
from nats_scheduler.engine.firing.course import NEGLECT_LIMIT_NS
from nats_scheduler.engine.inputs import (
    NOT_PERMITTED,
    PurgeConcluded,
    Refused,
    ShardsHeld,
    Stored,
    Unanswered,
)
from nats_scheduler.engine.removing.purges import OTHER_HOLDER_LIMIT_NS
from nats_scheduler.engine.sharing.leases import (
    FIRST_RELIEF_NS,
    FIRST_TRIAL_WAIT_NS,
    IDLE_CONFIRMED_AFTER_NS,
    TRIAL_DURATION_NS,
    TRIAL_WAIT_LIMIT_NS,
    Ability,
    Leases,
    Record,
    wanted_holders,
)
from nats_scheduler.engine.sharing.shards import SHARDS, shard_of
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, message_on, schedule
from tests.engine.lease_builders import KEY, instance, write

DENIED = Refused(NOT_PERMITTED, NOT_PERMITTED, "our user may not publish to the target")
SHARD = 7
WHY = "may not"
OURS = ("a",) * SHARDS
THEIRS = ("b",) * SHARDS


def receives(leases: Leases, other: str, now: int, *, unable: tuple[str, ...] = ()) -> None:
    """Let an instance receive its own heartbeat and that of another one."""
    leases.received(other, {KEY}, now, now, unable=unable)
    leases.received(leases.me, {KEY}, now, now)
    leases.discard_gone(now)


# -- instances that are unable


def test_one_that_cannot_hands_everything_to_one_that_can() -> None:
    a = instance("a", "b")
    a.recorded(KEY, Record(OURS, 1))
    assert a.ability.denied(KEY, SHARD, WHY, 0)
    assert write(a, 2) == THEIRS


def test_what_one_that_cannot_holds_is_claimed_by_one_that_can() -> None:
    b = instance("b", "a")
    b.recorded(KEY, Record(OURS, 1))
    receives(b, "a", 0, unable=(KEY,))
    assert write(b, 2) == THEIRS


def test_one_that_cannot_keeps_everything_while_it_is_alone() -> None:
    a = instance("a")
    write(a, 1)
    a.ability.denied(KEY, SHARD, WHY, 0)
    assert (a.change(KEY, 0), a.held(KEY)) == (None, frozenset(range(SHARDS)))


def test_where_nobody_can_all_share_the_work_and_none_takes_it_from_another() -> None:
    a, b = instance("a", "b"), instance("b", "a")
    record = Record(wanted_holders(KEY, ["a", "b"]), 1)
    for one, other in ((a, "b"), (b, "a")):
        one.recorded(KEY, record)
        one.ability.denied(KEY, SHARD, WHY, 0)
        receives(one, other, 0, unable=(KEY,))
        assert one.change(KEY, 0) is None


def test_what_one_cannot_on_one_stream_changes_nothing_on_another() -> None:
    a = instance("a", "b")
    a.recorded(KEY, Record(wanted_holders(KEY, ["a", "b"]), 1))
    a.ability.denied("emulated.OTHER", SHARD, WHY, 0)
    assert a.change(KEY, 0) is None


def test_after_a_while_one_shard_is_tried_beside_its_holder_and_then_the_part_is_taken_back() -> None:
    a = instance("a", "b")
    a.recorded(KEY, Record(THEIRS, 1))
    a.ability.denied(KEY, SHARD, WHY, 0)
    assert a.to_fire(KEY, FIRST_TRIAL_WAIT_NS - 1) == frozenset()
    assert a.to_fire(KEY, FIRST_TRIAL_WAIT_NS) == {SHARD}
    assert a.ability.passed(FIRST_TRIAL_WAIT_NS + TRIAL_DURATION_NS - 1) == []
    assert a.ability.passed(FIRST_TRIAL_WAIT_NS + TRIAL_DURATION_NS) == [KEY]
    assert (a.to_fire(KEY, FIRST_TRIAL_WAIT_NS + TRIAL_DURATION_NS), dict(a.ability.unable)) == (frozenset(), {})


def test_each_trial_that_fails_makes_the_next_wait_twice_as_long() -> None:
    ability, now, waits = Ability(), 0, []
    for _ in range(10):
        ability.denied(KEY, SHARD, WHY, now)
        begun = now
        while not ability.on_trial(KEY, now):
            now += SECOND
        waits.append(now - begun)
    assert waits == [min(FIRST_TRIAL_WAIT_NS << number, TRIAL_WAIT_LIMIT_NS) for number in range(10)]


def test_one_that_could_for_a_moment_only_waits_longer_than_before() -> None:
    ability = Ability()
    ability.denied(KEY, SHARD, WHY, 0)
    able_at = FIRST_TRIAL_WAIT_NS + TRIAL_DURATION_NS
    assert ability.passed(able_at) == [KEY]
    ability.denied(KEY, SHARD, WHY, able_at)
    assert not ability.on_trial(KEY, able_at + 2 * FIRST_TRIAL_WAIT_NS - 1)
    assert ability.on_trial(KEY, able_at + 2 * FIRST_TRIAL_WAIT_NS)


def test_with_a_new_connection_the_trial_begins_at_once() -> None:
    ability = Ability()
    ability.denied(KEY, SHARD, WHY, 0)
    ability.reconnected(1)
    assert ability.on_trial(KEY, 1) == {SHARD}


def test_the_dead_are_not_remembered_as_unable() -> None:
    b = instance("b", "a")
    receives(b, "a", 0, unable=(KEY,))
    b.left("a")
    receives(b, "a", 0)
    assert sorted(b.living(KEY)) == ["a", "b"]


# -- holders that are idle


def idle_holder(now: int = 0) -> Leases:
    """Make an instance in whose view another one holds all shards and fires nothing."""
    a = instance("a", "b", now=now)
    a.recorded(KEY, Record(THEIRS, 1))
    return a


def judged(leases: Leases, overdue: int, fired: int, now: int) -> list[str]:
    """Judge the holders by one overdue fire in one shard, and one that was read back in another."""
    last = [0] * SHARDS
    last[SHARD + 1] = fired
    receives(leases, "b", now)
    return leases.relieve_idle(KEY, {SHARD: overdue}, last, now)


def test_a_holder_none_of_whose_fires_is_seen_is_relieved_once_that_is_sure() -> None:
    a = idle_holder()
    assert judged(a, 10, 9, 0) == []
    assert judged(a, 10, 9, IDLE_CONFIRMED_AFTER_NS) == ["b"]
    assert write(a, 2, IDLE_CONFIRMED_AFTER_NS) == OURS


def test_a_holder_that_fires_anything_of_that_time_or_later_is_not_idle() -> None:
    a = idle_holder()
    assert judged(a, 10, 9, 0) == []
    assert judged(a, 10, 10, IDLE_CONFIRMED_AFTER_NS) == []
    assert judged(a, 10, 11, 2 * IDLE_CONFIRMED_AFTER_NS) == []


def test_what_an_idle_holder_holds_by_a_record_that_others_write_is_fired_all_the_same() -> None:
    a = idle_holder()
    judged(a, 10, 9, 0)
    judged(a, 10, 9, IDLE_CONFIRMED_AFTER_NS)
    a.serves = frozenset({KEY})
    assert a.held(KEY) == frozenset()
    assert a.to_fire(KEY, IDLE_CONFIRMED_AFTER_NS) == frozenset(range(SHARDS))


def test_each_time_it_is_idle_again_it_is_given_nothing_for_twice_as_long() -> None:
    a, now = idle_holder(), 0
    for relief in (FIRST_RELIEF_NS, 2 * FIRST_RELIEF_NS, 4 * FIRST_RELIEF_NS):
        judged(a, 10, 9, now)
        now += IDLE_CONFIRMED_AFTER_NS
        assert judged(a, 10, 9, now) == ["b"]
        assert judged(a, 10, 11, now + 1) == []
        assert a.ability.is_relieved(KEY, "b", now + relief - 1)
        now += relief
        assert not a.ability.is_relieved(KEY, "b", now)
        judged(a, 10, 11, now)


def test_it_is_forgiven_where_our_own_fires_are_refused_too_and_not_blamed_again_at_once() -> None:
    a = idle_holder()
    judged(a, 10, 9, 0)
    judged(a, 10, 9, IDLE_CONFIRMED_AFTER_NS)
    a.ability.end_reliefs(KEY, IDLE_CONFIRMED_AFTER_NS)
    assert not a.ability.is_relieved(KEY, "b", IDLE_CONFIRMED_AFTER_NS)
    assert judged(a, 10, 9, 2 * IDLE_CONFIRMED_AFTER_NS) == []


def fight(*instances: Leases, now: int) -> int:
    """Let instances change the record in turn until none wants to; return how often it was changed."""
    for revision in range(2, 100):
        writer = next((one for one in instances if one.change(KEY, now) is not None), None)
        if writer is None:
            return revision - 2
        holders = write(writer, revision, now)
        for one in instances:
            one.recorded(KEY, Record(holders, revision))
        instances = (*(one for one in instances if one is not writer), writer)
    return 98


def test_two_that_relieve_each_other_come_to_rest_and_both_fire_until_that_ends() -> None:
    a, b = instance("a", "b"), instance("b", "a")
    for one, other in ((a, "b"), (b, "a")):
        one.recorded(KEY, Record(wanted_holders(KEY, ["a", "b"]), 1))
        for now in (0, IDLE_CONFIRMED_AFTER_NS):
            receives(one, other, now)
            relieved = one.relieve_idle(KEY, dict.fromkeys(range(SHARDS), 10), [9] * SHARDS, now)
        assert relieved == [other]
        one.serves = frozenset({KEY})
    assert fight(a, b, now=IDLE_CONFIRMED_AFTER_NS) <= 3
    assert a.to_fire(KEY, IDLE_CONFIRMED_AFTER_NS) | b.to_fire(KEY, IDLE_CONFIRMED_AFTER_NS) == frozenset(range(SHARDS))
    over = IDLE_CONFIRMED_AFTER_NS + FIRST_RELIEF_NS
    for one, other in ((a, "b"), (b, "a")):
        receives(one, other, over)
    fight(a, b, now=over)
    assert a.to_fire(KEY, over) == frozenset(range(SHARDS)) - b.to_fire(KEY, over) != frozenset()


def test_what_an_idle_holder_took_back_is_claimed_again_when_it_does_not_live_or_serve_any_more() -> None:
    a = idle_holder()
    for now in (0, IDLE_CONFIRMED_AFTER_NS):
        judged(a, 10, 9, now)
    assert write(a, 2, IDLE_CONFIRMED_AFTER_NS) == OURS
    a.recorded(KEY, Record(THEIRS, 3))
    assert a.change(KEY, IDLE_CONFIRMED_AFTER_NS) is None
    a.received("b", frozenset(), IDLE_CONFIRMED_AFTER_NS, IDLE_CONFIRMED_AFTER_NS)
    assert a.change(KEY, IDLE_CONFIRMED_AFTER_NS) == OURS
    a.left("b")
    assert a.change(KEY, IDLE_CONFIRMED_AFTER_NS) == OURS


def test_an_idle_holder_is_claimed_from_again_when_it_is_relieved_again() -> None:
    a, now = idle_holder(), 0
    for revision in (2, 4):
        for _ in range(2):
            now += IDLE_CONFIRMED_AFTER_NS
            judged(a, 10, 9, now)
        assert write(a, revision, now) == OURS
        a.recorded(KEY, Record(THEIRS, revision + 1))
        now += FIRST_RELIEF_NS


def test_where_everybody_else_is_idle_and_we_do_not_serve_they_keep_what_they_have() -> None:
    a = idle_holder()
    judged(a, 10, 9, 0)
    judged(a, 10, 9, IDLE_CONFIRMED_AFTER_NS)
    a.serves = frozenset()
    assert a.living(KEY) == ["b"]


# -- what the engine detects


def desk_of(holder: bool) -> Desk:
    """Make a desk with a schedule in a shard that is ours or not."""
    desk = Desk(schedule("@every 5s"))
    if not holder:
        desk.step(ShardsHeld(frozenset()))
    return desk


def test_a_denied_fire_is_known_with_its_shard_and_target() -> None:
    desk = desk_of(holder=True)
    desk.concluded(desk.in_flight(schedule("@every 5s"), 5), DENIED)
    denied = desk.engine.ownership.denied
    assert denied is not None
    assert (denied.shard, denied.reason) == (shard_of(SCHEDULE), f"{DENIED.description}: t.out")


def test_a_denied_look_is_known() -> None:
    desk = desk_of(holder=True)
    desk.at(4)
    desk.step(Unanswered(ReadContent(SCHEDULE, 1, None), WHY, denied=True))
    assert desk.engine.ownership.denied == (desk.now, shard_of(SCHEDULE), WHY)


def test_a_denied_removal_is_known_and_left_to_the_next_holder() -> None:
    message = schedule("@at 2026-01-01T00:00:05Z")
    desk = Desk(message)
    desk.concluded(desk.in_flight(message, 5), Stored(2))
    desk.step(PurgeConcluded(SCHEDULE, 1, WHY, denied=True))
    assert desk.engine.ownership.denied == (desk.now, shard_of(SCHEDULE), WHY)


@pytest.mark.parametrize("code", [10077, 10071])
def test_a_refusal_that_meets_everybody_is_not_our_own(code: int) -> None:
    desk = desk_of(holder=True)
    desk.concluded(desk.in_flight(schedule("@every 5s"), 5), Refused(400, code, "no"))
    assert desk.engine.ownership.denied is None


def test_a_schedule_that_its_holder_does_not_fire_is_noticed_after_a_while() -> None:
    desk = desk_of(holder=False)
    for seconds in (5.0, 5 + NEGLECT_LIMIT_NS / SECOND - 0.1):
        assert (desk.at(seconds).reads, desk.engine.ownership.neglected) == ([], {})
    assert desk.at(5 + NEGLECT_LIMIT_NS / SECOND).reads == [(SCHEDULE, 1)]
    desk.found(schedule("@every 5s"))
    assert desk.engine.ownership.neglected == {shard_of(SCHEDULE): START + 5 * SECOND}


def test_a_schedule_that_was_deleted_in_silence_is_not_held_against_its_holder() -> None:
    desk = desk_of(holder=False)
    desk.at(5)
    desk.at(5 + NEGLECT_LIMIT_NS / SECOND)
    desk.found(None, of=schedule("@every 5s"))
    assert (desk.engine.ownership.neglected, desk.is_held()) == ({}, False)


def test_where_a_look_has_no_answer_nobody_is_judged_and_it_is_looked_at_again() -> None:
    desk = desk_of(holder=False)
    desk.at(5)
    desk.at(5 + NEGLECT_LIMIT_NS / SECOND)
    desk.step(Unanswered(ReadContent(SCHEDULE, 1, None), "no answer"))
    assert desk.engine.ownership.neglected == {}
    assert desk.at(5 + 2 * NEGLECT_LIMIT_NS / SECOND).reads == [(SCHEDULE, 1)]


def test_one_schedule_of_each_shard_of_others_is_looked_at_at_a_time() -> None:
    subjects = [subject for subject in map("s.{}".format, range(1_000)) if shard_of(subject) == SHARD]
    desk = Desk(*(schedule("@every 5s", sequence, subject) for sequence, subject in enumerate(subjects, 1)))
    desk.step(ShardsHeld(frozenset()))
    desk.at(5)
    assert len(subjects) > 1
    assert desk.at(5 + NEGLECT_LIMIT_NS / SECOND).reads == [(subjects[0], 1)]
    desk.found(None, of=schedule("@every 5s", 1, subjects[0]))
    assert desk.at(5 + 2 * NEGLECT_LIMIT_NS / SECOND).reads == [(subjects[1], 2)]
    desk.found(schedule("@every 5s", 2, subjects[1]))
    assert desk.engine.ownership.neglected == {SHARD: START + 5 * SECOND}
    assert desk.at(5 + 3 * NEGLECT_LIMIT_NS / SECOND).reads == []


def test_what_was_due_long_ago_and_is_stored_is_not_held_against_its_holder() -> None:
    desk = desk_of(holder=False)
    for seconds in (5 + OTHER_HOLDER_LIMIT_NS / SECOND, 5 + 2 * OTHER_HOLDER_LIMIT_NS / SECOND):
        assert desk.at(seconds).reads == [(SCHEDULE, 1)]
        desk.found(schedule("@every 5s"))
    assert desk.engine.ownership.neglected == {}


def test_a_schedule_that_its_holder_fires_is_not_noticed() -> None:
    desk = desk_of(holder=False)
    desk.at(5)
    identity = f"nats-scheduler:1:{START + 5 * SECOND}:{SCHEDULE}"
    fired = message_on(
        "t.out", 2, Nats_Scheduler=SCHEDULE, Nats_Schedule_Next="2026-01-01T00:00:10Z", Nats_Msg_Id=identity
    )
    desk.read(fired)
    desk.at(9)
    assert desk.engine.ownership.neglected == {}
    assert desk.engine.ownership.last_fired[shard_of(SCHEDULE)] == START + 5 * SECOND


def test_a_schedule_that_is_removed_is_not_held_against_its_holder() -> None:
    desk = desk_of(holder=False)
    for seconds in (5, 9):
        desk.at(seconds)
    desk.found(schedule("@every 5s"))
    assert desk.engine.ownership.neglected
    desk.read(message_on(SCHEDULE, 2))
    assert desk.engine.ownership.neglected == {}


def test_where_fires_of_others_cannot_be_seen_nobody_is_judged_by_them() -> None:
    desk = Desk(schedule("@every 5s"), reads_all=False)
    desk.step(ShardsHeld(frozenset()))
    for seconds in (5, 9, 20):
        assert desk.at(seconds).reads == []
    assert desk.engine.ownership.neglected == {}
