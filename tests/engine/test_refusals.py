"""Of refused fires one is retried soon for all, and all are retried as soon as that one succeeds."""

from dataclasses import dataclass, field

import pytest

from nats_scheduler.engine.events import (
    AttemptRefused,
    FireRefused,
    FiresDropped,
    FiresMissed,
    SchedulesFailing,
    StillRefused,
)
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.holding import refusals
from nats_scheduler.engine.holding.refusals import REMINDER_INTERVAL_NS, RETRIES_PER_STORED
from nats_scheduler.engine.inputs import ContentFetched, Refused, Stored, StreamChanged
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.testing.manual_clock import START
from nats_scheduler.testing.network import DONE, Fate, Perfect
from nats_scheduler.testing.world import ScheduleWorld
from tests.engine.direct import Desk, events, schedule

FULL = Refused(503, 10077, "maximum messages exceeded")
DENIED = Refused(403, 403, "our user may not publish to the target")
LIVE = 3 * SECOND
"""Within this time (ns) fires resume, as *Live* promises."""


@dataclass
class Refusing(Perfect):
    """A server that refuses fires to some targets, and takes 2 ms to answer."""

    targets: dict[str, Refused] = field(default_factory=dict)
    attempts: int = 0

    def publish(self, fire: Fire) -> Fate:
        """Refuse fires to the targets that are refused at the moment."""
        refusal = self.targets.get(fire.target)
        self.attempts += refusal is not None
        return DONE._replace(refusal=refusal, answer_takes=2 * MILLISECOND)


def world_with(count: int, pattern: str = "@every 10s", **targets: Refused) -> tuple[ScheduleWorld, Refusing]:
    """Make a world with schedules whose fires go to `out`."""
    network = Refusing(dict(targets))
    world = ScheduleWorld(network=network)
    for number in range(count):
        world.publish(f"s.{number}", {"Nats-Schedule": pattern, "Nats-Schedule-Target": "out"})
    return world, network


@pytest.mark.parametrize("refused_for", ["15s", "71s"])
@pytest.mark.parametrize("refusal", [FULL, DENIED])
def test_fires_resume_within_three_seconds_after_the_reason_is_gone(refused_for: str, refusal: Refused) -> None:
    world, network = world_with(40, "@at 2026-01-01T00:00:05Z", out=refusal)
    world.advance(refused_for)
    assert world.generated == []
    network.targets.clear()
    world.advance(LIVE)
    assert len({fired.schedule for fired in world.generated}) == len(world.generated) == 40


def test_a_stream_that_refuses_many_is_asked_about_once_a_second() -> None:
    world, network = world_with(100, out=FULL)
    world.advance("40s")
    before = network.attempts
    world.advance("40s")
    assert network.attempts - before <= 44 + 2 * 100, "one each second, and each of them each half minute"
    told = events(world, AttemptRefused)
    assert len(told) == network.attempts
    assert {(one.fire.schedule, one.code, one.description) for one in told} == {
        (f"s.{number}", FULL.code, FULL.description) for number in range(100)
    }
    waits = [one.retry_after for one in told]
    assert 0 < min(waits) <= SECOND < 30 * SECOND <= max(waits), "one tries for all, and the others rest"


def test_the_one_that_tries_for_all_may_end_and_another_tries() -> None:
    world, network = world_with(3, out=FULL)
    world.advance("40s")
    world.purge("s.0")
    world.purge("s.1")
    network.targets.clear()
    world.advance(LIVE)
    assert {fired.schedule for fired in world.generated} == {"s.2"}


@pytest.mark.parametrize("change", ["purge", "configuration"])
def test_a_change_of_the_stream_is_tried_at_once(change: str) -> None:
    world, network = world_with(20, "@at 2026-01-01T00:00:05Z", out=FULL)
    world.advance("65s")
    network.targets.clear()
    if change == "purge":
        world.purge("something.else")
    else:
        world._pass_on(StreamChanged())
    world.advance(200 * MILLISECOND)
    assert len(world.generated) == 20


