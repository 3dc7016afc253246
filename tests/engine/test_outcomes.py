"""Stored, refused, unknown: the outcome of a fire decides the next action, and no outcome blocks its schedule.

Which schedule an outcome concerns, is found in `engine/firing/answers.py`.
"""

from nats_scheduler.engine.events import FiresMissed, FireStored, FireUnknown
from nats_scheduler.engine.fire import FetchDuplicate
from nats_scheduler.engine.firing.due import ATTEMPTS_PER_FETCH
from nats_scheduler.engine.firing.outcomes import SILENT_ATTEMPTS
from nats_scheduler.engine.inputs import DuplicateFetched, Outcome, Refused, RemovalRequested, Stored, Unknown
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule, stored_fire

FULL = Refused(503, 10077, "maximum messages exceeded")
NO_ANSWER = Unknown("no answer")
NO_STREAM = Unknown("no stream listens", may_be_stored=False)
EVERY = schedule("@every 5s", body=b"hello")
HOURLY = schedule("@every 1h")
AT_START = schedule("@at 2026-01-01T00:00:00Z")


def test_a_stored_fire_moves_the_schedule_on_without_another_read() -> None:
    desk = Desk(EVERY)
    desk.concluded(desk.in_flight(EVERY, 5), Stored(2))
    assert (desk.due, desk.engine.fires_stored, desk.engine.is_idle) == (10, 1, True)
    flight = desk.held().flight
    assert flight is not None
    assert flight.fire is not None
    assert (desk.fires, desk.wake) == ([], 10)
    assert desk.at(10).reads == []
    assert (desk.fire.fire_time, desk.fire.body) == (desk.now, b"hello")


def test_a_duplicate_counts_as_stored_once_it_was_looked_at() -> None:
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    desk.concluded(fire, Stored(2, duplicate=True))
    assert (desk.asked(FetchDuplicate), desk.due) == ([FetchDuplicate(fire, 2)], 5)
    desk.step(DuplicateFetched(fire, 2, stored_fire(fire, 2, desk.now), desk.now))
    assert desk.due == 10
    assert [event.duplicate for event in desk.reported(FireStored)] == [True]


def test_an_unknown_outcome_repeats_the_same_fire_until_it_is_known() -> None:
    desk = Desk(EVERY)
    fire = desk.in_flight(EVERY, 5)
    for seconds in (6, 8, 30, 3600):
        desk.concluded(fire, NO_ANSWER)
        assert desk.reported(FireUnknown) == [FireUnknown(fire, "no answer", desk.held().wake - desk.now)]
        assert desk.at(seconds).fires == [fire], "the same object, and so the same bytes and the same identity"
    desk.concluded(fire, Stored(2))
    assert desk.fire.fire_time == START + 3600 * SECOND, "and only then what came due meanwhile is made up"


def test_the_pause_after_an_unknown_outcome_doubles_up_to_a_second() -> None:
    desk = Desk(HOURLY)
    fire = desk.in_flight(HOURLY, 3600)
    pauses = []
    for _ in range(7):
        desk.concluded(fire, NO_ANSWER)
        pauses.append(round(desk.wake - (desk.now - START) / SECOND, 3))
        desk.at(desk.wake)
    assert pauses == [0.05, 0.1, 0.2, 0.4, 0.8, 1, 1]


def test_a_refused_fire_may_stand_for_later_ones() -> None:
    desk = Desk(EVERY)
    desk.concluded(desk.in_flight(EVERY, 5), FULL)
    desk.at(17)
    desk.found(EVERY)
    assert desk.fire.fire_time == START + 15 * SECOND
    desk.concluded(desk.fire, Stored(2))
    missed = FiresMissed(SCHEDULE, 1, START + 5 * SECOND, START + 15 * SECOND, while_running=True)
    assert desk.reported(FiresMissed) == [missed]


def test_a_fire_that_is_never_answered_leads_to_a_look_at_its_schedule() -> None:
    """A stream with `no_ack` answers nothing, also when its guard refuses the fire of a schedule that is gone."""
    desk = Desk(AT_START)
    fire = desk.in_flight(AT_START, 1)
    for _ in range(ATTEMPTS_PER_FETCH):
        assert desk.reads == []
        desk.concluded(fire, NO_ANSWER)
        desk.at((desk.now - START) / SECOND + 5)
    assert desk.reads == [(SCHEDULE, 1)]
    desk.found(None, of=AT_START)
    assert not desk.is_held()


def test_an_unanswered_fire_is_not_repeated_beyond_the_duplicate_window() -> None:
    desk = Desk(AT_START, silent=True)
    fire = desk.in_flight(AT_START, 1)
    for attempt in range(SILENT_ATTEMPTS):
        desk.concluded(fire, NO_ANSWER)
        assert desk.at(10 * (attempt + 1)).fires == [fire]
    desk.concluded(fire, NO_ANSWER)
    assert desk.purges == [(SCHEDULE, 1)]


def test_a_fire_taken_for_stored_leads_to_a_look_before_the_next_one() -> None:
    """The guard may have refused it in silence, since the schedule was removed while the fire was in flight."""
    desk = Desk(EVERY, silent=True)
    fire = desk.in_flight(EVERY, 5)
    desk.step(RemovalRequested(SCHEDULE))
    for seconds in (6, 7):
        desk.concluded(fire, NO_ANSWER)
        assert desk.at(seconds).fires == [fire]
    desk.concluded(fire, NO_ANSWER)
    assert (desk.due, desk.at(10).reads) == (10, [(SCHEDULE, 1)])
    desk.found(None, of=EVERY)
    assert not desk.is_held()


def test_a_drain_leaves_behind_only_fires_that_may_be_stored() -> None:
    courses: list[list[tuple[Outcome, bool]]] = [
        [(NO_ANSWER, True)],
        [(NO_STREAM, False)],
        [(NO_ANSWER, True), (NO_STREAM, True)],
        [(NO_ANSWER, True), (Stored(2), False)],
        [(FULL, False)],
    ]
    for course in courses:
        desk = Desk(EVERY)
        fire = desk.in_flight(EVERY, 5)
        for seconds, (outcome, is_left_behind) in enumerate(course, 6):
            desk.concluded(fire, outcome)
            assert desk.engine.has_unknown is is_left_behind, course
            desk.at(seconds)
