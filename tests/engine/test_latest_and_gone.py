"""*Latest* and *Gone*: what was replaced, overwritten, removed or cancelled never fires again."""

import pytest

from nats_scheduler.engine.events import Ending, FireRefused, ScheduleRejected
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, ContentRead, Refused, RemovalRequested, Stored, Unknown
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import Desk, plain, schedule, stored_fire
from tests.harness.blocks import block_with

WRONG_LAST_SEQUENCE = Refused(400, 10071, "wrong last sequence: 2")
EVERY_5S = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": "t.out"}
CANCEL = StoredMessage("x.y", 9, START, block_with(Nats_Scheduler="s.one", Nats_Schedule_Next="purge"), None)


def test_a_replacement_fires_instead() -> None:
    world = ScheduleWorld()
    world.publish("s.one", EVERY_5S, b"old")
    world.advance("4999ms")
    second = world.publish("s.one", {**EVERY_5S, "Nats-Schedule": "@every 7s"}, b"new")
    world.advance("15s")
    assert {(m.body, m.schedule_sequence) for m in world.generated} == {(b"new", second)}
    assert [(m.fire_time - START) / SECOND for m in world.generated] == [12, 19]


def test_older_versions_are_rolled_up() -> None:
    world = ScheduleWorld()
    for number in range(3):
        world.publish("s.one", EVERY_5S, b"%d" % number)
    assert [message.body for message in world.stream.messages("s.one")] == [b"2"]


def test_older_versions_that_were_stored_before_we_came_are_rolled_up() -> None:
    desk = Desk(schedule("@every 5s", 1), schedule("@every 5s", 2), schedule("@every 5s", 3))
    assert desk.purges == [("s.one", 2)]


def test_a_replacement_while_the_old_fire_is_in_flight_keeps_its_own_time() -> None:
    old, new = schedule("@every 5s"), schedule("@every 1h", 2, stored_at=START + 5 * SECOND)
    desk = Desk(old)
    fire = desk.in_flight(old, 5)
    desk.read(new)
    desk.concluded(fire, Stored(3))
    desk.read(stored_fire(fire, 3, desk.now))
    held = desk.held()
    assert (held.sequence, held.fire_time) == (2, START + 3605 * SECOND)
    assert desk.at(60).fires == []


@pytest.mark.parametrize("outcome", [Unknown("cut"), WRONG_LAST_SEQUENCE, Stored(7)])
def test_what_becomes_of_a_replaced_fire_changes_nothing(outcome: Stored | Refused | Unknown) -> None:
    old, new = schedule("@every 5s"), schedule("@every 1h", 2, stored_at=START + 5 * SECOND)
    desk = Desk(old)
    fire = desk.in_flight(old, 5)
    desk.read(new)
    desk.concluded(fire, outcome)
    assert (desk.at(60).fires, desk.reads) == ([], [])
    assert desk.reported(FireRefused) == []


def test_a_replaced_fire_is_not_awaited_by_the_checkpoint() -> None:
    old = schedule("@every 5s")
    desk = Desk(old)
    desk.in_flight(old, 5)
    desk.read(schedule("@every 1h", 2, stored_at=START + 5 * SECOND))
    desk.at(20)
    assert desk.engine.checkpoint(desk.now).through == desk.now


def test_a_replacement_by_a_rejected_schedule_ends_the_old_one() -> None:
    desk = Desk(schedule("@every 5s"))
    desk.read(schedule("@every nonsense", 2))
    assert desk.endings == [Ending.REPLACED]
    assert [event.rejection.code for event in desk.reported(ScheduleRejected)] == [10189]
    assert desk.at(10).reads == []
    desk.read(schedule("@every 5s", 3))
    assert desk.engine.inactive.rejected == {}


def test_an_older_message_read_again_does_not_hide_a_rejection() -> None:
    desk = Desk(schedule("@every nonsense", 5))
    desk.read(plain("s.one", 3), schedule("@every 5s", 2))
    assert list(desk.engine.inactive.rejected) == ["s.one"]
    assert not desk.is_held()


def test_overwritten_by_a_plain_message_it_never_fires() -> None:
    world = ScheduleWorld()
    world.publish("s.one", EVERY_5S)
    world.advance("4999ms")
    world.publish("s.one", b"", b"plain")
    world.advance("1m")
    assert world.generated == []
    assert world.stream.last("s.one") is not None


@pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
@pytest.mark.parametrize("ahead", ["1s", "30ms"])
def test_deleted_or_purged_it_never_fires(guard: bool, ahead: str) -> None:
    world = ScheduleWorld(guard=guard)
    first = world.publish("s.one", EVERY_5S)
    world.publish("s.two", EVERY_5S)
    world.advance("5s")
    world.settle()
    world.advance(5 * SECOND - {"1s": SECOND, "30ms": 30_000_000}[ahead])
    world.delete(first)
    world.purge("s.two")
    world.advance("1m")
    assert [message.schedule for message in world.generated] == ["s.one", "s.two"]


def test_an_expired_schedule_never_fires() -> None:
    world = ScheduleWorld()
    world.publish("s.one", {**EVERY_5S, "Nats-TTL": "12s"})
    world.advance("1m")
    assert [(message.fire_time - START) // SECOND for message in world.generated] == [5, 10]
    assert world.next_fire("s.one") is None


def test_cancelled_by_a_message_it_never_fires_and_is_removed() -> None:
    world = ScheduleWorld()
    world.publish("s.one", EVERY_5S)
    world.advance("4999ms")
    world.publish("x.y", {"Nats-Scheduler": "s.one", "Nats-Schedule-Next": "purge"})
    world.advance("1m")
    assert world.generated == []
    assert world.stream.last("s.one") is None


def test_cancelled_while_its_fire_is_in_flight_it_is_removed_whatever_becomes_of_that() -> None:
    message = schedule("@every 5s")
    desk = Desk(message)
    fire = desk.in_flight(message, 5)
    desk.read(CANCEL)
    assert desk.purges == [("s.one", 1)]
    desk.concluded(fire, Unknown("cut"))
    assert desk.at(60).fires == []


def test_a_cancelled_schedule_is_purged_once() -> None:
    desk = Desk(schedule("@every 5s"))
    desk.read(CANCEL)
    assert desk.purges == [("s.one", 1)]
    assert desk.at(60).purges == []


def test_a_cancel_older_than_the_schedule_does_not_concern_it() -> None:
    desk = Desk(CANCEL, schedule("@every 5s", 10))
    desk.read(CANCEL)
    assert desk.purges == []
    assert desk.is_held()


def test_an_ordinary_message_older_than_the_schedule_does_not_end_it() -> None:
    desk = Desk(schedule("@every 5s", 10))
    desk.read(plain("s.one", 9))
    assert (desk.endings, desk.is_held()) == ([], True)
    desk.read(plain("s.one", 11))
    assert (desk.endings, desk.is_held()) == ([Ending.OVERWRITTEN], False)


def test_a_rejected_schedule_older_than_the_last_one_is_not_reported() -> None:
    desk = Desk(schedule("@every soon", 10))
    desk.read(schedule("@every never", 9))
    assert desk.reported(ScheduleRejected) == []
    assert desk.engine.inactive.rejected["s.one"].sequence == 10


def test_nothing_found_on_the_subject_ends_the_schedule() -> None:
    message = schedule("@every 5s")
    desk = Desk(message)
    desk.at(4)
    desk.found(None, of=message)
    assert desk.endings == [Ending.REMOVED]
    assert desk.at(5).fires == []


def test_an_uncovered_older_version_does_not_fire() -> None:
    old, new = schedule("@every 5s"), schedule("@every 5s", 2)
    desk = Desk(old)
    desk.read(new)
    desk.at(5)
    desk.found(old, of=new)
    assert desk.endings == [Ending.REMOVED]


def test_a_replacement_found_at_the_look_takes_over_and_is_still_to_be_followed() -> None:
    old, new = schedule("@every 5s"), schedule("@every 1h", 20, stored_at=START + 4 * SECOND)
    desk = Desk(old)
    desk.at(4)
    desk.found(new, of=old)
    held = desk.held()
    assert held.sequence == 20
    assert desk.engine.last_read == 1, "what was stored between the two was not read yet"


def test_a_refusal_by_the_guard_leads_to_a_look_and_is_no_fault() -> None:
    message = schedule("@every 5s")
    desk = Desk(message)
    desk.concluded(desk.in_flight(message, 5), WRONG_LAST_SEQUENCE)
    assert (desk.reads, desk.reported(FireRefused)) == ([("s.one", 1)], [])
    desk.found(None, of=message)
    assert desk.endings == [Ending.REMOVED]


def test_a_refusal_by_the_guard_after_an_unknown_outcome_leads_to_a_look_at_once() -> None:
    message = schedule("@every 5s")
    desk = Desk(message)
    fire = desk.in_flight(message, 5)
    desk.concluded(fire, Unknown("cut"))
    assert desk.at(6).fires == [fire]
    desk.concluded(fire, WRONG_LAST_SEQUENCE)
    assert (desk.reads, desk.reported(FireRefused)) == ([("s.one", 1)], [])


def test_a_guard_that_refuses_without_reason_is_backed_off_from() -> None:
    message = schedule("@every 5s")
    desk = Desk(message)
    desk.concluded(desk.in_flight(message, 5), WRONG_LAST_SEQUENCE)
    desk.found(message)
    desk.concluded(desk.fire, WRONG_LAST_SEQUENCE)
    assert desk.reads == []
    assert desk.wake > 5
    assert desk.at(6).reads == [("s.one", 1)]


class TestWithoutTheGuard:
    """A server of 2.10 refuses no stale fire: a schedule that may have been removed is re-checked before it fires."""

    def test_the_look_is_short_before_the_fire(self) -> None:
        assert Desk(schedule("@every 5s"), guard=False).wake == 4.95

    @pytest.mark.parametrize(
        "request_seen",
        [RemovalRequested(), RemovalRequested(filter="s.*"), RemovalRequested(sequence=1)],
        ids=["everything", "by filter", "by sequence"],
    )
    def test_a_removal_that_was_asked_for_leads_to_another_look(self, request_seen: RemovalRequested) -> None:
        message = schedule("@every 5s")
        desk = Desk(message, guard=False)
        desk.at(4.96)
        desk.found(message)
        desk.step(request_seen)
        assert desk.reads == [("s.one", 1)]
        desk.found(None, of=message)
        assert desk.at(5).fires == []

    def test_a_removal_of_something_else_does_not(self) -> None:
        message = schedule("@every 5s")
        desk = Desk(message, guard=False)
        desk.at(4.96)
        desk.found(message)
        desk.step(RemovalRequested(filter="s.two"), RemovalRequested(sequence=2))
        assert desk.reads == []
        assert desk.at(5).fires

    def test_of_two_looks_the_one_asked_for_last_counts(self) -> None:
        message = schedule("@every 5s")
        desk = Desk(message, guard=False)
        desk.at(4.96)
        desk.step(RemovalRequested(filter="s.one"))
        desk.found(message)  # read before the removal
        desk.found(None, of=message)
        assert desk.endings == [Ending.REMOVED]
        assert desk.at(5).fires == []

    def test_what_was_ready_when_contact_was_lost_is_looked_at_again(self) -> None:
        message = schedule("@every 5s")
        desk = Desk(message, guard=False)
        desk.at(4.96)
        desk.found(message)
        desk.step(ContactLost("cut"))
        desk.at(6)
        desk.step(CaughtUp())
        assert (desk.reads, desk.fires) == ([("s.one", 1)], [])

    def test_a_fire_of_unknown_outcome_is_repeated_only_while_its_schedule_is_there(self) -> None:
        message = schedule("@every 5s")
        desk = Desk(message, guard=False)
        fire = desk.in_flight(message, 5)
        desk.concluded(fire, Unknown("cut"))
        assert (desk.at(20).reads, desk.fires) == ([("s.one", 1)], [])
        desk.found(message)
        assert desk.fires == [fire]
        desk.concluded(fire, Unknown("cut"))
        desk.at(25)
        desk.found(None, of=message)
        assert desk.endings == [Ending.REMOVED]


@pytest.mark.parametrize("request_", [RemovalRequested(), RemovalRequested("s.*"), RemovalRequested("s.*", below=9)])
def test_a_wide_request_reads_only_what_no_guard_protects(request_: RemovalRequested) -> None:
    plain, sample = schedule("@every 5s"), schedule("@every 5s", 2, "s.two", Nats_Schedule_Source="d.now")
    for guard, expected in ((True, set()), (False, {"s.one"})):
        desk = Desk(plain, sample, guard=guard)
        desk.at(4.96)
        desk.step(ContentRead("s.one", 1, plain, None))
        desk.step(request_)
        assert {subject for subject, _sequence in desk.reads} == expected
