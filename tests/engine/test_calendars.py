"""Schedules that name calendars: what an edit changes, and what it does not change, at every moment of a fire."""

import pytest

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.events import CalendarApplied, CalendarMissing, Ending, FireForged, FiresMissed
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import (
    CalendarsRead,
    CaughtUp,
    ContactLost,
    DuplicateFetched,
    Refused,
    ServerLimits,
    Stored,
    Unknown,
)
from nats_scheduler.engine.receiving import named_calendars
from nats_scheduler.engine.receiving.named_calendars import MAX_VISITED_PER_STEP
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import ListedSchedule
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.calendars import Calendar, KnownCalendars
from nats_scheduler.schedule.days import DayRows, Days
from nats_scheduler.schedule.instants import DAY, HOUR, SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, Desk, endings, events, schedule, stored_fire, world_holding

ONE = "s.one"
NAMED = {"Nats-Schedule-Target": "t.out", "Nats-Schedule-X-Except": "calendar:work"}
DAILY = {"Nats-Schedule": "0 0 9 * * *", **NAMED}
"""Fires at 9 h of each day that is left; the first day is 2026-01-01."""
EVERY_6H = {"Nats-Schedule": "@every 6h", **NAMED}
AT_2ND = {"Nats-Schedule": "@at 2026-01-02T09:00:00Z", **NAMED}


