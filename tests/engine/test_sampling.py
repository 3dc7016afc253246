"""Sampling: a fire repeats what was last stored on its source, at the moment of the fire."""

from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import START
from tests.engine.direct import Desk, schedule, world_holding

SAMPLING = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": "t.out", "Nats-Schedule-Source": "d.in"}


def test_the_source_is_read_when_the_fire_is_due_and_not_before() -> None:
    desk = Desk(schedule("@every 5s", Nats_Schedule_Source="d.in"))
    assert desk.wake == 5
    assert desk.at(4.9).reads == []
    assert desk.at(5).reads == [("s.one", 1)]


def test_the_last_message_of_the_source_is_repeated_and_else_its_own() -> None:
    world = world_holding({**SAMPLING, "Nats-Schedule": "@every 1s", "Own": "yes"}, b"own")
    world.advance("1s")
    for body, unit in ((b"20", "C"), (b"68", "F")):
        world.publish("d.in", {"Unit": unit}, body)
        world.advance("1s")
    world.settle()
    found = [(one.body, one.header("Unit"), one.header("Own"), one.fire_time - START) for one in world.generated]
    assert found == [
        (b"own", None, "yes", SECOND),
        (b"20", "C", None, 2 * SECOND),
        (b"68", "F", None, 3 * SECOND),
    ]
