"""Each minute of the server's clock gets its sample, also if nothing asks for one and the clock is set."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from nats_scheduler.observe.activity import MINUTES_KEPT, SAMPLE_LEAD_NS, Activity
from nats_scheduler.observe.fire_counts import FireMetrics
from nats_scheduler.runtime import sidecar as module
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.testing.clock import START, ManualClock
from tests.harness.waiting import eventually

NOON = START - START % HOUR


class Sampled:
    """A process whose minutes are sampled by a clock that moves only when it is set."""

    def __init__(self) -> None:
        self.fires = FireMetrics()
        self.activity = Activity(self.fires)
        self.clock = ManualClock(NOON)

    async def fires_are(self, expected: dict[int, int]) -> None:
        """Wait until these minutes after noon have these fires."""

        def found() -> bool:
            minutes = self.activity.minutes(self.clock.now(), MINUTES_KEPT)
            return {(one.start - NOON) // MINUTE: one.fires for one in minutes if one.fires} == expected

        await eventually(found, within_seconds=30, describe=f"fires {expected}")


@pytest.fixture
async def sampled(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Sampled]:
    monkeypatch.setattr(module, "CLOCK_CHECK_INTERVAL_SECONDS", 0.001)
    process = Sampled()
    process.fires.of("S").stored = 5
    task = asyncio.create_task(module.keep_sampling(process.activity, process.clock))
    await process.fires_are({0: 5})
    yield process
    task.cancel()


async def test_each_minute_is_sampled_just_before_it_begins(sampled: Sampled) -> None:
    sampled.fires.of("S").stored += 1
    sampled.clock.advance(MINUTE - SAMPLE_LEAD_NS)
    await sampled.fires_are({0: 6})
    sampled.fires.of("S").stored += 2
    sampled.clock.advance(MINUTE)
    await sampled.fires_are({0: 6, 1: 2})


async def test_a_clock_that_is_set_is_followed(sampled: Sampled) -> None:
    sampled.fires.of("S").stored += 1
    sampled.clock.set(NOON + 10 * MINUTE + SECOND)
    await sampled.fires_are({0: 6})
    sampled.fires.of("S").stored += 1
    sampled.clock.set(NOON - 30 * MINUTE)
    await sampled.fires_are({-30: 1})
