"""A message under an acknowledged sequence is matched as the fire; any other one is judged like a foreign message.

An engine that reads runs of messages does what one does that reads each message alone.
It tests `engine/firing/confirming.py`.
"""

from dataclasses import replace

import pytest

from nats_scheduler.engine.events import FireConfirmed, ScheduleAccepted
from nats_scheduler.engine.holding.progress import MAX_EXPECTED, Progress
from nats_scheduler.engine.holding.stored_over import Moves
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    MessagesRead,
    OwnershipChanged,
    PurgeConcluded,
    Stored,
)
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, plain, schedule, stored_fire

EVERY = schedule("@every 5s")


def fired(desk: Desk) -> None:
    """Let the first fire be stored under sequence 2."""
    desk.concluded(desk.in_flight(EVERY, 5), Stored(2))


def test_an_acknowledged_fire_is_seen_without_a_look_at_its_headers() -> None:
    desk = Desk(EVERY)
    fired(desk)
    desk.read(plain(TARGET, 2, stored_at=desk.now + 7))
    seen = FireConfirmed(SCHEDULE, TARGET, desk.now, desk.now, desk.now + 7, 2, schedule_stored_at=START)
    assert desk.reported(FireConfirmed) == [seen]
    desk.read(plain(TARGET, 2))
    assert desk.reported(FireConfirmed) == [], "it is seen once"
    desk = Desk(EVERY)
    fired(desk)
    desk.read(schedule("@every 9s", 2, "s.two"))
    assert desk.reported(FireConfirmed) == [], "another message under that sequence is what its headers say"
    assert [event.schedule for event in desk.reported(ScheduleAccepted)] == ["s.two"]
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    desk.read(stored_fire(fire, 2, desk.now))
    assert len(desk.reported(FireConfirmed)) == 1, "it may be read before its acknowledgement"
    desk.concluded(fire, Stored(2))
    desk.read(plain(TARGET, 2))
    assert desk.reported(FireConfirmed) == []


def test_a_fire_that_nobody_reads_back_is_seen_as_acknowledged() -> None:
    desk = Desk(EVERY)
    fired(desk)
    acknowledged = desk.now
    desk.now += 9
    desk.step(MessagesRead((), through=1))
    assert desk.reported(FireConfirmed) == [], "what is not passed by yet is still expected"
    desk.step(MessagesRead((), through=2))
    [seen] = desk.reported(FireConfirmed)
    assert (seen.schedule, seen.target, seen.stored_sequence, seen.stored_at) == ("s.one", TARGET, 2, acknowledged)
    assert desk.engine.last_read == 2


def test_none_is_expected_by_another_contact_or_where_it_may_be_gone() -> None:
    desk = Desk(EVERY)
    fired(desk)
    desk.step(ContactLost("gone"))
    desk.read(plain(TARGET, 2))
    desk.step(CaughtUp())
    assert desk.reported(FireConfirmed) == []
    consumed = Desk(EVERY, reads_all=False)
    fired(consumed)
    consumed.read(plain(TARGET, 2))
    assert consumed.reported(FireConfirmed) == []


def test_an_acknowledged_fire_that_is_looked_up_is_reported_once() -> None:
    desk = Desk(EVERY, reads_all=False)
    fire = desk.in_flight(EVERY, 5)
    ours, of_another = stored_fire(fire, 3, desk.now), stored_fire(fire, 4, desk.now)
    desk.concluded(fire, Stored(3))
    assert len(desk.reported(FireConfirmed)) == 1
    desk.read(schedule("@every 9s", 7, "s.two"))
    desk.read(ours)
    assert desk.reported(FireConfirmed) == [], "it may be found after a later message"
    desk.read(of_another)
    assert len(desk.reported(FireConfirmed)) == 1


def test_a_follower_that_is_far_behind_reads() -> None:
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    progress = Progress(reads_all=True, moves=Moves(moves_all=False))
    fires = [replace(fire, stored_as=sequence) for sequence in range(1, MAX_EXPECTED + 2)]
    progress.expect(fires)
    assert not progress.expected, "the next contact may be with another stream"
    progress.is_live = True
    for some in (fires[:10], fires[10:]):
        progress.expect(some)
    assert not progress.match(plain(TARGET, MAX_EXPECTED + 1))
    assert progress.match(plain(TARGET, MAX_EXPECTED))


# -- a fire that came due before it could be fired in time is overdue: it says nothing about punctuality --------------


def seen(desk: Desk, at_sequence: int = 2, *, late: int = MILLISECOND) -> FireConfirmed:
    """Let the fire in flight be stored and read back, and return its event."""
    desk.concluded(desk.fire, Stored(at_sequence))
    desk.read(plain(TARGET, at_sequence, stored_at=desk.now + late))
    (reported,) = desk.reported(FireConfirmed)
    return reported


def test_an_instant_before_its_schedule_was_stored_is_overdue() -> None:
    past = 200_000_000 * SECOND
    late = schedule(f"@at {format_rfc3339(START - past)}")
    for is_gone in (False, True):
        desk = Desk()
        desk.read(late)
        desk.found(late)
        desk.concluded(desk.fire, Stored(2))
        if is_gone:
            desk.step(PurgeConcluded(SCHEDULE, 1))
        assert desk.is_held() is not is_gone
        desk.read(plain(TARGET, 2, stored_at=desk.now + MILLISECOND))
        [event] = desk.reported(FireConfirmed)
        assert (event.overdue, event.stored_at - event.fire_time) == (True, past + MILLISECOND)


@pytest.mark.parametrize("before", ["read", "contact", "owner"])
def test_what_came_due_before_it_could_be_fired_is_overdue(before: str) -> None:
    desk = Desk(EVERY, live=before != "read").at(4)
    if before != "read":
        desk.step(ContactLost("gone") if before == "contact" else OwnershipChanged(False))
    desk.at(7)
    desk.step(OwnershipChanged(True) if before == "owner" else CaughtUp())
    desk.found(EVERY)
    assert seen(desk).overdue
    desk.at(9)
    desk.at(10)
    assert not seen(desk, 3, late=3 * SECOND).overdue, "however late the server stores it"


def test_what_the_last_owner_stored_in_time_is_not_overdue() -> None:
    """The new owner reads it back, and did not publish it."""
    owner, standby = Desk(EVERY), Desk(EVERY)
    standby.step(OwnershipChanged(False))
    fire = owner.in_flight(EVERY, 5)
    standby.at(5.1)
    standby.step(OwnershipChanged(True))
    standby.read(stored_fire(fire, 2, START + 5 * SECOND + 2 * MILLISECOND))
    assert [event.overdue for event in standby.reported(FireConfirmed)] == [False]
