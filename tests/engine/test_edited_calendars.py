"""Edits of a calendar while a fire is in flight, or while another instance has other days."""

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import CalendarsRead, DuplicateRead, Refused, Stored, Unknown
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.calendars import Calendar, KnownCalendars
from nats_scheduler.schedule.days import Days
from nats_scheduler.schedule.instants import DAY, SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule, stored_fire

FIRST_DAY = Days(START // DAY, START // DAY)
NO_DAY, TODAY = KnownCalendars({"work": Calendar("work", ())}), KnownCalendars({"work": Calendar("work", (FIRST_DAY,))})


def named_schedule(pattern: str = "@every 20s", end: str = "2027-01-01T00:00:00Z") -> StoredMessage:
    return schedule(pattern, Nats_Schedule_X_Except="calendar:work", Nats_Schedule_X_End=end)


def desk_of(message: StoredMessage, known: KnownCalendars = NO_DAY) -> Desk:
    desk = Desk(message)
    desk.step(CalendarsRead(known))
    return desk


def fired(message: StoredMessage) -> Fire:
    """Return the first fire of an instance that knows no excepted day."""
    desk = desk_of(message)
    desk.at(19.5)
    return desk.in_flight(message, 20)


@pytest.mark.parametrize(
    "outcome", [Stored(2), Stored(2, duplicate=True), Unknown("lost"), Refused(503, 10077, "full")]
)
def test_an_edit_does_not_recall_what_is_in_flight(outcome: Stored | Unknown | Refused) -> None:
    message = named_schedule()
    desk = desk_of(message)
    desk.at(19.5)
    fire = desk.in_flight(message, 20)
    desk.step(CalendarsRead(TODAY))
    assert desk.fires == []
    desk.concluded(fire, outcome)
    if isinstance(outcome, Stored) and outcome.duplicate:
        desk.step(DuplicateRead(fire, 2, stored_fire(fire, 2, desk.now), desk.now))
    desk.at(25)
    if isinstance(outcome, Unknown):
        assert desk.fire is fire, "it may be stored, so the same is sent again"
        desk.concluded(fire, Stored(2))
    elif isinstance(outcome, Refused):
        desk.found(message)
        assert desk.fires == [], "nothing was stored, and its day is excepted now"
    desk.at(26)
    held = desk.engine.held.on(SCHEDULE)
    assert held is not None
    assert held.fire_time == START + DAY


def test_a_calendar_that_is_deleted_while_a_fire_is_in_flight_stops_the_next_one() -> None:
    message = named_schedule("@every 5s")
    desk = desk_of(message)
    fire = desk.in_flight(message, 5)
    desk.step(CalendarsRead(KnownCalendars({})))
    desk.concluded(fire, Stored(2))
    desk.at(60)
    assert (desk.fires, desk.reads) == ([], [])
    desk.step(CalendarsRead(NO_DAY))
    desk.at(60.001)
    desk.found(message)
    assert desk.fire.fire_time == START + 60 * SECOND
    assert desk.fire.next_fire == START + 65 * SECOND


@pytest.mark.parametrize("known", [NO_DAY, TODAY, KnownCalendars({})], ids=["left", "excepted", "missing"])
def test_a_stored_fire_that_names_the_end_ends_the_schedule_whatever_the_calendar_says(known: KnownCalendars) -> None:
    """The instance that stored it had other days: its consumers were told that no fire follows."""
    message = named_schedule()
    fire = fired(message)
    desk = desk_of(message, known)
    desk.at(20.1)
    last = stored_fire(fire, 2, desk.now)
    block = last.block.replace(b"2026-01-01T00:00:40Z", b"purge")
    assert block != last.block
    desk.read(last._replace(block=block))
    asked = desk.actions
    desk.at(20.2)
    assert PurgeSchedule in map(type, asked + desk.actions)


def test_a_stored_fire_that_names_another_one_does_not_end_the_schedule_if_our_days_leave_none() -> None:

    message = named_schedule(end="2026-01-02T00:00:00Z")
    fire = fired(message)
    desk = desk_of(message, TODAY)
    desk.read(stored_fire(fire, 2, START + 20 * SECOND))
    desk.at(30)
    held = desk.engine.held.on(SCHEDULE)
    assert held is not None
    assert (held.flight, desk.purges) == (None, [])
    desk.step(CalendarsRead(NO_DAY))
    desk.at(30.1)
    assert held.fire_time == START + 40 * SECOND