def test_who_asks_for_changes_all_the_time_does_not_make_us_hammer() -> None:
    world, network = world_with(20, out=FULL)
    world.advance("40s")
    before = network.attempts
    for _ in range(300):
        world.purge("something.else")
        world.advance(MILLISECOND)
    assert network.attempts - before <= 8


def test_each_that_is_stored_lets_others_try() -> None:
    messages = [schedule("@every 5s", number, f"s.{number}") for number in range(1, 9)]
    desk = Desk(*messages).at(4)
    desk.step(*(ContentFetched(m.subject, m.sequence, m, None) for m in messages))
    for fire in desk.at(5).fires:
        desk.concluded(fire, FULL)
    [(subject, _sequence)] = desk.at(5.06).reads
    desk.found(next(message for message in messages if message.subject == subject))
    desk.concluded(desk.fire, Stored(20))
    assert len(desk.reads) == RETRIES_PER_STORED


@pytest.mark.parametrize("is_replaced", [False, True])
@pytest.mark.parametrize("pattern", ["@every 2s", "@at 2026-01-01T00:00:02Z"])
def test_a_schedule_that_ends_while_refused_is_told_with_the_refusal(pattern: str, is_replaced: bool) -> None:
    world, network = world_with(1, pattern, out=DENIED)
    world.advance("40s")
    if is_replaced:
        network.targets.clear()
        world.publish("s.0", {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "out"})
    else:
        world.purge("s.0")
    world.advance("2s")
    assert events(world, FiresDropped) == [FiresDropped("s.0", 1, START + 2 * SECOND, 403, DENIED.description)]
    assert events(world, FiresMissed) == []


def test_a_lasting_refusal_is_told_again_with_its_number_and_since_when() -> None:
    world, network = world_with(3, "@every 2s", out=FULL)
    world.advance(2 * SECOND + REMINDER_INTERVAL_NS + 2 * SECOND)
    [again] = events(world, StillRefused)
    assert (again.schedule[:2], again.code, again.description, again.count) == ("s.", 10077, FULL.description, 3)
    assert again.since == pytest.approx(START + 2 * SECOND, abs=SECOND // 10)
    assert len(events(world, FireRefused)) == 3
    network.targets.clear()
    world.advance("5s")
    counts = [event.count for event in events(world, SchedulesFailing)]
    assert (max(counts), counts[-1]) == (3, 0)


def test_the_wall_clock_stepping_back_keeps_nobody_waiting() -> None:
    world, network = world_with(3, out=FULL)
    world.advance("45s")
    world.step_clock(-4 * SECOND)
    network.targets.clear()
    world.advance(LIVE)
    assert {fired.schedule for fired in world.generated} == {"s.0", "s.1", "s.2"}


BEING_STORED = Refused(400, 10164, "wrong last sequence")
WRONG_LAST = Refused(400, 10071, "wrong last sequence: 0")


@pytest.mark.parametrize("refusal", [BEING_STORED, WRONG_LAST])
def test_what_concerns_one_subject_for_a_moment_is_tried_on_its_own(refusal: Refused) -> None:
    world, network = world_with(10, "@every 2s", out=refusal, never=refusal)
    for number in range(30):
        world.publish(f"never.{number}", {"Nats-Schedule": "@every 2s", "Nats-Schedule-Target": "never"})
    world.advance("9s")
    network.targets.pop("out")
    world.advance(600 * MILLISECOND)
    assert {fired.schedule for fired in world.generated} == {f"s.{number}" for number in range(10)}


def test_a_refusal_of_a_moment_costs_few_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MAX_OWN_RETRIES_PER_SECOND", 50)
    world, network = world_with(60, "@every 2s", out=BEING_STORED)
    world.advance("2500ms")
    before = network.attempts
    world.advance("1s")
    assert network.attempts - before <= 50 + 15
