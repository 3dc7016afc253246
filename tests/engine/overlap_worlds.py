"""Worlds with schedules that have `X-Overlap`, on a work queue or on a stream that keeps what is acknowledged."""

from collections.abc import Sequence
from typing import TypeVar

import pytest

from nats_scheduler.engine.actions import Action
from nats_scheduler.engine.fire import CheckFinished
from nats_scheduler.schedule.instants import HOUR, MILLISECOND, SECOND
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET

Kind = TypeVar("Kind")
QUEUE_STREAM, KEPT_STREAM = {"retention": "workqueue"}, {"retention": "limits"}
GUARDS = pytest.mark.parametrize("guard", [True, False], ids=["2.11", "2.10"])
WORKERS = "workers"
SLACK = 5 * SECOND + 100 * MILLISECOND
"""Longest time from the end of a fire to the question that notices it."""


def headers(overlap: str, pattern: str = "@every 1h", **more: str) -> dict[str, str]:
    policies = {f"Nats-Schedule-X-{name}": value for name, value in {"Overlap": overlap, **more}.items()}
    return {"Nats-Schedule": pattern, "Nats-Schedule-Target": TARGET, **policies}


def world_with(
    overlap: str, pattern: str = "@every 1h", *, guard: bool = True, kept: bool = False, **more: str
) -> ScheduleWorld:
    """Begin a world with a schedule, and with a consumer where the stream keeps what was acknowledged."""
    world = ScheduleWorld(guard=guard, config=KEPT_STREAM if kept else QUEUE_STREAM)
    if kept:
        world.stream.add_consumer(WORKERS, TARGET)
        more = {"Consumer": WORKERS, **more}
    world.publish(SCHEDULE, headers(overlap, pattern, **more))
    return world


def hours(world: ScheduleWorld, target: str = TARGET) -> list[float]:
    """Return the fire time of each stored fire, in hours since the start."""
    return [(one.fire_time - START) / HOUR for one in world.generated if one.subject == target]


def finish(world: ScheduleWorld) -> None:
    """Let the workers finish everything that is stored."""
    if WORKERS in world.stream.consumers:
        world.stream.consumers[WORKERS].acknowledge_all()
    else:
        world.stream.take(TARGET)


def events(world: ScheduleWorld, kind: type[Kind]) -> list[Kind]:
    return [event for event in world.events if isinstance(event, kind)]


class Counting(ScheduleWorld):
    """A world that keeps the questions."""

    def _carry_out(self, actions: Sequence[Action]) -> None:
        self.questions += [action for action in actions if isinstance(action, CheckFinished)]
        super()._carry_out(actions)

    def __init__(self) -> None:
        self.questions: list[CheckFinished] = []
        super().__init__(config=QUEUE_STREAM)


RETENTIONS = pytest.mark.parametrize("kept", [False, True], ids=["work queue", "limits"])
