"""Shards gained and lost: which instance fires, in every stage of a schedule, and what the others keep."""

from collections import Counter

import pytest

from nats_scheduler.engine.actions import WakeAt
from nats_scheduler.engine.events import (
    Ending,
    FireForged,
    FireRefused,
    FireUnknown,
    ScheduleAccepted,
    ScheduleEnded,
    ScheduleRejected,
)
from nats_scheduler.engine.fire import ReadContent
from nats_scheduler.engine.inputs import (
    CaughtUp,
    CheckpointLoaded,
    DuplicateRead,
    ExpiryConcluded,
    MessagesRead,
    Outcome,
    PurgeConcluded,
    Refused,
    RemovalRequested,
    ShardsHeld,
    Stored,
    Unanswered,
    Unknown,
)
from nats_scheduler.engine.sharing.holdings import MAX_CHECKED_PER_STEP, MAX_HANDOVERS_PER_STEP, MAX_UNSETTLED_PER_SHARD
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, SHARDS, shard_of
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule, stored_fire

NONE: frozenset[int] = frozenset()
EVERY = "@every 5s"
ONE, ONCE = schedule(EVERY), schedule("@at 2026-01-01T00:00:05Z")
FULL = Refused(503, 10077, "maximum messages exceeded")


def hold(desk: Desk, shards: frozenset[int]) -> None:
    """Set which shards are held."""
    desk.step(ShardsHeld(shards))


def watching(*messages: StoredMessage, **options: bool) -> Desk:
    """Let an engine that holds no shards read schedules."""
    desk = Desk(live=False, **options)
    desk.step(ShardsHeld(NONE), MessagesRead(messages), CaughtUp())
    return desk


def test_the_shard_of_a_subject_is_the_same_for_ever_and_subjects_are_spread_over_all() -> None:
    """Instances of two versions share a stream during an upgrade: these numbers may never change."""
    subjects = ("orders.one", "orders.two", "", "größe.µ", "odd.\udcff")
    assert [shard_of(subject) for subject in subjects] == [32, 55, 0, 45, 8]
    counts = Counter(shard_of(f"orders.{number}.remind") for number in range(6_400))
    assert (len(counts), max(counts.values()) < 160) == (SHARDS, True)


class TestWhatOthersHold:
    """A schedule of another holder is kept up to date, and nothing is done about it."""

    @pytest.mark.parametrize("message", [ONCE, ONE])
    def test_it_is_not_fired_and_looked_at_only_when_its_fire_is_late(self, message: StoredMessage) -> None:
        desk = watching(message)
        for second in (4.5, 5, 7.9):
            desk.at(second)
            assert (desk.reads, desk.fires, desk.purges) == ([], [], [])
        desk.at(8)
        assert (desk.reads, desk.fires, desk.purges) == ([(SCHEDULE, 1)], [], [])
        hourly = watching(schedule("@every 1h"), reads_all=False)
        assert hourly.at(3_629.9).reads == [], "where its fires cannot be read, it is looked at later"
        assert hourly.at(3_630.1).reads == [(SCHEDULE, 1)]

    def test_its_next_fire_moves_on_with_what_is_seen_and_its_last_one_is_removed_by_anyone(self) -> None:
        fire = Desk(ONE).in_flight(ONE, 5)
        desk = watching(ONE).at(5)
        desk.read(stored_fire(fire, 2, desk.now))
        assert desk.due == 10
        fire = Desk(ONCE).in_flight(ONCE, 5)
        desk = watching(ONCE)
        desk.step(RemovalRequested(SCHEDULE))
        assert desk.is_held(), "the server may refuse the request"
        desk.at(5).read(stored_fire(fire, 2, desk.now))
        assert desk.at(36).purges == [(SCHEDULE, 1)]
        desk.step(PurgeConcluded(SCHEDULE, 1))
        assert not desk.is_held()

    def test_it_ends_with_its_last_fire_if_its_holder_was_seen_to_purge_it_before_the_fire_was_received(self) -> None:
        fire = Desk(ONCE).in_flight(ONCE, 5)
        desk = watching(ONCE).at(5)
        desk.step(RemovalRequested(SCHEDULE, below=2))
        assert desk.is_held()
        desk.read(stored_fire(fire, 2, desk.now))
        assert (desk.is_held(), desk.purges) == (False, [])
        hold(desk, ALL_SHARDS)
        assert desk.purges == [(SCHEDULE, 1)], "the request of one that is gone may be lost"

    def test_it_is_looked_at_when_its_fire_stays_out_for_long(self) -> None:
        for found, again in ((ONCE, [(SCHEDULE, 1)]), (None, [])):
            desk = watching(ONCE).at(36)
            assert desk.reads == [(SCHEDULE, 1)]
            desk.found(found, of=ONCE)
            assert (desk.is_held(), desk.fires, desk.reported(ScheduleEnded)) == (found is not None, [], [])
            assert (desk.at(60).reads, desk.at(70).reads) == ([], again)
        desk = watching(ONCE).at(36)
        desk.step(Unanswered(ReadContent(SCHEDULE, 1, None), "no answer"))
        assert desk.at(50).reads == [], "one that failed is not repeated at once"

    def test_it_is_told_by_its_holder_alone(self) -> None:
        desk = watching(ONE)
        desk.read(schedule("@every soon", 2, "s.two"), schedule(EVERY, 3, "s.three"))
        assert (desk.reported(ScheduleRejected), desk.reported(ScheduleAccepted)) == ([], [])
        hold(desk, ALL_SHARDS)
        assert [event.schedule for event in desk.reported(ScheduleRejected)] == ["s.two"]

    def test_what_expired_in_its_shard_is_let_go_and_removed_by_its_holder(self) -> None:
        desk = watching(schedule("@every 1h", Nats_TTL="10s"), guard=False, removes_expired=True)
        assert (desk.at(11).removals, desk.is_held()) == ([], False)
        hold(desk, frozenset({shard_of(SCHEDULE)}))
        assert desk.removals == [1]
        desk.step(ExpiryConcluded(1, SCHEDULE))
        assert desk.at(20).removals == []


