"""An outage is reported when it begins, while it lasts and at its end; each minute of the clock gets a sample."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from nats_scheduler.observe.activity import MINUTES_KEPT, SAMPLE_LEAD_NS, Activity
from nats_scheduler.observe.fire_counts import FireMetrics
from nats_scheduler.runtime import sidecar as module
from nats_scheduler.runtime.sidecar import REPORT_INTERVAL_NS, Outage
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.testing.manual_clock import START, ManualClock
from tests.harness.waiting import eventually

HALF_A_SECOND = SECOND // 2
NOON = START - START % HOUR


def test_a_reason_is_told_at_once_and_again_while_it_lasts() -> None:
    clock = ManualClock()
    outage, reported = Outage(clock.monotonic), []
    for attempt in range(140):  # 70 s, an attempt each half second
        said = outage.failed("connect_failed", "refused")
        if said is not None:
            reported.append((attempt / 2, said))
        clock.advance(HALF_A_SECOND)
    assert reported == [
        (0.0, {}),
        (30.0, {"seconds": 30.0, "attempts": 61}),
        (60.0, {"seconds": 60.0, "attempts": 121}),
    ]
    assert outage.over() == {"seconds": 70.0, "attempts": 140}


def test_another_reason_is_told_at_once_and_two_that_take_turns_are_no_flood() -> None:
    clock = ManualClock()
    outage, reported = Outage(clock.monotonic), []
    for attempt in range(60):
        if outage.failed("connect_failed", f"reason {attempt % 2}") is not None:
            reported.append(attempt)
        clock.advance(HALF_A_SECOND)
    assert reported == [0, 1]
    assert outage.failed("jetstream_unavailable", "reason 0") == {"seconds": 30.0, "attempts": 61}


def test_a_connection_at_the_first_attempt_says_nothing_of_an_outage_and_the_next_one_begins_anew() -> None:
    clock = ManualClock()
    outage = Outage(clock.monotonic)
    assert outage.over() == {}
    outage.begins()
    assert outage.over() == {}
    assert outage.failed("connect_failed", "refused") == {}
    clock.advance(REPORT_INTERVAL_NS // 2)
    outage.over()
    clock.advance(REPORT_INTERVAL_NS // 4)
    outage.begins()
    clock.advance(SECOND)
    outage.begins()
    assert outage.failed("connect_failed", "refused") == {}
    assert outage.over() == {"seconds": 1.0, "attempts": 1}


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

        await eventually(found, describe=f"fires {expected}")


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
