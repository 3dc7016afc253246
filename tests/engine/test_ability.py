"""Alive is not able: an instance that cannot hold, or does not fire, gets no shards while another one can hold them."""

from nats_scheduler.engine.fire import ReadContent
from nats_scheduler.engine.firing.course import NEGLECT_LIMIT_NS
from nats_scheduler.engine.inputs import NOT_PERMITTED, PurgeConcluded, Refused, ShardsHeld, Stored, Unanswered
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
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, message_on, schedule, stored_fire
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


def test_one_that_can_takes_everything_from_one_that_cannot() -> None:
    a, b = instance("a", "b"), instance("b", "a")
    for one in (a, b):
        one.recorded(KEY, Record(OURS, 1))
    assert a.ability.denied(KEY, SHARD, WHY, 0)
    assert write(a, 2) == THEIRS, "it hands over what it holds"
    receives(b, "a", 0, unable=(KEY,))
    assert write(b, 2) == THEIRS, "and what another one holds is claimed"


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


def test_one_that_could_for_a_moment_only_waits_longer_than_before_or_until_there_is_a_new_connection() -> None:
    ability = Ability()
    ability.denied(KEY, SHARD, WHY, 0)
    able_at = FIRST_TRIAL_WAIT_NS + TRIAL_DURATION_NS
    assert ability.passed(able_at) == [KEY]
    ability.denied(KEY, SHARD, WHY, able_at)
    assert not ability.on_trial(KEY, able_at + 2 * FIRST_TRIAL_WAIT_NS - 1)
    assert ability.on_trial(KEY, able_at + 2 * FIRST_TRIAL_WAIT_NS)
    ability.reconnected(able_at + 1)
    assert ability.on_trial(KEY, able_at + 1) == {SHARD}


def test_the_dead_are_not_remembered_as_unable() -> None:
    b = instance("b", "a")
    receives(b, "a", 0, unable=(KEY,))
    b.left("a")
    receives(b, "a", 0)
    assert sorted(b.living(KEY)) == ["a", "b"]
    receives(b, "a", 0, unable=(KEY,))
    assert not b.ability.is_flawless
    b.left("a")
    assert b.ability.is_flawless, "the last one that is unable is gone"


def idle_holder() -> Leases:
    """Make an instance in whose view another one holds all shards and fires nothing."""
    a = instance("a", "b")
    a.recorded(KEY, Record(THEIRS, 1))
    return a


def judged(leases: Leases, overdue: int, fired: int, now: int) -> list[str]:
    """Judge the holders by one overdue fire in one shard, and one that was read back in another."""
    last = [0] * SHARDS
    last[SHARD + 1] = fired
    receives(leases, "b", now)
    return leases.relieve_idle(KEY, {SHARD: overdue}, last, now)


def relieving() -> Leases:
    """Make an instance that has just relieved the idle holder."""
    a = idle_holder()
    assert judged(a, 10, 9, 0) == []
    assert judged(a, 10, 9, IDLE_CONFIRMED_AFTER_NS) == ["b"]
    return a


def test_a_holder_none_of_whose_fires_is_seen_is_relieved_once_that_is_sure() -> None:
    assert write(relieving(), 2, IDLE_CONFIRMED_AFTER_NS) == OURS
    fires = idle_holder()
    assert judged(fires, 10, 9, 0) == []
    for turn, fired in enumerate((10, 11), 1):
        assert judged(fires, 10, fired, turn * IDLE_CONFIRMED_AFTER_NS) == [], "of that time or later"


def test_what_an_idle_holder_holds_by_a_record_that_others_write_is_fired_all_the_same() -> None:
    a = relieving()
    a.serves = frozenset({KEY})
    assert a.held(KEY) == frozenset()
    assert a.to_fire(KEY, IDLE_CONFIRMED_AFTER_NS) == frozenset(range(SHARDS))
    a.serves = frozenset()
    assert a.living(KEY) == ["b"], "where we do not serve, it keeps what it has"


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
    a = relieving()
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


def test_what_an_idle_holder_took_back_is_claimed_when_it_does_not_live_or_serve_or_is_relieved_again() -> None:
    a, now = relieving(), IDLE_CONFIRMED_AFTER_NS
    assert write(a, 2, now) == OURS
    a.recorded(KEY, Record(THEIRS, 3))
    assert a.change(KEY, now) is None
    again = now + FIRST_RELIEF_NS + IDLE_CONFIRMED_AFTER_NS
    for time in (again, again + IDLE_CONFIRMED_AFTER_NS):
        judged(a, 10, 9, time)
    assert write(a, 4, again + IDLE_CONFIRMED_AFTER_NS) == OURS
    gone = relieving()
    assert write(gone, 2, now) == OURS
    gone.recorded(KEY, Record(THEIRS, 3))
    gone.received("b", frozenset(), now, now)
    assert gone.change(KEY, now) == OURS, "it does not serve the stream"
    gone.left("b")
    assert gone.change(KEY, now) == OURS


EVERY_5S = schedule("@every 5s")
NEGLECT = NEGLECT_LIMIT_NS / SECOND


def desk_of_another_holder(*messages: StoredMessage, **more: bool) -> Desk:
    desk = Desk(*messages or [EVERY_5S], **more)
    desk.step(ShardsHeld(frozenset()))
    return desk


