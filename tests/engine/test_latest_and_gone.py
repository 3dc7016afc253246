"""*Latest* and *Gone*: what was replaced, overwritten, removed or cancelled never fires again.

It tests `engine/receiving/intake.py`, `engine/firing/fetching.py` and `engine/firing/fetched.py` too.
"""

import pytest

from nats_scheduler.engine.events import Ending, FireRefused, ScheduleRejected
from nats_scheduler.engine.inputs import (
    Refused,
    RemovalRequested,
    Unknown,
)
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, plain, schedule
from tests.harness.blocks import block_with

WRONG_LAST_SEQUENCE = Refused(400, 10071, "wrong last sequence: 2")
EVERY = schedule("@every 5s")
AT_5S = schedule("@at 2026-01-01T00:00:05Z")
CANCEL = StoredMessage("x.y", 9, START, block_with(Nats_Scheduler="s.one", Nats_Schedule_Next="purge"), None)


def test_a_replacement_by_a_rejected_schedule_ends_the_old_one() -> None:
    desk = Desk(schedule("@every 5s"))
    desk.read(schedule("@every nonsense", 2))
    assert desk.endings == [Ending.REPLACED]
    assert [event.rejection.code for event in desk.reported(ScheduleRejected)] == [10189]
    assert desk.at(10).reads == []
    desk.read(schedule("@every 5s", 3))
    assert desk.engine.inactive.rejected == {}


def test_a_cancel_during_the_fire_removes_the_schedule_once() -> None:
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    desk.read(CANCEL)
    assert desk.purges == [("s.one", 1)]
    desk.concluded(fire, Unknown("cut"))
    assert (desk.at(60).fires, desk.purges) == ([], [])


def test_what_is_older_than_the_schedule_does_not_concern_it() -> None:
    desk = Desk(CANCEL, schedule("@every 5s", 10))
    desk.read(CANCEL)
    assert desk.purges == []
    desk.read(plain("s.one", 9))
    assert (desk.purges, desk.endings, desk.is_held()) == ([], [], True)
    desk.read(plain("s.one", 11))
    assert (desk.endings, desk.is_held()) == ([Ending.OVERWRITTEN], False)


def test_nothing_or_an_older_version_that_is_found_ends_the_schedule() -> None:
    new = schedule("@every 5s", 2)
    for found in (None, EVERY):
        desk = Desk(EVERY)
        desk.read(new)
        desk.at(4)
        desk.found(found, of=new)
        assert desk.endings == [Ending.REMOVED]
        assert desk.at(5).fires == []


def test_a_replacement_that_a_look_finds_takes_over() -> None:
    desk = Desk(EVERY).at(4)
    desk.found(schedule("@every 1h", 20, stored_at=START + 4 * SECOND), of=EVERY)
    assert desk.held().sequence == 20
    assert desk.engine.last_read == 1, "what was stored between the two was not read yet"


def test_a_refusal_by_the_guard_leads_to_a_look_and_is_no_fault() -> None:
    for is_unknown_before in (False, True):
        desk = Desk(EVERY)
        fire = desk.in_flight(EVERY, 5)
        if is_unknown_before:
            desk.concluded(fire, Unknown("cut"))
            assert desk.at(6).fires == [fire]
        desk.concluded(fire, WRONG_LAST_SEQUENCE)
        assert (desk.reads, desk.reported(FireRefused)) == ([("s.one", 1)], [])
        desk.found(None, of=EVERY)
        assert desk.endings == [Ending.REMOVED]


class TestWithoutTheGuard:
    """A server of 2.10 refuses no stale fire: a schedule that may have been removed is re-checked before it fires."""

    def test_the_look_is_short_before_the_fire(self) -> None:
        assert Desk(schedule("@every 5s"), guard=False).wake == 4.95

    def test_a_removal_that_was_asked_for_leads_to_another_look(self) -> None:
        for request in (RemovalRequested(), RemovalRequested(filter="s.*"), RemovalRequested(sequence=1)):
            desk = Desk(EVERY, guard=False).at(4.96)
            desk.found(EVERY)
            desk.step(request)
            assert desk.reads == [("s.one", 1)], request
            desk.found(None, of=EVERY)
            assert desk.at(5).fires == []
        desk = Desk(EVERY, guard=False).at(4.96)
        desk.found(EVERY)
        desk.step(RemovalRequested(filter="s.two"), RemovalRequested(sequence=2))
        assert desk.reads == [], "that is something else"
        assert desk.at(5).fires

    def test_of_two_looks_the_one_asked_for_last_counts(self) -> None:
        desk = Desk(EVERY, guard=False).at(4.96)
        desk.step(RemovalRequested(filter="s.one"))
        desk.found(EVERY)  # read before the removal
        desk.found(None, of=EVERY)
        assert desk.endings == [Ending.REMOVED]
        assert desk.at(5).fires == []

    def test_an_unknown_fire_is_repeated_while_its_schedule_is_there(self) -> None:
        desk = Desk(EVERY, guard=False)
        fire = desk.in_flight(EVERY, 5)
        desk.concluded(fire, Unknown("cut"))
        assert (desk.at(20).reads, desk.fires) == ([("s.one", 1)], [])
        desk.found(EVERY)
        assert desk.fires == [fire]
        desk.concluded(fire, Unknown("cut"))
        desk.at(25)
        desk.found(None, of=EVERY)
        assert desk.endings == [Ending.REMOVED]


@pytest.mark.parametrize("is_there", [False, True])
def test_a_late_fire_is_looked_at_again_on_a_server_without_the_guard(is_there: bool) -> None:
    """The process stalled after the schedule was read."""
    desk = Desk(AT_5S, guard=False).at(4.95)
    desk.found(AT_5S)
    assert (desk.at(9).fires, desk.reads) == ([], [("s.one", 1)])
    desk.found(AT_5S if is_there else None, of=AT_5S)
    assert [fire.fire_time for fire in desk.fires] == ([START + 5 * SECOND] if is_there else [])
    assert desk.is_held() is is_there
    for guard, late in ((True, 4.0), (False, 0.04)):
        other = Desk(AT_5S, guard=guard).at(4.95)
        other.found(AT_5S)
        assert len(other.at(5 + late).fires) == 1, "no other fire pays for it"


def test_a_guard_that_refuses_without_reason_is_backed_off_from() -> None:
    desk = Desk(EVERY)
    desk.concluded(desk.in_flight(EVERY, 5), WRONG_LAST_SEQUENCE)
    desk.found(EVERY)
    desk.concluded(desk.fire, WRONG_LAST_SEQUENCE)
    assert desk.reads == []
    assert desk.wake > 5
    assert desk.at(6).reads == [("s.one", 1)]
