"""Schedules with policies for missed fires, and what became of them."""

from collections.abc import Mapping

from nats_scheduler.engine.events import FiresMissed
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MINUTE
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET
from tests.harness.blocks import block_of


def policies(missed: str = "", grace: str = "", report: str = "", **more: str) -> dict[str, str]:
    """Return the headers of these policies."""
    named = {"Missed": missed, "Grace": grace, "Report": report, **more}
    return {f"Nats-Schedule-X-{name.replace('_', '-')}": value for name, value in named.items() if value}


def headers(pattern: str, found: Mapping[str, str]) -> dict[str, str]:
    return {"Nats-Schedule": pattern, "Nats-Schedule-Target": TARGET, **found}


def stored_in(pattern: str, found: Mapping[str, str], sequence: int = 1) -> StoredMessage:
    block = block_of(*headers(pattern, found).items())
    return StoredMessage(SCHEDULE, sequence, START, block, b"")


def world_of(pattern: str, found: Mapping[str, str], *, guard: bool = True) -> ScheduleWorld:
    world = ScheduleWorld(guard=guard)
    world.publish(SCHEDULE, headers(pattern, found))
    return world


def fired(world: ScheduleWorld) -> list[int]:
    """Return the fire times of what was stored, in minutes after the start, in the order of storage."""
    return [(one.fire_time - START) // MINUTE for one in world.generated]


def dropped(world: ScheduleWorld) -> list[tuple[int, int, str]]:
    """Return what was reported as dropped: the first in minutes after the start, how many, and the policy."""
    events = [event for event in world.events if isinstance(event, FiresMissed)]
    return [((event.first - START) // MINUTE, event.dropped, event.policy) for event in events]