class TestAShardIsGained:
    """The schedules of a gained shard continue where the stream and the checkpoint say."""

    def test_what_is_overdue_fires_at_once(self) -> None:
        for message, seconds in ((ONE, 6), (ONCE, 6), (ONCE, 36)):  # at 36 s it is being looked at
            desk = watching(message).at(seconds)
            hold(desk, ALL_SHARDS)
            desk.found(message)
            assert desk.fire.fire_time == START + 5 * SECOND

    def test_only_its_own_schedules_are_fired(self) -> None:
        schedules = [schedule(EVERY, number, f"s.{number}") for number in range(1, 100)]
        desk = watching(*schedules)
        hold(desk, frozenset({3, 4}))
        expected = {one.subject for one in schedules if shard_of(one.subject) in (3, 4)}
        assert {subject for subject, _sequence in desk.at(5).reads} == expected

    def test_what_its_checkpoint_settled_does_not_fire_again(self) -> None:
        for now in (12, 1):  # it may be settled by a clock that is fast
            desk = watching(ONE).at(now)
            desk.step(CheckpointLoaded(START + 10 * SECOND, 1), ShardsHeld(ALL_SHARDS))
            assert desk.reads == []
            assert (desk.at(max(now, 4)).reads, desk.due) == ([], 15)
        desk = watching(ONE).at(7)
        others = ALL_SHARDS - {shard_of(SCHEDULE)}
        desk.step(CheckpointLoaded(START + 6 * SECOND, 1, shards=others), ShardsHeld(ALL_SHARDS))
        assert desk.reads == [(SCHEDULE, 1)], "the checkpoint of other shards says nothing"

    def test_a_removal_during_a_look_is_looked_at_again(self) -> None:
        desk = watching(ONCE, guard=False).at(36)
        hold(desk, ALL_SHARDS)
        desk.step(RemovalRequested(SCHEDULE))
        assert desk.reads == [(SCHEDULE, 1)]
        desk.found(ONCE)
        assert desk.fires == [], "the answer was asked for before the doubt arose"
        desk.found(None, of=ONCE)
        assert (desk.fires, desk.is_held()) == ([], False)

    def test_what_was_ready_before_others_held_it_does_not_fire_when_they_have_settled_it(self) -> None:
        desk = Desk(ONE).at(4.5)
        desk.found(ONE)
        hold(desk, NONE)
        desk.step(CheckpointLoaded(START + 5 * SECOND, 1), ShardsHeld(ALL_SHARDS))
        assert (desk.at(6).fires, desk.wake) == ([], 9)

    def test_many_that_are_overdue_change_hands_a_slice_at_a_time(self) -> None:
        """The checkpoint covers none of them before that."""
        schedules = [schedule(EVERY, number, f"s.{number}") for number in range(1, MAX_HANDOVERS_PER_STEP + 100)]
        desk = watching(*schedules).at(6)
        while desk.wake <= 6:
            desk.step()
        hold(desk, ALL_SHARDS)
        found = set(desk.reads)
        assert 0 < len(found) <= MAX_HANDOVERS_PER_STEP
        assert desk.engine.checkpoint(desk.now).through < START + 5 * SECOND
        while desk.asked(WakeAt) and desk.wake <= 6:
            desk.step()
            assert len(desk.reads) <= MAX_HANDOVERS_PER_STEP
            found.update(desk.reads)
        assert len(found) == len(schedules)

    def test_much_that_was_left_undone_is_done_a_slice_at_a_time(self) -> None:
        numbers = range(1, 2 * MAX_CHECKED_PER_STEP + 2)
        wrong = [schedule("@every soon", number, f"w.{number}") for number in numbers]
        twice = [schedule(EVERY, version + number, f"s.{number}") for version in (1_000, 9_000) for number in numbers]
        desk = watching(*wrong, *twice)
        hold(desk, ALL_SHARDS)
        reported, purges = desk.reported(ScheduleRejected), desk.purges
        for _ in range(10):
            desk.step()
            reported, purges = reported + desk.reported(ScheduleRejected), purges + desk.purges
            assert len(desk.reported(ScheduleRejected)) + len(desk.purges) <= MAX_CHECKED_PER_STEP
        assert [event.sequence for event in reported] == list(numbers)
        assert purges == [(f"s.{number}", 8_999 + number) for number in numbers]


