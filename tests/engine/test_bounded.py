"""Schedules whose policies bound their fire times: the last fire says so, and the schedule ends with it."""

import pytest

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.inputs import Refused, Stored
from nats_scheduler.engine.views.outlook import State
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import SCHEDULE, Desk, endings, fire_times, plain, schedule, world_holding

TARGET = {"Nats-Schedule-Target": "t.out"}
EVERY_5S = {"Nats-Schedule": "@every 5s", **TARGET}
LIMITED = {**EVERY_5S, "Nats-Schedule-X-Limit": "3"}
UNTIL_16S = {**EVERY_5S, "Nats-Schedule-X-End": "2026-01-01T00:00:16Z"}


@pytest.mark.parametrize("headers", [LIMITED, UNTIL_16S], ids=["limit", "end"])
def test_the_last_fire_ends_the_schedule_and_removes_it(headers: dict[str, str]) -> None:
    world = world_holding(headers)
    world.advance("1m")
    assert fire_times(world) == [5, 10, 15]
    following = [message.header("Nats-Schedule-Next") for message in world.generated]
    assert following == ["2026-01-01T00:00:10Z", "2026-01-01T00:00:15Z", "purge"]
    assert [message.subject for message in world.stream.messages()] == ["t.out"] * 3
    assert endings(world) == [Ending.FIRED]
    assert world.next_fire("s.one") is None


def test_the_last_fire_is_repeated_while_it_is_refused() -> None:
    message = schedule("@every 5s", Nats_Schedule_X_Limit="1")
    desk = Desk(message).at(4.5)
    desk.found(message)
    assert desk.at(5).fire.next_fire is None
    desk.concluded(desk.fire, Refused(503, 10077, "maximum messages exceeded"))
    desk.at(6)
    listed = desk.engine.view().schedule(SCHEDULE, desk.now)
    assert listed is not None
    assert (listed.state, listed.next_fire) == (State.FAILING, START + 5 * SECOND)
    desk.at(60).found(message)
    desk.concluded(desk.fire, Stored(2))
    assert desk.purges == [(SCHEDULE, 1)], "the purge names the version that fired"
    desk.read(plain(SCHEDULE, 3))
    assert not desk.is_held()