def days(world: ScheduleWorld) -> list[int]:
    """Return the days of January on which something fired."""
    return [1 + (message.fire_time - START) // DAY for message in world.generated]


def following(world: ScheduleWorld) -> list[str]:
    return [message.header("Nats-Schedule-Next") or "" for message in world.generated]


def listed(world: ScheduleWorld, subject: str = ONE) -> ListedSchedule:
    found = world.engine.view().schedule(subject, world.now)
    assert found is not None
    return found


def state(world: ScheduleWorld) -> State:
    return listed(world).state


def reported(world: ScheduleWorld) -> list[tuple[str, str, int]]:
    """Return what was reported of calendars: the name, the fault if there is one, and the schedules."""
    return [
        (event.calendar, event.reason if isinstance(event, CalendarMissing) else "", event.count)
        for event in world.events
        if isinstance(event, CalendarMissing | CalendarApplied)
    ]


def missed(world: ScheduleWorld) -> list[tuple[int, int]]:
    """Return the days of the first missed fire and of the make-up fire."""
    return [
        (1 + (event.first - START) // DAY, 1 + (event.made_up - START) // DAY)
        for event in world.events
        if isinstance(event, FiresMissed) and event.made_up is not None
    ]


def test_an_edit_counts_at_once_in_both_directions() -> None:
    world = world_holding(DAILY, calendars={"work": ""})
    world.advance("12h")
    world.set_calendar("work", "2026-01-02\n2026-01-03")
    assert world.next_fire(ONE) == START + 3 * DAY + 9 * HOUR
    world.advance("24h")
    world.set_calendar("work", "2026-01-02")
    assert world.next_fire(ONE) == START + 2 * DAY + 9 * HOUR, "that of the 2nd has passed as an excepted one"
    world.advance("48h")
    assert days(world) == [1, 3, 4]
    assert missed(world) == []
    assert reported(world) == [("work", "", 1)] * 2


@pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
def test_an_edit_just_before_the_fire_is_in_time(guard: bool) -> None:
    """The fire is built by then, and names the next fire time."""
    world = world_holding(DAILY, guard=guard, calendars={"work": "2026-01-03"})
    world.advance(9 * HOUR - 1_000_000)
    world.set_calendar("work", "2026-01-02")
    world.advance("1h")
    assert following(world) == ["2026-01-03T09:00:00Z"]
    world.advance(47 * HOUR - 1_000_000)
    world.set_calendar("work", "2026-01-02\n2026-01-03")
    world.advance("1h")
    assert days(world) == [1]


def test_each_calendar_is_reported_as_named_once() -> None:
    named = list[bool]()
    desk = Desk()
    desk.engine = StreamEngine(
        StreamRules("S", (">",)),
        DIALECTS,
        ServerLimits(guard=True),
        notify_named=lambda: named.append(desk.engine.calendars.are_named),
    )
    desk.read(schedule("@every 6h", 1, "s.plain"))
    assert named == []
    for number in range(3):
        desk.read(schedule("@every 6h", 2 + number, f"s.{number}", Nats_Schedule_X_Except="calendar:work"))
    assert named == [True]
    desk.read(schedule("@every 6h", 5, "s.other", Nats_Schedule_X_Except="calendar:other"))
    assert named == [True, True]


def test_an_edit_of_a_calendar_of_many_schedules_is_applied_to_each() -> None:
    world = ScheduleWorld(calendars={"work": "", "other": ""})
    count = 3 * MAX_VISITED_PER_STEP + 1
    for number in range(count):
        world.publish(f"s.{number}", DAILY)
    world.publish("s.other", {**DAILY, "Nats-Schedule-X-Except": "calendar:other"})
    world.set_calendar("work", "2026-01-01")
    assert {world.next_fire(f"s.{number}") for number in range(count)} == {START + DAY + 9 * HOUR}
    assert world.next_fire("s.other") == START + 9 * HOUR
    assert reported(world) == [("work", "", count)]


def test_schedules_that_ended_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(named_calendars, "MIN_ENTRIES", 20)
    world = ScheduleWorld(calendars={"work": ""})
    for _ in range(60):
        world.publish(ONE, DAILY)
    assert len(world.engine.calendars._named["work"]) <= 20
    world.set_calendar("work", "2026-01-01")
    assert reported(world) == [("work", "", 1)]


def test_an_at_whose_day_is_excepted_waits_for_its_time_and_ends() -> None:
    world = world_holding(AT_2ND, calendars={"work": "2026-01-02", "left": "2026-01-02"})
    world.publish("s.left", {**AT_2ND, "Nats-Schedule-X-Except": "calendar:left"})
    world.advance("24h")
    assert (state(world), listed(world).next_fire) == (State.EXCEPTED, None)
    world.set_calendar("left", "")
    world.advance("10h")
    assert [message.schedule for message in world.generated] == ["s.left"], "an edit leaves its day in time"
    assert endings(world) == [Ending.EXCEPTED, Ending.FIRED]
    assert [message.subject for message in world.stream.messages()] == ["t.out"]


def test_an_edit_that_leaves_no_fire_ends_nothing_before_its_end() -> None:
    world = world_holding({**DAILY, "Nats-Schedule-X-End": "2026-01-06T00:00:00Z"}, calendars={"work": ""})
    world.advance("12h")
    world.set_calendar("work", "2026-01-01..2026-12-31")
    assert state(world) is State.EXCEPTED
    world.restart("24h")
    assert state(world) is State.EXCEPTED
    world.set_calendar("work", "2026-01-04")
    world.advance("30h")
    assert days(world) == [1, 3]
    world.set_calendar("work", "2026-01-01..2026-12-31")
    world.advance("72h")
    assert days(world) == [1, 3]
    assert endings(world) == [Ending.EXCEPTED]


# -- what was stored by other days --------------------------------------------------------------------------------


def test_what_fired_on_a_day_that_was_excepted_later_is_no_forgery() -> None:
    world = world_holding({**EVERY_6H, "Nats-Schedule-X-Limit": "20"}, calendars={"work": ""})
    world.advance("30h")
    before = len(world.generated)
    world.restart("3h", with_checkpoint=False, calendars={"work": "2026-01-01..2026-01-02"})
    world.advance("24h")
    assert events(world, FireForged) == []
    assert days(world)[before:] == [3, 3]


@pytest.mark.parametrize("with_checkpoint", [True, False])
def test_a_day_that_passed_as_excepted_is_not_made_up(with_checkpoint: bool) -> None:
    world = world_holding(DAILY, calendars={"work": "2026-01-03"})
    world.publish("s.other", {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "t.other"})
    world.advance("60h")
    world.restart("1h", with_checkpoint=with_checkpoint, calendars={"work": ""})
    world.advance("24h")
    world.generated = [one for one in world.generated if one.subject == "t.out"]
    assert days(world) == ([1, 2, 4] if with_checkpoint else [1, 2, 3, 4])


FIRST_DAY, SECOND_DAY = (Days(day, day) for day in (START // DAY, START // DAY + 1))

NO_DAY = KnownCalendars({"work": Calendar("work", DayRows())})
TODAY = KnownCalendars({"work": Calendar("work", DayRows([FIRST_DAY]))})


# -- an edit while a fire is in flight, or while another instance has other days --------------------------------------


def named_schedule(pattern: str = "@every 20s", end: str = "2027-01-01T00:00:00Z") -> StoredMessage:
    return schedule(pattern, Nats_Schedule_X_Except="calendar:work", Nats_Schedule_X_End=end)


def desk_of(message: StoredMessage, known: KnownCalendars = NO_DAY) -> Desk:
    desk = Desk(message)
    desk.step(CalendarsRead(known))
    return desk


def in_flight_at_20s(message: StoredMessage) -> tuple[Desk, Fire]:
    """Bring the first fire of an instance that knows no excepted day into flight."""
    desk = desk_of(message).at(19.5)
    return desk, desk.in_flight(message, 20)


def test_an_edit_decides_what_is_owed_of_a_version_that_was_replaced() -> None:
    """While the calendar is missing it waits."""
    for edited, is_sent in ((TODAY, False), (NO_DAY, True)):
        message = named_schedule()
        desk, fire = in_flight_at_20s(message)
        desk.read(schedule("@every 1h", 2, stored_at=desk.now))
        desk.concluded(fire, Refused(400, 10163, "undecided"))
        desk.step(CalendarsRead(KnownCalendars({})))
        assert (desk.at(30).fires, desk.engine.held.owed_count) == ([], 1)
        desk.step(CalendarsRead(edited))
        desk.at(60)
        if is_sent:
            desk.found(message)
            assert desk.fire.fire_time == START + 20 * SECOND
        assert (desk.engine.held.owed_count, desk.purges) == ((1, []) if is_sent else (0, [(SCHEDULE, 1)]))


@pytest.mark.parametrize(
    "outcome", [Stored(2), Stored(2, duplicate=True), Unknown("lost"), Refused(503, 10077, "full")]
)
def test_an_edit_does_not_recall_what_is_in_flight(outcome: Stored | Unknown | Refused) -> None:
    message = named_schedule()
    desk, fire = in_flight_at_20s(message)
    desk.step(CalendarsRead(TODAY))
    assert desk.fires == []
    desk.concluded(fire, outcome)
    if isinstance(outcome, Stored) and outcome.duplicate:
        desk.step(DuplicateFetched(fire, 2, stored_fire(fire, 2, desk.now), desk.now))
    desk.at(25)
    if isinstance(outcome, Unknown):
        assert desk.fire is fire, "it may be stored, so the same is sent again"
        desk.concluded(fire, Stored(2))
    elif isinstance(outcome, Refused):
        desk.found(message)
        assert desk.fires == [], "nothing was stored, and its day is excepted now"
    assert desk.at(26).due == DAY / SECOND


def test_a_stored_fire_that_names_the_end_ends_the_schedule() -> None:
    """The instance that stored it had other days: its fire informed consumers that no fire follows."""
    message = named_schedule()
    _desk, fire = in_flight_at_20s(message)
    for known in (NO_DAY, TODAY, KnownCalendars({})):
        desk = desk_of(message, known).at(20.1)
        last = stored_fire(fire, 2, desk.now)
        block = last.block.replace(b"2026-01-01T00:00:40Z", b"purge")
        assert block != last.block
        desk.read(last._replace(block=block))
        asked = desk.actions
        assert PurgeSchedule in map(type, asked + desk.at(20.2).actions), known


def test_a_stored_fire_that_names_another_one_does_not_end_it() -> None:
    message = named_schedule(end="2026-01-02T00:00:00Z")
    _desk, fire = in_flight_at_20s(message)
    desk = desk_of(message, TODAY)
    desk.read(stored_fire(fire, 2, START + 20 * SECOND))
    desk.at(30)
    assert (desk.is_held(), desk.purges, desk.reads, desk.fires) == (True, [], [], [])
    desk.step(CalendarsRead(NO_DAY))
    assert desk.at(30.1).due == 40


def test_nothing_ends_by_days_that_may_have_been_edited_since() -> None:
    message = named_schedule("@at 2026-01-01T00:00:20Z")
    desk, unedited = desk_of(message, TODAY), desk_of(message, TODAY)
    for one in (desk, unedited):
        one.step(CalendarsRead(TODAY, is_followed=False))
        for seconds in (20, 25, 30):
            assert (one.at(seconds).purges, one.is_held()) == ([], True)
    desk.step(CalendarsRead(NO_DAY))
    desk.at(30.1).found(message)
    assert desk.fire.fire_time == START + 20 * SECOND, "the edit was made in time, as far as is known"
    unedited.step(CalendarsRead(TODAY))
    assert unedited.at(31).purges == [(SCHEDULE, 1)], "edits are received again, and none left it"


def test_the_new_days_decide_what_passed_while_edits_were_missed() -> None:
    """Nobody knows when the edit was made: it may have left the fire of 20 s before that was due.

    That a connection is lost is noticed up to 3 s later.
    """
    for seconds, is_followed, expected in ((10, True, 40), (10, False, 20), (22, False, 20), (24, False, 40)):
        desk = desk_of(named_schedule(), TODAY).at(seconds)
        desk.step(CalendarsRead(TODAY, is_followed))
        desk.at(30).step(CalendarsRead(NO_DAY))
        assert desk.at(30.1).due == expected, (seconds, is_followed)


def test_of_several_edits_without_contact_the_first_decides_what_passed() -> None:
    """The first one may have left the fire of 20 s before that was due; so it is for each calendar."""
    names = ["work", "more"]
    messages = [
        schedule("@every 20s", number, f"s.{name}", Nats_Schedule_X_Except=f"calendar:{name}")
        for number, name in enumerate(names, 1)
    ]
    desk = Desk(*messages)
    for seconds, days in ((0, [FIRST_DAY]), (10, [SECOND_DAY]), (30, [])):
        desk.at(seconds).step(CalendarsRead(KnownCalendars({name: Calendar(name, DayRows(days)) for name in names})))
        desk.step(*([] if seconds else [ContactLost("lost")]))
    desk.step(CaughtUp())
    desk.at(30.1)
    assert [desk.held(f"s.{name}").fire_time for name in names] == [START + 20 * SECOND] * 2


# -- a calendar that does not exist or is invalid: schedules wait, and nothing is lost or stored twice -----------------

CONSUMED = {"retention": "workqueue"}
PAST = {**DAILY, "Nats-Schedule": "@at 2025-12-31T23:00:00Z", "Nats-Schedule-Target": "t.past"}


@pytest.mark.parametrize(
    ("calendars", "reason", "left"),
    [({}, "there is no such calendar", True), ({"work": "soon"}, "line 1 contains 'soon'", False)],
    ids=["missing", "invalid"],
)
def test_without_its_calendar_a_schedule_waits_and_says_so(calendars: dict[str, str], reason: str, left: bool) -> None:
    world = world_holding(DAILY, calendars=calendars)
    world.advance("57h")
    assert days(world) == []
    assert (state(world), listed(world).next_fire) == (State.NO_CALENDAR, None)
    (fault,) = reported(world)
    assert fault[1].startswith(reason)
    assert done(world.engine.figures(world.now)).overdue == 0, "it is shown as what it is"
    world.set_calendar("work", "2026-01-03" if left else "2026-01-01..2026-01-03")
    assert days(world) == ([2] if left else []), "what came due meanwhile is made up, as far as the calendar leaves it"
    assert missed(world) == ([(1, 2)] if left else [])
    world.advance("24h")
    assert days(world) == ([2, 4] if left else [4])
    assert [name for name, fault, _count in reported(world) if not fault] == ["work"]


@pytest.mark.parametrize(("config", "deleted"), [(CONSUMED, True), ({}, False)], ids=["deleted", "never there"])
def test_a_restart_without_the_calendar_changes_nothing(config: dict[str, str], deleted: bool) -> None:
    """The checkpoint says up to when the schedules of a calendar are settled: nothing is lost, or stored twice."""
    world = world_holding(DAILY, config=config, calendars={"work": ""} if deleted else {})
    world.publish("s.other", {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "t.other"})
    world.advance("10h")
    if deleted:
        assert days(world)[-1] == 1
        world.stream.purge("t.out")
        world.delete_calendar("work")
    world.advance("48h")
    for _ in range(2):
        world.restart("5h")
        world.advance("30m")
    assert world.checkpoint.through > START + 2 * DAY, "others are not held back"
    world.set_calendar("work", "2026-01-03")
    world.advance("1h")
    fired = [1 + (one.fire_time - START) // DAY for one in world.generated if one.subject == "t.out"]
    assert fired == ([1, 2] if deleted else [2])
    assert world.checkpoint.calendars == {}
    world.restart("1h")
    assert state(world) is State.WAITING


def test_what_was_past_when_stored_waits_for_its_calendar() -> None:
    world = ScheduleWorld(config=CONSUMED)
    world.publish(ONE, DAILY)  # since then the calendar is known to be missing
    world.advance("10h")
    world.publish("s.past", PAST)
    world.advance("10h")
    for _ in range(3):
        world.restart("1h")
        world.advance("1h")
        assert world.checkpoint.through > START
        assert len(world.checkpoint.unsettled) == 1
    world.set_calendar("work", "")
    assert sorted(one.subject for one in world.generated) == ["t.out", "t.past"]
    assert world.checkpoint.unsettled == frozenset()
