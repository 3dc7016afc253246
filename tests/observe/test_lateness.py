"""Quantiles lie in the bucket that contains them, and sums are those of all fires."""

from bisect import bisect_left
from itertools import pairwise
from random import Random

import pytest

from nats_scheduler.observe.activity import Minute, nothing_in, total_of
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.schedule.instants import MICROSECOND, MILLISECOND, SECOND

BOUNDS = tuple(round(one * SECOND) for one in LATENESS_BUCKETS_SECONDS)


def counted(lateness: list[int]) -> Minute:
    counts = [0] * (len(BOUNDS) + 1)
    for one in lateness:
        counts[bisect_left(BOUNDS, one)] += 1
    return Minute(0, len(lateness), 0, 0, 0, tuple(counts), max(lateness, default=0))


def with_counts(most: int, **counts: int) -> Minute:
    """Return a minute with the given numbers of fires in the buckets at these places."""
    lateness = tuple(counts.get(f"at_{place}", 0) for place in range(len(BOUNDS) + 1))
    return Minute(0, sum(lateness), 0, 0, 0, lateness, most)


def test_a_quantile_is_interpolated_within_its_bucket() -> None:
    one = with_counts(0, at_0=10, at_1=10, at_2=20)
    found = [one.quantile(share) for share in (0.125, 0.25, 0.375, 0.5, 0.75, 1)]
    assert found == [microseconds * MICROSECOND for microseconds in (250, 500, 750, 1_000, 1_250, 1_500)]
    assert with_counts(800 * MICROSECOND, at_1=4).quantile(0.5) == 650 * MICROSECOND, "the bucket ends at the greatest"
    assert with_counts(100 * SECOND, at_13=4).quantile(0.5) == 80 * SECOND
    assert with_counts(0, at_13=4).quantile(0.99) == 60 * SECOND, "of the last bucket only the beginning is known"
    assert nothing_in(0).quantile(0.99) is None


def test_the_median_of_some_usual_fires() -> None:
    lateness = [300 * MICROSECOND] * 90 + [7 * MILLISECOND] * 10
    assert counted(lateness).quantile(0.5) == round(500 * MICROSECOND * 50 / 90)
    p99 = counted(lateness).quantile(0.99)
    assert p99 is not None
    assert 5 * MILLISECOND < p99 <= 7 * MILLISECOND


@pytest.mark.parametrize("seed", range(30))
def test_a_quantile_lies_in_the_bucket_of_the_fire_with_that_rank(seed: int) -> None:
    random = Random(seed)
    lateness = sorted(int(10 ** random.uniform(4, 11)) for _ in range(random.randrange(1, 300)))
    found = counted(lateness)
    quantiles = [found.quantile(share / 100) for share in range(101)]
    for share, quantile in enumerate(quantiles):
        assert quantile is not None
        exact = lateness[max(-(-len(lateness) * share // 100) - 1, 0)]
        place = bisect_left(BOUNDS, exact)
        lower = BOUNDS[place - 1] if place else 0
        upper = BOUNDS[place] if place < len(BOUNDS) else lateness[-1]
        assert lower <= quantile <= min(upper, lateness[-1])
    assert all(one <= other for one, other in pairwise(one for one in quantiles if one is not None))


@pytest.mark.parametrize("seed", range(30))
def test_the_sum_is_the_histogram_of_all_fires(seed: int) -> None:
    random = Random(seed)
    parts = [
        [int(10 ** random.uniform(4, 11)) for _ in range(random.randrange(40))] for _ in range(random.randrange(6))
    ]
    assert total_of(map(counted, parts)) == counted([one for part in parts for one in part])
