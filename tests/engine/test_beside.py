"""A fire that was requested disturbs no schedule, and no sidecar takes it for a forgery or a fault."""

import pytest

from nats_scheduler.engine.events import (
    Event,
    FireForged,
    FireReadBack,
    HeadersMisnamed,
    ScheduleEnded,
    ScheduleRejected,
)
from nats_scheduler.message.generated import BY
from nats_scheduler.message.identity import beside_identity, fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.testing.clock import START
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import SCHEDULE, TARGET, Desk
from tests.harness.blocks import block_of

EVERY_5S = {"Nats-Schedule": "@every 5s", "Nats-Schedule-Target": TARGET}
FAULTS = (FireForged, ScheduleRejected, HeadersMisnamed, ScheduleEnded)


def requested(fire_time: int, *, of: str = SCHEDULE, x: str = "", following: int | None = None) -> dict[str, str]:
    """Return the headers of a fire that was requested."""
    headers = {f"{x}Nats-Scheduler": of}
    if following is not None:
        headers[f"{x}Nats-Schedule-Next"] = format_rfc3339(following)
    return {**headers, BY.decode(): "fire", "Nats-Msg-Id": beside_identity(of, 1, fire_time)}


def events(world: ScheduleWorld, *kinds: type[Event]) -> list[Event]:
    return [event for event in world.events if isinstance(event, kinds)]


@pytest.mark.parametrize("x", ["", "X-"])
@pytest.mark.parametrize("has_next", [True, False])
def test_it_neither_advances_nor_disturbs_its_schedule(x: str, has_next: bool) -> None:
    world = ScheduleWorld()
    world.publish(SCHEDULE, EVERY_5S)
    world.advance("7s")
    following = START + 10 * SECOND if has_next else None
    world.publish(TARGET, requested(START + 7 * SECOND, x=x, following=following))
    world.publish(TARGET, requested(START + 60 * SECOND, x=x, following=following))
    world.advance("14s")
    assert [(one.fire_time - START) / SECOND for one in world.generated] == [5, 10, 15, 20]
    assert events(world, *FAULTS) == []


def test_it_leaves_the_schedule_alive_on_which_it_lands() -> None:
    world = ScheduleWorld()
    world.publish(SCHEDULE, EVERY_5S)
    world.publish("s.other", {**EVERY_5S, "Nats-Schedule": "@every 1h"})
    world.advance("7s")
    world.publish(SCHEDULE, requested(START + 7 * SECOND, of="s.other", following=START + 3_600 * SECOND))
    world.advance("9s")
    assert [(one.fire_time - START) / SECOND for one in world.generated] == [5, 10, 15]
    assert events(world, *FAULTS) == []


def test_one_that_lands_on_its_own_schedule_ends_it() -> None:
    world = ScheduleWorld()
    world.publish(SCHEDULE, EVERY_5S)
    world.advance("7s")
    world.publish(SCHEDULE, requested(START + 7 * SECOND))
    world.advance("9s")
    assert [(one.fire_time - START) / SECOND for one in world.generated] == [5]


def test_a_schedule_that_claims_such_an_identity_is_a_schedule() -> None:
    world = ScheduleWorld()
    world.publish(SCHEDULE, EVERY_5S | {"Nats-Msg-Id": beside_identity(SCHEDULE, 1, START)})
    world.advance("7s")
    assert [(one.fire_time - START) / SECOND for one in world.generated] == [5]


@pytest.mark.parametrize("policies", [{}, {"Nats-Schedule-X-Report": "true"}])
def test_a_past_fire_that_is_stored_later_disturbs_nothing_and_is_not_late(policies: dict[str, str]) -> None:
    world = ScheduleWorld()
    world.publish(SCHEDULE, EVERY_5S | policies)
    world.advance("7s")
    world.restart(after="12s")
    world.advance("2s")  # the fire of 10 s was collapsed into the one of 15 s
    past = START + 10 * SECOND
    headers = {"Nats-Scheduler": SCHEDULE, "Nats-Schedule-Next": format_rfc3339(past + 5 * SECOND)}
    headers |= {"Nats-Msg-Id": fire_identity(SCHEDULE, 1, past)}
    world.publish(TARGET, headers | {BY.decode(): "backfill"})
    world.advance("8s")
    assert [(one.fire_time - START) / SECOND for one in world.generated] == [5, 15, 20, 10, 25]
    assert events(world, *FAULTS) == []
    read_back = [one for one in events(world, FireReadBack) if isinstance(one, FireReadBack) and one.fire_time == past]
    assert [one.overdue for one in read_back] == [True]


@pytest.mark.parametrize(("by", "overdue"), [([], False), ([(BY, "backfill")], True)])
def test_when_it_was_stored_says_nothing_about_punctuality(by: list[tuple[bytes, str]], overdue: bool) -> None:
    identity = fire_identity(SCHEDULE, 1, START)
    block = block_of(("Nats-Scheduler", SCHEDULE), ("Nats-Schedule-Next", "purge"), ("Nats-Msg-Id", identity), *by)
    desk = Desk()
    desk.read(StoredMessage(TARGET, 2, START + 60 * SECOND, block, b""))
    assert [event.overdue for event in desk.reported(FireReadBack)] == [overdue]