def test_what_is_denied_is_known_with_its_shard_and_reason() -> None:
    fires, looks, once = Desk(EVERY_5S), Desk(EVERY_5S), schedule("@at 2026-01-01T00:00:05Z")
    fires.concluded(fires.in_flight(EVERY_5S, 5), DENIED)
    looks.at(4).step(Unanswered(ReadContent(SCHEDULE, 1, None), WHY, denied=True))
    removes = Desk(once)
    removes.concluded(removes.in_flight(once, 5), Stored(2))
    removes.step(PurgeConcluded(SCHEDULE, 1, WHY, denied=True))
    shard = shard_of(SCHEDULE)
    assert fires.engine.ownership.denied == (fires.now, shard, f"{DENIED.description}: t.out")
    assert looks.engine.ownership.denied == (looks.now, shard, WHY)
    assert removes.engine.ownership.denied == (removes.now, shard, WHY), "the next holder may remove it"
    for code in (10077, 10071):
        refused = Desk(EVERY_5S)
        refused.concluded(refused.in_flight(EVERY_5S, 5), Refused(400, code, "no"))
        assert refused.engine.ownership.denied is None, "what meets everybody is not our own"


def test_a_schedule_that_its_holder_does_not_fire_is_noticed_after_a_while() -> None:
    desk = desk_of_another_holder()
    for seconds in (5.0, 5 + NEGLECT - 0.1):
        assert (desk.at(seconds).reads, desk.engine.ownership.neglected) == ([], {})
    assert desk.at(5 + NEGLECT).reads == [(SCHEDULE, 1)]
    desk.found(EVERY_5S)
    assert desk.engine.ownership.neglected == {shard_of(SCHEDULE): START + 5 * SECOND}
    desk.read(message_on(SCHEDULE, 2))
    assert desk.engine.ownership.neglected == {}, "what is removed is not held against it"


def test_where_a_look_finds_nothing_or_has_no_answer_nobody_is_judged() -> None:
    gone, unanswered = desk_of_another_holder(), desk_of_another_holder()
    for desk in (gone, unanswered):
        desk.at(5).at(5 + NEGLECT)
    gone.found(None, of=EVERY_5S)
    assert (gone.engine.ownership.neglected, gone.is_held()) == ({}, False)
    unanswered.step(Unanswered(ReadContent(SCHEDULE, 1, None), "no answer"))
    assert unanswered.engine.ownership.neglected == {}
    assert unanswered.at(5 + 2 * NEGLECT).reads == [(SCHEDULE, 1)], "it is looked at again"


def test_one_schedule_of_each_shard_of_others_is_looked_at_at_a_time() -> None:
    subjects = [subject for subject in map("s.{}".format, range(1_000)) if shard_of(subject) == SHARD][:20]
    messages = [schedule("@every 5s", sequence, subject) for sequence, subject in enumerate(subjects, 1)]
    desk = desk_of_another_holder(*messages)
    desk.at(5)
    assert desk.at(5 + NEGLECT).reads == [(subjects[0], 1)]
    desk.found(None, of=messages[0])
    assert desk.at(5 + 2 * NEGLECT).reads == [(subjects[1], 2)]
    desk.found(messages[1])
    assert desk.engine.ownership.neglected == {SHARD: START + 5 * SECOND}
    assert desk.at(5 + 3 * NEGLECT).reads == []


def test_what_was_due_long_ago_and_is_stored_is_not_held_against_its_holder() -> None:
    desk = desk_of_another_holder()
    for seconds in (5 + OTHER_HOLDER_LIMIT_NS / SECOND, 5 + 2 * OTHER_HOLDER_LIMIT_NS / SECOND):
        assert desk.at(seconds).reads == [(SCHEDULE, 1)]
        desk.found(EVERY_5S)
    assert desk.engine.ownership.neglected == {}


def test_a_schedule_that_its_holder_fires_is_not_noticed() -> None:
    desk = desk_of_another_holder()
    desk.at(5).read(stored_fire(Desk(EVERY_5S).in_flight(EVERY_5S, 5), 2, desk.now))
    assert desk.at(9).reads == []
    assert desk.engine.ownership.neglected == {}
    assert desk.engine.ownership.last_fired[shard_of(SCHEDULE)] == START + 5 * SECOND


def test_a_holder_that_fired_another_schedule_of_that_shard_for_that_time_is_not_suspected() -> None:
    subjects = [subject for subject in map("s.{}".format, range(1_000)) if shard_of(subject) == SHARD][:2]
    fired, waiting = (schedule("@every 5s", sequence, subject) for sequence, subject in enumerate(subjects, 1))
    desk = desk_of_another_holder(fired, waiting)
    desk.at(5).read(stored_fire(Desk(fired).in_flight(fired, 5), 3, desk.now))
    assert desk.at(5 + NEGLECT).reads == []


def test_where_fires_of_others_cannot_be_seen_nobody_is_judged_by_them() -> None:
    desk = desk_of_another_holder(reads_all=False)
    for seconds in (5, 9, 20):
        assert desk.at(seconds).reads == []
    assert desk.engine.ownership.neglected == {}
