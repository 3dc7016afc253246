"""Many drivers on one timer: each is stepped when its time has come, and none without a reason.

With few fires a second nothing waits; with many they share wakes, and what arrives is taken with them.
"""

import asyncio
import time
from math import inf
from typing import Any

import pytest

from nats_scheduler.observe.metrics import Metrics
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.fewer_wakes import (
    MIN_FIRES_FOR_REST,
    MIN_FIRES_SHARED,
    RATE_SPAN_SECONDS,
    Moderation,
)
from nats_scheduler.runtime.wakes import CONTACT_STANDSTILL_LIMIT_NS, MAX_DUE_PER_TURN, MIN_WAKES_KEPT, Wakes
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.testing.manual_clock import START, ManualClock
from tests.harness.log_lines import capture_logs
from tests.harness.waiting import eventually

pytestmark = pytest.mark.usefixtures("quick_ticks")

SHORT_SECONDS = 15.0
DAY = 86_400 * SECOND
BUDGET = 0.005


class Sleeper:
    """Notes when it is stepped."""

    def __init__(self, name: str = "", steps: list[str] | None = None, budget: float = BUDGET) -> None:
        self.name = name
        self.budget = budget
        self.steps: list[str] = [] if steps is None else steps
        self.wake_at: int | None = None
        self.fires_in_flight = 0
        self.is_restless = False
        self.asked = 0
        self.reasons: list[str] = []

    def step(self) -> None:
        self.steps.append(self.name)

    def step_if_due(self) -> None:
        self.step()

    def step_if_restless(self) -> bool:
        self.asked += 1
        if self.is_restless:
            self.step()
        return self.is_restless

    def outdate(self, reason: str) -> None:
        self.reasons.append(reason)


async def test_who_has_something_under_way_is_stepped_at_each_tick() -> None:
    wakes, calm, restless = Wakes(SystemClock()), Sleeper(), Sleeper()
    restless.is_restless = True
    for sleeper in (calm, restless):
        wakes.attach(sleeper)
        wakes.wake(sleeper, SystemClock().now() + DAY)
    await eventually(lambda: restless.asked >= 3)
    assert (calm.asked, calm.steps) == (1, [])
    calm.is_restless = True
    wakes.ask_at_each_tick(calm)
    await eventually(lambda: len(calm.steps) >= 2)
    wakes.detach(calm)
    wakes.attach(calm)
    before = len(calm.steps)
    await eventually(lambda: len(calm.steps) > before)


async def test_each_is_stepped_at_the_instant_that_it_named_last() -> None:
    clock, steps = ManualClock(), list[str]()
    wakes = Wakes(clock)
    first, second, third = (Sleeper(name, steps) for name in ("first", "second", "third"))
    wakes.wake(second, START + 20 * MILLISECOND)
    wakes.wake(first, START + DAY)
    wakes.wake(first, START + 10 * MILLISECOND)
    wakes.wake(third, START + 5 * MILLISECOND)
    wakes.wake(third, START + DAY)
    clock.advance(SECOND)
    await eventually(lambda: len(steps) >= 2)
    assert steps == ["first", "second"]


async def test_whose_time_has_come_goes_before_to_whom_something_happened() -> None:
    clock, steps = ManualClock(), list[str]()
    wakes = Wakes(clock)
    for _ in range(3):
        wakes.soon(Sleeper("other", steps))
    for _ in range(MAX_DUE_PER_TURN):
        wakes.wake(Sleeper("due", steps), START)
    await eventually(lambda: len(steps) == MAX_DUE_PER_TURN + 3)
    assert steps == ["due"] * MAX_DUE_PER_TURN + ["other"] * 3


async def test_who_may_not_be_late_waits_for_nobody() -> None:
    steps, now = list[str](), SystemClock().now()
    wakes = Wakes(SystemClock())
    until = asyncio.get_running_loop().time() + 10 * SHORT_SECONDS
    wakes.moderation.not_before = lambda budget: until if budget else 0.0  # type: ignore[method-assign]
    wakes.wake(Sleeper("patient", steps), now)
    wakes.wake(Sleeper("later", steps), now + DAY)
    wakes.wake(Sleeper("punctual", steps, budget=0.0), now + 20 * MILLISECOND)
    await eventually(lambda: len(steps) == 2)
    assert sorted(steps) == ["patient", "punctual"]


async def test_what_was_replaced_is_not_kept() -> None:
    wakes, sleepers = Wakes(ManualClock()), [Sleeper() for _ in range(10)]
    for number in range(3 * MIN_WAKES_KEPT):
        wakes.wake(sleepers[number % 10], START + DAY + number % 20)
    assert len(wakes) <= MIN_WAKES_KEPT


async def test_a_standstill_ends_all_contacts_and_a_clock_set_back_steps_all() -> None:
    clock = ManualClock()
    wakes, sleepers = Wakes(clock), [Sleeper() for _ in range(10)]
    for sleeper in sleepers:
        wakes.attach(sleeper)
    clock.advance(CONTACT_STANDSTILL_LIMIT_NS + SECOND)
    wakes.check_standstill()
    wakes.check_standstill()
    assert [len(sleeper.reasons) for sleeper in sleepers] == [1] * 10
    clock.set(START - DAY)
    await eventually(lambda: all(sleeper.steps for sleeper in sleepers))


