"""Changes of the owner: which instance fires, in every stage of a schedule, and what a takeover continues with."""

import pytest

from nats_scheduler.engine.actions import WakeAt
from nats_scheduler.engine.events import FireRefused, FireUnknown, ScheduleAccepted, ScheduleRejected
from nats_scheduler.engine.holding import purges
from nats_scheduler.engine.inputs import (
    CaughtUp,
    Checkpoint,
    MessagesRead,
    OwnershipChanged,
    PurgeConcluded,
    Refused,
    RemovalRequested,
    Stored,
    Unknown,
)
from nats_scheduler.engine.ownership import takeover
from nats_scheduler.engine.stream import MAX_WAKES_PER_STEP
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, plain, schedule, standing_by, stored_fire

EVERY = "@every 5s"
ONE, ONCE = schedule(EVERY), schedule("@at 2026-01-01T00:00:05Z")
FULL = Refused(503, 10077, "maximum messages exceeded")


def own(desk: Desk, checkpoint: Checkpoint | None = None) -> None:
    """Have an engine own its stream from now on."""
    desk.step(OwnershipChanged(True, checkpoint))


def stand_by(desk: Desk) -> None:
    """Have an engine stand by from now on."""
    desk.step(OwnershipChanged(False))


def many(count: int, pattern: str = EVERY) -> list[StoredMessage]:
    """Make schedules on subjects of their own."""
    return [schedule(pattern, number, f"s.{number}") for number in range(1, count + 1)]


class TestAStandby:
    """A standby keeps a schedule up to date, and does nothing about it."""

    def test_it_is_removed_after_its_last_fire(self) -> None:
        fire = Desk(ONCE).in_flight(ONCE, 5)
        desk = standing_by(ONCE)
        desk.step(RemovalRequested(SCHEDULE))
        assert desk.is_held(), "the server may refuse the request"
        desk.at(5).read(stored_fire(fire, 2, desk.now))
        assert desk.at(36).purges == [(SCHEDULE, 1)]
        desk.step(PurgeConcluded(SCHEDULE, 1))
        assert not desk.is_held()

    def test_it_ends_with_a_last_fire_that_is_read_after_its_purge(self) -> None:
        fire = Desk(ONCE).in_flight(ONCE, 5)
        desk = standing_by(ONCE).at(5)
        desk.step(RemovalRequested(SCHEDULE, below=2))
        assert desk.is_held()
        desk.read(stored_fire(fire, 2, desk.now))
        assert (desk.is_held(), desk.purges) == (False, [])
        own(desk)
        assert desk.purges == [(SCHEDULE, 1)], "the request of one that is gone may be lost"

    def test_it_is_reported_by_the_owner_alone(self) -> None:
        desk = standing_by(ONE)
        desk.read(schedule("@every soon", 2, "s.two"), schedule(EVERY, 3, "s.three"))
        assert (desk.reported(ScheduleRejected), desk.reported(ScheduleAccepted)) == ([], [])
        own(desk)
        assert [event.schedule for event in desk.reported(ScheduleRejected)] == ["s.two"]


