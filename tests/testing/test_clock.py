"""The manual clock stops until it is advanced, and steps forwards and backwards."""

import pytest

from nats_scheduler.runtime.clock import Clock
from nats_scheduler.testing.manual_clock import START, ManualClock


def test_the_manual_clock_stands_still_until_it_is_advanced() -> None:
    still: Clock = ManualClock()
    assert [still.now(), still.now(), still.monotonic()] == [START, START, 0]
    clock = ManualClock(1_000)
    clock.advance(7)
    assert (clock.now(), clock.monotonic()) == (1_007, 7)
    for instant in (0, 999, 5_000):
        clock.set(instant)
        assert (clock.now(), clock.monotonic()) == (instant, 7)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)
