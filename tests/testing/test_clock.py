"""The manual clock stops until it is advanced, and steps forwards and backwards."""

import pytest

from nats_scheduler.runtime.clock import Clock
from nats_scheduler.testing.clock import START, ManualClock


def test_it_stands_still() -> None:
    clock: Clock = ManualClock()
    assert [clock.now(), clock.now(), clock.monotonic()] == [START, START, 0]


def test_time_passes_for_both_clocks() -> None:
    clock = ManualClock(1_000)
    clock.advance(7)
    assert (clock.now(), clock.monotonic()) == (1_007, 7)


@pytest.mark.parametrize("instant", [0, 999, 5_000])
def test_the_wall_clock_steps_either_way_without_time_passing(instant: int) -> None:
    clock = ManualClock(1_000)
    clock.advance(7)
    clock.set(instant)
    assert (clock.now(), clock.monotonic()) == (instant, 7)


def test_time_does_not_pass_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)
