"""Edits of a calendar while a fire is in flight, or while another instance has other days."""

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import CalendarsRead, DuplicateRead, Refused, Stored, Unknown
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.calendars import Calendar, Days, KnownCalendars
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
    """The instance that stored it had other days: its fire informed consumers that no fire follows."""
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


def test_nothing_ends_by_days_that_may_have_been_edited_since() -> None:
    message = named_schedule("@at 2026-01-01T00:00:20Z")
    desk = desk_of(message, TODAY)
    desk.step(CalendarsRead(TODAY, is_followed=False))
    for seconds in (20, 25, 30):
        desk.at(seconds)
        assert (desk.purges, desk.is_held()) == ([], True)
    desk.step(CalendarsRead(NO_DAY))
    desk.at(30.1)
    desk.found(message)
    assert desk.fire.fire_time == START + 20 * SECOND, "the edit was made in time, as far as is known"


def test_what_no_edit_left_ends_soon_after_edits_are_received_again() -> None:
    message = named_schedule("@at 2026-01-01T00:00:20Z")
    desk = desk_of(message, TODAY)
    desk.step(CalendarsRead(TODAY, is_followed=False))
    assert desk.at(30).purges == []
    desk.step(CalendarsRead(TODAY))
    assert desk.at(31).purges == [(SCHEDULE, 1)]


@pytest.mark.parametrize(
    ("seconds", "is_followed", "next_fire"), [(10, True, 40), (10, False, 20), (22, False, 20), (24, False, 40)]
)
def test_what_passed_while_edits_were_not_received_is_decided_by_the_new_days(
    seconds: int, is_followed: bool, next_fire: int
) -> None:
    """Nobody knows when the edit was made: it may have left the fire of 20 s before that was due.

    That a connection is lost is noticed up to 3 s later.
    """
    message = named_schedule()
    desk = desk_of(message, TODAY)
    desk.at(seconds)
    desk.step(CalendarsRead(TODAY, is_followed))
    desk.at(30)
    desk.step(CalendarsRead(NO_DAY))
    held = desk.at(30.1).engine.held.on(SCHEDULE)
    assert held is not None
    assert held.fire_time == START + next_fire * SECOND


def test_what_passed_before_edits_were_not_received_any_more_is_not_made_up() -> None:
    message = named_schedule()
    desk = desk_of(message, TODAY)
    desk.at(50)
    for _ in range(2):  # said again, since it was tried in vain to follow them
        desk.step(CalendarsRead(TODAY, is_followed=False))
        desk.at(70)
    desk.step(CalendarsRead(NO_DAY))
    held = desk.at(70.1).engine.held.on(SCHEDULE)
    assert held is not None
    assert held.fire_time == START + 60 * SECOND
    desk.step(CalendarsRead(TODAY))
    desk.step(CalendarsRead(NO_DAY))
    assert desk.at(70.2).engine.held.on(SCHEDULE) is held
    assert held.fire_time == START + 80 * SECOND, "edits are received again, so this one was made now"