class TestATakeover:
    """The schedules continue where the stream and the checkpoint say."""

    def test_what_is_overdue_fires_at_once(self) -> None:
        for message, seconds in ((ONE, 6), (ONCE, 6), (ONCE, 36)):  # at 36 s it is being looked at
            desk = standing_by(message).at(seconds)
            own(desk)
            desk.found(message)
            assert desk.fire.fire_time == START + 5 * SECOND

    def test_what_the_checkpoint_settled_does_not_fire_again(self) -> None:
        for now in (12, 1):  # it may be settled by a clock that is fast
            desk = standing_by(ONE).at(now)
            own(desk, Checkpoint(START + 10 * SECOND, 1))
            assert desk.reads == []
            assert (desk.at(max(now, 4)).reads, desk.due) == ([], 15)
        desk = standing_by(ONE).at(7)
        own(desk)
        assert desk.reads == [(SCHEDULE, 1)], "without one nothing is settled"

    def test_many_that_are_set_aside_are_taken_over_some_at_a_time(self) -> None:
        """The checkpoint covers none of them before that."""
        schedules = many(MAX_WAKES_PER_STEP + 100)
        desk = standing_by(*schedules).at(9)
        found = set(desk.reads)
        while desk.wake <= 9:
            desk.step()
            found.update(desk.reads)
        assert len(found) == 1
        own(desk)
        assert desk.engine.checkpoint(desk.now).through < START + 5 * SECOND
        while True:
            assert len(desk.reads) <= MAX_WAKES_PER_STEP
            found.update(desk.reads)
            if not (desk.asked(WakeAt) and desk.wake <= 9):
                break
            desk.step()
        assert len(found) == len(schedules)

    def test_old_versions_are_purged_only_as_long_as_it_is_the_owner(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(takeover, "MAX_CHECKED_PER_STEP", 5)
        newer = [one._replace(sequence=one.sequence + 100) for one in many(20, "@every 4h")]
        desk = standing_by(*many(20, "@every 3h"), *newer)
        own(desk)
        purged = list(desk.purges)
        stand_by(desk)
        assert (0 < len(purged) < 20, desk.purges, desk.at(1).purges) == (True, [], [])
        own(desk)
        while desk.purges:
            purged += desk.purges
            desk.step()
        assert sorted(purged) == sorted((one.subject, one.sequence - 1) for one in newer)


class TestTheStreamIsLost:
    """No fire begins once another instance owns the stream, whatever the stage of its schedule."""

    @pytest.mark.parametrize("stage", ["reading", "ready", "content kept", "refused"])
    def test_no_fire_begins(self, stage: str) -> None:
        desk = Desk(ONE)
        if stage in ("reading", "ready"):
            assert desk.at(4.5).reads == [(SCHEDULE, 1)]
            if stage == "ready":
                desk.found(ONE)
        else:
            desk.concluded(desk.in_flight(ONE, 5), FULL if stage == "refused" else Stored(2))
        stand_by(desk)
        desk.found(ONE)
        assert desk.at(6).fires == []
        assert (desk.at(9).fires, desk.at(11).fires) == ([], [])

    def test_in_flight_and_not_repeated_unless_it_is_the_owner_again(self) -> None:
        for outcome in (Unknown("cut"), FULL):
            desk = Desk(ONE)
            fire = desk.in_flight(ONE, 5)
            stand_by(desk)
            desk.concluded(fire, outcome)
            assert desk.engine.is_idle
            told = desk.reported(FireRefused), desk.reported(FireUnknown)
            assert told == ([], []), "the next owner reports its own"
            assert (desk.reads, desk.at(9).fires, desk.reads) == ([], [], [])
        desk = Desk(ONE)
        fire = desk.in_flight(ONE, 5)
        stand_by(desk)
        own(desk)
        assert desk.fires == [], "one fire at a time"
        desk.concluded(fire, Unknown("cut"))
        assert desk.at(6).fires == [fire]


def test_a_checkpoint_says_when_the_last_read_message_was_stored() -> None:
    """What was stored later is not settled by it, whatever its sequence."""
    desk = Desk(ONE)
    assert (desk.engine.checkpoint(desk.now).sequence, desk.engine.checkpoint(desk.now).stored_by) == (1, ONE.stored_at)
    desk.read(plain("s.other", 2, stored_at=ONE.stored_at + SECOND))
    assert desk.engine.checkpoint(desk.now).stored_by == ONE.stored_at + SECOND
    assert Desk().engine.checkpoint(START).stored_by == 0, "nothing is stored"


def test_rejected_and_refused_schedules_are_no_part_of_a_checkpoint() -> None:
    refused = Desk(ONE, schedule("@every soon", 2, "s.two"))
    refused.concluded(refused.in_flight(ONE, 5), FULL)
    assert refused.engine.checkpoint(refused.now).unsettled == {1, 2}
    stand_by(refused)
    assert refused.engine.checkpoint(refused.now).unsettled == frozenset(), "the next owner names its own"


@pytest.mark.parametrize(("missed", "room"), [("once", 30), ("all", 10)])
def test_what_is_refused_and_finds_no_room_holds_the_checkpoint_back(
    missed: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the next owner would consider it settled, and purge it unfired."""
    monkeypatch.setattr(takeover, "MAX_UNSETTLED", 30)
    messages = [
        schedule(
            f"@at {format_rfc3339(START + (9 + number) * SECOND)}", number, f"s.{number}", Nats_Schedule_X_Missed=missed
        )
        for number in range(1, room + 6)
    ]
    desk = Desk(*messages)
    for number, message in enumerate(messages, 10):
        desk.concluded(desk.in_flight(message, number), FULL)
    desk.read(schedule("@every soon", 10_000, "s.more"))
    settled = desk.engine.checkpoint(desk.now)
    assert settled.unsettled == set(range(1, room + 1))
    assert settled.owed == {number: START + (9 + number) * SECOND for number in range(1, room + 1) if missed == "all"}
    assert settled.through == START + (10 + room) * SECOND - 1
    later = Desk(live=False)
    later.now = desk.now
    later.step(OwnershipChanged(True, settled), MessagesRead(messages), CaughtUp())
    reads = list(later.reads)
    while later.asked(WakeAt) and later.asked(WakeAt)[-1].instant <= later.now:
        later.step()
        reads += later.reads
        assert later.purges == []
    assert len(reads) == len(messages)


def test_a_checkpoint_names_a_bounded_number_of_exceptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rejected schedules beyond that count as settled: they are few, or somebody stores many."""
    monkeypatch.setattr(takeover, "MAX_UNSETTLED", 30)
    desk = Desk(*(schedule("@every soon", number, f"w.{number}") for number in range(1, 40)), ONE)
    assert len(desk.engine.checkpoint(desk.now).unsettled) == 30
    desk.concluded(desk.in_flight(ONE, 5), FULL)
    assert 1 in desk.engine.checkpoint(desk.now).unsettled, "refused fires come first"


@pytest.mark.parametrize("is_joint", [False, True])
def test_the_purges_that_a_takeover_repeats_are_the_last_ones(is_joint: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purges, "MAX_REQUESTED_BY_OWNER", 20)
    count = 30
    messages = many(count, "@at 2026-01-01T00:00:05Z")
    desk = standing_by(*messages).at(5)
    desk.read(*(stored_fire(Desk(one).in_flight(one, 5), count + one.sequence, desk.now) for one in messages))
    alone = [RemovalRequested(one.subject, below=one.sequence + 1) for one in messages]
    for request in [RemovalRequested("s.*", below=count + 1)] if is_joint else alone:
        desk.step(request)
    assert not len(desk.engine.held)
    own(desk)
    repeated = list(desk.purges)
    while desk.asked(WakeAt) and desk.wake <= 5:
        desk.step()
        repeated += desk.purges
    assert repeated == [(one.subject, one.sequence) for one in messages[10:]]


def test_streams_are_ordered_by_their_next_fires_whoever_owns_them() -> None:
    messages = [[schedule(pattern)] for pattern in ("@every 5s", "@every 20s", "@every 1h")]
    first, second, third, empty = (standing_by(*held).at(19.5) for held in (*messages, []))
    ordered = sorted((empty, third, second, first), key=lambda desk: desk.engine.urgency)
    assert ordered == [first, second, third, empty]
