"""A fire that came due before it could be fired in time is reported as overdue; it says nothing about punctuality."""

from nats_scheduler.engine.events import FireReadBack
from nats_scheduler.engine.inputs import CaughtUp, ContactLost, PurgeConcluded, ShardsHeld, Stored
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, TARGET, Desk, plain, schedule, stored_fire

ALL = frozenset(range(SHARDS))
EVERY = schedule("@every 5s")


def seen(desk: Desk, at_sequence: int = 2, *, late: int = MILLISECOND) -> FireReadBack:
    """Let the fire in flight be stored and read back, and return its event."""
    fire = desk.fire
    desk.concluded(fire, Stored(at_sequence))
    desk.read(plain(TARGET, at_sequence, stored_at=desk.now + late))
    (reported,) = desk.reported(FireReadBack)
    return reported


def test_a_fire_in_time_is_not_overdue_however_late_the_server_stores_it() -> None:
    desk = Desk(EVERY)
    desk.in_flight(EVERY, 5)
    assert not seen(desk, late=3 * SECOND).overdue


def test_an_instant_before_its_schedule_was_stored_is_overdue() -> None:
    desk = Desk()
    late = schedule(f"@at {format_rfc3339(START - 200_000_000 * SECOND)}")
    desk.read(late)
    desk.found(late)
    reported = seen(desk)
    assert (reported.overdue, reported.stored_at - reported.fire_time) == (True, 200_000_000 * SECOND + MILLISECOND)


def test_it_is_overdue_also_when_its_schedule_is_gone_before_it_is_read_back() -> None:
    desk = Desk()
    late = schedule(f"@at {format_rfc3339(START - 3 * SECOND)}")
    desk.read(late)
    desk.found(late)
    fire = desk.fire
    desk.concluded(fire, Stored(2))
    desk.step(PurgeConcluded(SCHEDULE, 1))
    assert not desk.is_held()
    desk.read(plain(TARGET, 2, stored_at=desk.now + MILLISECOND))
    assert [event.overdue for event in desk.reported(FireReadBack)] == [True]


def test_what_came_due_before_everything_was_read_is_overdue() -> None:
    desk = Desk(EVERY, live=False)
    desk.now = START + 7 * SECOND
    desk.step(CaughtUp())
    desk.found(EVERY)
    assert seen(desk).overdue
    desk.at(9)
    desk.at(10)
    assert not seen(desk, 3).overdue


def test_what_came_due_while_contact_was_lost_is_overdue() -> None:
    desk = Desk(EVERY)
    desk.at(4)
    desk.step(ContactLost("gone"))
    desk.at(6)
    desk.step(CaughtUp())
    desk.found(EVERY)
    assert seen(desk).overdue


def test_what_came_due_before_its_shard_was_held_is_overdue() -> None:
    desk = Desk(EVERY)
    desk.step(ShardsHeld(frozenset()))
    desk.at(6)
    desk.step(ShardsHeld(ALL))
    desk.found(EVERY)
    assert seen(desk).overdue


def test_what_its_last_holder_stored_in_time_is_not_overdue_for_the_next() -> None:
    """The new holder reads it back, and did not publish it."""
    holder, heir = Desk(EVERY), Desk(EVERY)
    heir.step(ShardsHeld(frozenset()))
    fire = holder.in_flight(EVERY, 5)
    heir.at(5.1)
    heir.step(ShardsHeld(ALL))
    heir.read(stored_fire(fire, 2, START + 5 * SECOND + 2 * MILLISECOND))
    assert [event.overdue for event in heir.reported(FireReadBack)] == [False]
