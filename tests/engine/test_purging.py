"""A schedule that is done is purged, and does not fire again while, or if, it cannot be."""

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.events import Ending, PurgeFailed, ScheduleEnded
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    ContentRead,
    PublishConcluded,
    PurgeConcluded,
    SchedulesPurged,
    Stored,
    Version,
)
from nats_scheduler.engine.removing.purges import PURGED_KEPT_NS
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule

AT_5S = "@at 2026-01-01T00:00:05Z"


def fired() -> Desk:
    """Return a desk on which a delayed message has just fired."""
    message = schedule(AT_5S)
    desk = Desk(message)
    desk.concluded(desk.in_flight(message, 5), Stored(2))
    return desk


def test_it_is_removed_after_its_fire_was_stored_and_not_before() -> None:
    message = schedule(AT_5S)
    desk = Desk(message)
    fire = desk.in_flight(message, 5)
    assert desk.purges == []
    desk.concluded(fire, Stored(2))
    assert desk.asked(PurgeSchedule) == [PurgeSchedule(SCHEDULE, 1, None, Version(1, START))]
    desk.step(PurgeConcluded("s.one", 1))
    assert desk.endings == [Ending.FIRED]
    assert not desk.is_held()


def test_schedules_that_were_purged_together_end_together_and_none_that_was_replaced() -> None:
    messages = [schedule(AT_5S, number, f"s.{number}") for number in (1, 2, 3)]
    desk = Desk(*messages)
    desk.at(5)
    for message in messages:
        desk.found(message)
        desk.concluded(desk.fire, Stored(10 + message.sequence))
    desk.read(schedule("@at 2026-01-01T01:00:00Z", 20, "s.2"))
    desk.step(SchedulesPurged(["s.1", "s.2", "s.3", "s.4"], [1, 2, 3, 4]))
    assert [event.schedule for event in desk.reported(ScheduleEnded)] == ["s.1", "s.3"]
    assert [held.sequence for held in desk.engine.held] == [20]


def test_a_failed_purge_is_repeated_and_the_schedule_stays_silent() -> None:
    desk = fired()
    desk.step(PurgeConcluded("s.one", 1, "no answer"))
    assert [(event.reason, event.refused) for event in desk.reported(PurgeFailed)] == [("no answer", False)]
    assert desk.wake == 5.05
    desk.at(5.05)
    assert (desk.purges, desk.fires, desk.reads) == ([("s.one", 1)], [], [])


def test_a_refused_purge_is_not_repeated_and_the_schedule_stays_silent() -> None:
    desk = fired()
    desk.step(PurgeConcluded("s.one", 1, "purge is denied (server code 10110)", refused=True))
    assert [event.refused for event in desk.reported(PurgeFailed)] == [True]
    desk.read(schedule(AT_5S))
    desk.at(3600)
    assert (desk.purges, desk.fires, desk.reads) == ([], [], [])
    assert desk.is_held()
    assert desk.engine.is_idle


def test_after_a_refused_purge_a_replacement_is_a_new_schedule() -> None:
    desk = fired()
    desk.step(PurgeConcluded("s.one", 1, "purge is denied (server code 10110)", refused=True))
    desk.read(schedule(AT_5S, 3, stored_at=START + 5 * SECOND))
    assert desk.reads == [("s.one", 3)]


def test_a_purge_that_concludes_after_a_replacement_does_not_end_that() -> None:
    desk = fired()
    desk.read(schedule("@every 5s", 3))
    desk.step(PurgeConcluded("s.one", 1))
    assert desk.is_held()
    assert desk.reported(ScheduleEnded) == []


def test_older_versions_that_cannot_be_removed_are_reported() -> None:
    desk = Desk(schedule("@every 5s"))
    desk.read(schedule("@every 5s", 2))
    assert desk.purges == [("s.one", 1)]
    desk.step(PurgeConcluded("s.one", 1, "no answer"))
    assert [event.through for event in desk.reported(PurgeFailed)] == [1]
    assert desk.is_held()
    assert desk.engine.is_idle


def test_a_version_that_is_told_after_a_newer_one_was_found_is_removed_too() -> None:
    first, newest = schedule(AT_5S), schedule("@every 1h", 5)
    desk = Desk(first)
    desk.at(4)
    desk.found(newest, of=first)
    assert desk.purges == [("s.one", 4)]
    desk.read(schedule("@every 1h", 3))
    assert desk.is_held()


