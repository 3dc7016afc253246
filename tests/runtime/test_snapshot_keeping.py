"""A snapshot waits while its stream is being loaded, and no longer; what it has is tested with real servers (e2e)."""

import pytest

from nats_scheduler.runtime.snapshots import SNAPSHOT_CHECK_INTERVAL_SECONDS, is_loading


def written_after(rate: int, seconds: float) -> float:
    """Return when (s) a snapshot would begin if `rate` messages a second arrive for `seconds`."""
    at = arrived = tail = 0.0
    while tail < 20_000 or is_loading(int(arrived), int(tail)):
        at += SNAPSHOT_CHECK_INTERVAL_SECONDS
        before, tail = tail, rate * min(at, seconds)
        arrived = tail - before
        assert at < 86_400, "it waits for ever"
    return at


@pytest.mark.parametrize("rate", [20_000, 40_000, 60_000])
@pytest.mark.parametrize("count", [100_000, 1_000_000, 10_000_000])
def test_the_first_snapshot_of_a_load_has_all_of_it(rate: int, count: int) -> None:
    seconds = count / rate
    assert seconds <= written_after(rate, seconds) <= seconds + 2 * SNAPSHOT_CHECK_INTERVAL_SECONDS


@pytest.mark.parametrize("rate", [1, 100, 2_000, 10_000, 100_000, 1_000_000])
def test_what_never_ends_delays_it_by_a_quarter_of_an_hour_at_most(rate: int) -> None:
    enough = 20_000 / rate
    assert written_after(rate, 1e9) <= max(enough, 15 * 60) + SNAPSHOT_CHECK_INTERVAL_SECONDS
