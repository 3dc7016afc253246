"""The days that are left out, in an answer with the next fires of a schedule, as far as there is room."""

import pytest

from nats_scheduler.engine.views.pages import Sliced
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.bounds import Bounded, Bounds
from nats_scheduler.schedule.calendars import Days
from nats_scheduler.schedule.instants import DAY, HOUR
from nats_scheduler.schedule.patterns import Every
from nats_scheduler.service.patterns import excepted_among

EVERY_SECOND_DAY = tuple(Days(day, day) for day in range(1, 100, 2))
TIMETABLE = Timetable(Bounded(Every("@every 6h", 6 * HOUR), Bounds(excepted=EVERY_SECOND_DAY)), 0)
FIRES = TIMETABLE.fires(40)


def row(day: int) -> tuple[int, int]:
    """Return the first and the last fire time of a day that is left out."""
    return day * DAY, day * DAY + 18 * HOUR


def test_the_rows_before_the_last_fire_are_found() -> None:
    rows, left = Sliced(excepted_among(TIMETABLE, 0, FIRES, 1_000)).finish()
    assert rows == [row(day) for day in range(1, FIRES[-1] // DAY, 2)]
    assert left == FIRES
    assert rows == list(TIMETABLE.excepted_fires(0, FIRES[-1]))


@pytest.mark.parametrize("most", [0, 1, 2, 3])
def test_what_has_no_room_is_left_out_with_the_fires_behind_it(most: int) -> None:
    rows, left = Sliced(excepted_among(TIMETABLE, 0, FIRES, most)).finish()
    assert rows == [row(day) for day in range(1, 2 * most, 2)]
    assert left == [fire for fire in FIRES if fire < row(2 * most + 1)[0]]


def test_the_first_fire_is_shown_whatever_is_before_it() -> None:
    first = next(fire for fire in FIRES if fire > 6 * DAY)
    rows, left = Sliced(excepted_among(TIMETABLE, 0, [first, first + 6 * HOUR], 1)).finish()
    assert (rows, left) == ([row(1), row(3), row(5)], [first])


def test_nothing_is_said_of_days_that_have_passed() -> None:
    """The first fire is overdue."""
    overdue = [fire for fire in FIRES if fire < DAY][-1:]
    rows, _left = Sliced(excepted_among(TIMETABLE, 2 * DAY, [*overdue, 4 * DAY], 1_000)).finish()
    assert rows == [row(3)]


def test_a_schedule_without_fires_has_no_rows() -> None:
    assert Sliced(excepted_among(TIMETABLE, 0, [], 1_000)).finish() == ([], [])