@pytest.mark.slow
async def test_a_loop_that_does_not_keep_up_is_told_as_overloaded() -> None:
    """Something keeps it busy for a tenth of a second, again and again."""
    loop = asyncio.get_running_loop()
    is_busy = True

    def keep_busy() -> None:
        until = time.perf_counter() + 0.1
        while time.perf_counter() < until:
            pass
        if is_busy:
            loop.call_soon(keep_busy)

    with capture_logs() as lines:
        metrics = Metrics()
        wakes = Wakes(SystemClock(), Reporter(metrics).loop_sampled)
        wakes.attach(sleeper := Sleeper())
        keep_busy()
        lines = await eventually(
            lambda: [line for line in lines if line["event"] == "overloaded"], within_seconds=4 * SHORT_SECONDS
        )
        is_busy = False
        wakes.detach(sleeper)
    assert lines[0]["log_level"] == "warning"
    assert lines[0]["loop_late_ms"] > 50
    assert metrics.registry.get_sample_value("nats_scheduler_overloaded") == 1


async def test_there_is_no_spare_time_while_a_fire_is_in_flight_or_due() -> None:
    clock = ManualClock(START)
    wakes, one, other = Wakes(clock), Sleeper(), Sleeper()
    assert wakes.spare_seconds() == inf
    wakes.attach(one)
    wakes.attach(other)
    wakes.wake(other, START + 2 * SECOND)
    wakes.wake(one, START + 3 * SECOND)
    assert wakes.spare_seconds() == 2.0
    clock.set(START + 5 * SECOND)
    assert wakes.spare_seconds() == 0.0, "it is due"
    clock.set(START)
    one.fires_in_flight, other.fires_in_flight = 3, 70
    wakes.ask_at_each_tick(one)
    wakes.ask_at_each_tick(other)
    assert (wakes.spare_seconds(), wakes.most_in_flight) == (0.0, 70)
    wakes.ask_no_more(other)
    assert wakes.most_in_flight == 3
    for sleeper in (one, other):
        wakes.detach(sleeper)


class Loop:
    """A loop whose time moves only when it is set, and that notes its rests."""

    def __init__(self) -> None:
        self.now = 1_000.0
        self.rests: list[float] = []

    def time(self) -> float:
        return self.now

    def rest_until(self, at: float) -> None:
        self.rests.append(at)


def send(loop: Any, one: Moderation, count: int, budget: float = BUDGET, turn_at: float = inf) -> None:
    """Take a turn in which `count` fires are sent; the next one is at `turn_at`."""
    one.sent(count)
    one.turn_ended(loop.now, budget)
    one.rest(turn_at)


def under_load(fires: float = MIN_FIRES_FOR_REST, budget: float = BUDGET) -> tuple[Any, Moderation]:
    """Return a loop, and its moderation, with as many `fires` within the budget in the span before this one."""
    loop: Any = Loop()
    one = Moderation(loop)
    send(loop, one, round(fires / budget * RATE_SPAN_SECONDS), budget)
    loop.now += RATE_SPAN_SECONDS
    loop.rests.clear()
    return loop, one


def test_fires_wait_for_others_within_their_budget() -> None:
    for budget in (BUDGET, 0.25):
        waits = []
        for fires in (MIN_FIRES_SHARED, 2 * MIN_FIRES_SHARED, 10 * MIN_FIRES_SHARED, 1_000 * MIN_FIRES_SHARED):
            loop, one = under_load(fires, budget)
            send(loop, one, 1, budget)
            waits.append(max(one.not_before(budget) - loop.now, 0.0))
        assert waits == pytest.approx([0.0, budget / 4, budget * 0.81, budget * 0.998], rel=0.001)


def test_a_rest_begins_when_enough_fires_were_sent_and_ends_in_time() -> None:
    for fires, count, ends_after in (
        (MIN_FIRES_FOR_REST, 1, BUDGET),
        (MIN_FIRES_FOR_REST / 2, 1, None),
        (MIN_FIRES_FOR_REST, 0, None),
    ):
        loop, one = under_load(fires)
        send(loop, one, count)
        rests = [at - loop.now for at in loop.rests if at > loop.now]
        assert rests == pytest.approx([] if ends_after is None else [ends_after]), (fires, count)
    loop, one = under_load()
    send(loop, one, 1, turn_at=loop.now + BUDGET / 2)
    one.turn_ended(loop.now, BUDGET)
    one.rest(inf)
    assert [at - loop.now for at in loop.rests] == pytest.approx([BUDGET / 2, BUDGET]), "a turn that sent nothing"


def test_while_one_awaits_something_urgent_there_is_no_rest() -> None:
    loop, one = under_load()
    one.hurry(1, is_urgent=True)
    one.hurry(2, is_urgent=True)
    one.hurry(2, is_urgent=False)
    send(loop, one, 1)
    assert set(loop.rests) == {0}, "an earlier rest ends, and none begins"
    one.hurry(1, is_urgent=False)
    send(loop, one, 1)
    assert loop.rests[-1] == pytest.approx(loop.now + BUDGET)