def test_what_another_holder_asked_to_purge_is_purged_again_by_who_gains_its_shard() -> None:
    names = ("s.one", "s.two")
    messages = [schedule("@at 2026-01-01T00:00:05Z", number, name) for number, name in enumerate(names, 1)]
    desk = watching(*messages)
    for number, message in enumerate(messages):
        desk.now = START + 5 * SECOND
        desk.read(stored_fire(Desk(message).in_flight(message, 5), 10 + number, desk.now))
        desk.step(RemovalRequested(message.subject))
        assert not desk.is_held(message.subject)
    purges = []
    for shards in (frozenset({shard_of("s.two")}), ALL_SHARDS):
        hold(desk, shards)
        purges += desk.purges
    assert purges == [("s.two", 2), ("s.one", 1)]


def test_what_was_fired_and_not_purged_by_its_holder_ends_as_fired() -> None:
    desk = watching(ONCE)
    desk.now = START + 5 * SECOND
    desk.read(stored_fire(Desk(ONCE).in_flight(ONCE, 5), 2, desk.now))
    assert (desk.purges, desk.endings) == ([], [])
    hold(desk, ALL_SHARDS)
    assert desk.purges == [(SCHEDULE, 1)]
    desk.step(PurgeConcluded(SCHEDULE, 1))
    assert desk.endings == [Ending.FIRED]


