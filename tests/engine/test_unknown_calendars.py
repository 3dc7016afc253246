"""Schedules whose calendar does not exist or is invalid: they wait, and nothing is lost or stored twice."""

import pytest

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.views.figures import State
from nats_scheduler.schedule.instants import DAY
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import endings, world_holding
from tests.engine.test_calendars import DAILY, ONE, TARGET, days, listed, missed, reported, state

CONSUMED = {"retention": "workqueue"}
PAST = {**DAILY, "Nats-Schedule": "@at 2025-12-31T23:00:00Z", "Nats-Schedule-Target": "t.past"}


@pytest.mark.parametrize(
    ("calendars", "reason"),
    [({}, "there is no such calendar"), ({"work": "soon"}, "line 1 contains 'soon'")],
    ids=["missing", "invalid"],
)
@pytest.mark.parametrize("left", [True, False])
def test_without_its_calendar_a_schedule_waits_and_says_so(calendars: dict[str, str], reason: str, left: bool) -> None:
    world = world_holding(DAILY, calendars=calendars)
    world.advance("57h")
    assert days(world) == []
    assert (state(world), listed(world).next_fire) == (State.NO_CALENDAR, None)
    (fault,) = reported(world)
    assert fault[1].startswith(reason)
    assert world.engine.figures(world.now).finish().overdue == 0, "it is shown as what it is"
    world.set_calendar("work", "2026-01-03" if left else "2026-01-01..2026-01-03")
    assert days(world) == ([2] if left else []), "what came due meanwhile is made up, as far as the calendar leaves it"
    assert missed(world) == ([(1, 2)] if left else [])
    world.advance("24h")
    assert days(world) == ([2, 4] if left else [4])
    assert [name for name, fault, _count in reported(world) if not fault] == ["work"]


def test_a_calendar_that_is_deleted_stops_its_schedules_until_it_is_back_also_during_a_restart() -> None:
    world = world_holding(DAILY, calendars={"work": "2026-01-03"})
    world.advance("10h")
    world.delete_calendar("work")
    world.advance("48h")
    assert days(world) == [1]
    assert state(world) is State.NO_CALENDAR
    world.set_calendar("work", "2026-01-03")
    world.advance("24h")
    assert days(world) == [1, 2, 4]
    assert endings(world) == []
    world.delete_calendar("work")
    world.advance("30h")
    world._calendars["work"] = ""
    world.restart("1h")
    assert days(world) == [1, 2, 4, 5]


@pytest.mark.parametrize("config", [{}, CONSUMED], ids=["limits", "consumed"])
@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "never there"])
def test_a_restart_without_the_calendar_changes_nothing(config: dict[str, str], deleted: bool) -> None:
    """The checkpoint says up to when the schedules of a calendar are settled: nothing is lost, or stored twice."""
    world = world_holding(DAILY, config=config, calendars={"work": ""} if deleted else {})
    world.publish("s.other", {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "t.other"})
    world.advance("10h")
    if deleted:
        assert days(world)[-1] == 1
        if config:
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


@pytest.mark.parametrize("config", [{}, CONSUMED], ids=["limits", "consumed"])
def test_what_was_past_when_it_was_stored_waits_for_its_calendar_across_restarts(config: dict[str, str]) -> None:
    world = ScheduleWorld(config=config)
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


def test_a_checkpoint_names_no_schedule_that_was_replaced_while_it_waited_for_its_calendar() -> None:
    world = ScheduleWorld()
    for _ in range(3):
        last = world.publish("s.past", PAST)
        world.advance("1m")
    assert world.checkpoint.unsettled == {last}
    world.publish("s.past", DAILY)
    world.advance("1m")
    assert world.checkpoint.unsettled == frozenset()


def test_a_waiting_schedule_can_be_replaced_and_deleted_and_is_ended_by_its_ttl() -> None:
    world = world_holding(DAILY)
    world.publish("s.short", {**DAILY, "Nats-TTL": "2h"})
    world.advance("24h")
    assert endings(world) == [Ending.EXPIRED]
    world.publish(ONE, {"Nats-Schedule": "@every 6h", **TARGET})
    world.delete(world.publish("s.two", DAILY))
    world.set_calendar("work", "")
    world.advance("48h")
    assert {one.schedule for one in world.generated} == {ONE}