def test_a_version_that_is_told_only_after_the_one_that_replaced_it_is_removed() -> None:
    desk = Desk(schedule(AT_5S, 3))
    desk.read(schedule(AT_5S, 2))
    assert desk.asked(PurgeSchedule) == [PurgeSchedule(SCHEDULE, 2, None, Version(2, START))]
    assert desk.reads == []


def test_older_versions_that_could_not_be_removed_are_tried_again_until_they_are_gone() -> None:
    desk = Desk(schedule("@every 1h"))
    desk.read(schedule("@every 1h", 2))
    desk.step(PurgeConcluded("s.one", 1, "no answer"))
    assert desk.wake == 5
    assert desk.at(4).purges == []
    assert desk.at(5).purges == [("s.one", 1)]
    desk.step(PurgeConcluded("s.one", 1))
    assert desk.at(60).purges == []


def test_the_version_that_is_known_is_named_again_when_it_is_tried_again() -> None:
    desk = Desk(schedule("@every 1h"))
    desk.read(schedule("@every 1h", 2))
    order = PurgeSchedule(SCHEDULE, 1, None, Version(1, START))
    assert desk.asked(PurgeSchedule) == [order]
    desk.step(PurgeConcluded(SCHEDULE, 1, "no answer", known=order.known))
    assert desk.at(5).asked(PurgeSchedule) == [order]


def test_older_versions_that_could_not_be_removed_wait_for_contact() -> None:
    desk = Desk(schedule("@every 1h"))
    desk.read(schedule("@every 1h", 2))
    desk.step(ContactLost("cut"), PurgeConcluded("s.one", 1, "cut"))
    assert desk.at(60).purges == []
    desk.step(CaughtUp())
    assert desk.purges == [("s.one", 1)]


def test_older_versions_that_the_server_will_not_remove_are_left_alone() -> None:
    desk = Desk(schedule("@every 1h"))
    desk.read(schedule("@every 1h", 2))
    desk.step(PurgeConcluded("s.one", 1, "purge is denied (server code 10110)", refused=True))
    assert desk.at(60).purges == []


def test_the_schedules_of_a_herd_are_removed_after_its_fires() -> None:
    """The server purges more slowly than it stores, so a purge between two fires would make the second late."""
    messages = [schedule(AT_5S, number, f"s.{number}") for number in range(1, 101)]
    desk = Desk(*messages)
    desk.at(4)
    desk.step(*(ContentRead(message.subject, message.sequence, message, None) for message in messages))
    fires = desk.at(5).fires
    assert len(fires) == 100
    desk.step(*(PublishConcluded(fire, Stored(1_000)) for fire in fires[:30]))
    assert desk.purges == []
    desk.step(*(PublishConcluded(fire, Stored(1_000)) for fire in fires[30:]))
    assert sorted(sequence for _subject, sequence in desk.purges) == list(range(1, 101))


# -- servers that lose their purges in a crash -----------------------------------------------------------------------


def purged_desk(*, guard: bool) -> Desk:
    """Make a desk on which one schedule has fired and was purged."""
    message = schedule(AT_5S)
    desk = Desk(message, guard=guard)
    desk.at(4.96)
    desk.found(message)
    desk.concluded(desk.at(5).fire, Stored(2))
    desk.step(PurgeConcluded(SCHEDULE, 1))
    assert not desk.is_held()
    return desk


def reconnected(desk: Desk) -> list[PurgeSchedule]:
    desk.step(ContactLost("killed"))
    desk.step(CaughtUp())
    return desk.asked(PurgeSchedule)


def test_what_was_removed_lately_is_removed_again_if_it_came_back_with_its_server() -> None:
    desk = purged_desk(guard=False)
    assert reconnected(desk) == [PurgeSchedule(SCHEDULE, 1, START, Version(1, START))]
    desk.step(PurgeConcluded(SCHEDULE, 1, "cut"))
    assert desk.at(60).purges == [], "it is not purged without a read"
    assert reconnected(desk) == [PurgeSchedule(SCHEDULE, 1, START, Version(1, START))]
    desk.at(5 + PURGED_KEPT_NS / SECOND + 1)
    assert reconnected(desk) == []


def test_a_server_that_keeps_what_it_acknowledged_is_asked_once() -> None:
    assert reconnected(purged_desk(guard=True)) == []