class TestAShardIsLost:
    """No fire of a lost shard begins, whatever the stage of its schedule."""

    @pytest.mark.parametrize("stage", ["reading", "ready", "content kept", "refused", "unknown"])
    def test_no_fire_begins(self, stage: str) -> None:
        desk = Desk(ONE)
        if stage in ("reading", "ready"):
            assert desk.at(4.5).reads == [(SCHEDULE, 1)]
            if stage == "ready":
                desk.found(ONE)
        else:
            outcomes: dict[str, Outcome] = {"content kept": Stored(2), "refused": FULL, "unknown": Unknown("cut")}
            desk.concluded(desk.in_flight(ONE, 5), outcomes[stage])
        hold(desk, NONE)
        desk.found(ONE)
        assert desk.at(6).fires == []
        assert (desk.at(9).fires, desk.at(11).fires) == ([], [])

    def test_flying_and_not_repeated_unless_it_is_held_again(self) -> None:
        for outcome in (Unknown("cut"), FULL):
            desk = Desk(ONE)
            fire = desk.in_flight(ONE, 5)
            hold(desk, NONE)
            desk.concluded(fire, outcome)
            assert desk.engine.is_idle
            told = desk.reported(FireRefused), desk.reported(FireUnknown)
            assert told == ([], []), "the next holder reports its own"
            assert (desk.reads, desk.at(9).fires, desk.reads) == ([], [], [])
        desk = Desk(ONE)
        fire = desk.in_flight(ONE, 5)
        hold(desk, NONE)
        hold(desk, ALL_SHARDS)
        assert desk.fires == [], "one fire at a time"
        desk.concluded(fire, Unknown("cut"))
        assert desk.at(6).fires == [fire]

    def test_flying_and_forged(self) -> None:
        desk = Desk(ONE)
        fire = desk.in_flight(ONE, 5)
        desk.concluded(fire, Stored(7, duplicate=True))
        hold(desk, NONE)
        forgery = stored_fire(fire, 7, desk.now)._replace(subject="elsewhere", body=b"forged")
        desk.step(DuplicateRead(fire, 7, forgery, desk.now))
        assert [event.subject for event in desk.reported(FireForged)] == ["elsewhere"]
        assert (desk.fires, desk.at(7).fires) == ([], []), "the next holder meets the forgery itself"

    def test_flying_and_stored_or_purging(self) -> None:
        desk = Desk(ONE)
        fire = desk.in_flight(ONE, 5)
        hold(desk, NONE)
        desk.concluded(fire, Stored(2))
        assert desk.at(11).fires == []
        hold(desk, ALL_SHARDS)
        desk.found(ONE)
        assert desk.fire.fire_time == START + 10 * SECOND
        once = Desk(ONCE)
        once.concluded(once.in_flight(ONCE, 5), Stored(2))
        hold(once, NONE)
        once.step(PurgeConcluded(SCHEDULE, 1))
        assert not once.is_held()


def test_the_checkpoint_speaks_for_what_is_still_held() -> None:
    desk = Desk(ONE)
    desk.in_flight(ONE, 5)
    mine = ALL_SHARDS - {shard_of(SCHEDULE)}
    hold(desk, mine)
    settled = desk.at(8).engine.checkpoint(desk.now)
    assert (settled.through, settled.shards) == (desk.now, mine)
    refused = Desk(ONE, schedule("@every soon", 2, "s.two"))
    refused.concluded(refused.in_flight(ONE, 5), FULL)
    assert refused.engine.checkpoint(refused.now).unsettled == {1, 2}
    hold(refused, NONE)
    assert refused.engine.checkpoint(refused.now).unsettled == frozenset()


@pytest.mark.parametrize(
    ("missed", "room"),
    [("once", MAX_UNSETTLED_PER_SHARD), ("all", MAX_UNSETTLED_PER_SHARD // 3)],
    ids=["the sequence alone", "with its fire time"],
)
def test_what_is_refused_and_finds_no_room_holds_it_back(missed: str, room: int) -> None:
    """Otherwise the next holder would consider it settled, and purge it unfired."""
    subjects = [name for name in map("s.{}".format, range(10_000)) if shard_of(name) == 0]
    messages = [
        schedule(f"@at 2026-01-01T00:00:{10 + number:02}Z", number + 1, subject, Nats_Schedule_X_Missed=missed)
        for number, subject in enumerate(subjects[: MAX_UNSETTLED_PER_SHARD + 5])
    ]
    desk = Desk(*messages)
    hold(desk, frozenset({0}))
    for number, message in enumerate(messages):
        desk.concluded(desk.in_flight(message, 10 + number), FULL)
    desk.read(schedule("@every soon", 1_000, subjects[-1]))
    settled = desk.engine.checkpoint(desk.now)
    assert settled.unsettled == set(range(1, room + 1))
    assert settled.owed == {number: START + (9 + number) * SECOND for number in range(1, room + 1) if missed == "all"}
    assert settled.through == START + (10 + room) * SECOND - 1
    later = Desk(live=False)
    later.now = desk.now
    later.step(settled, MessagesRead(messages), CaughtUp())
    assert (later.purges, len(later.reads)) == ([], len(messages))


def test_streams_are_ordered_by_their_next_fires_whichever_instance_holds_them() -> None:
    messages = [[schedule(pattern)] for pattern in ("@every 5s", "@every 20s", "@every 1h")]
    first, second, third, empty = (watching(*held).at(19.5) for held in (*messages, []))
    ordered = sorted((empty, third, second, first), key=lambda desk: desk.engine.urgency)
    assert ordered == [first, second, third, empty]
