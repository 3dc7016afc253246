"""Without a guard, a schedule that was read before the process stalled is read again before its late fire."""

import pytest

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import START
from tests.engine.direct import SCHEDULE, Desk, schedule

AT = "@at 2026-01-01T00:00:05Z"


def test_a_late_fire_is_looked_at_again_on_a_server_without_the_guard() -> None:
    message = schedule(AT)
    desk = Desk(message, guard=False).at(4.95)
    desk.found(message)
    desk.at(9)
    assert (desk.fires, desk.reads) == ([], [(SCHEDULE, 1)])
    desk.found(None, of=message)
    assert (desk.fires, desk.is_held()) == ([], False)


def test_what_is_still_there_fires_then() -> None:
    message = schedule(AT)
    desk = Desk(message, guard=False).at(4.95)
    desk.found(message)
    desk.at(9)
    desk.found(message)
    assert desk.fire.fire_time == START + 5 * SECOND


@pytest.mark.parametrize(("guard", "late"), [(True, 4.0), (False, 0.04)])
def test_no_other_fire_pays_for_it(guard: bool, late: float) -> None:
    message = schedule(AT)
    desk = Desk(message, guard=guard).at(4.95)
    desk.found(message)
    assert len(desk.at(5 + late).fires) == 1
