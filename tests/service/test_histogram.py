"""Quantiles lie in the bucket that contains them, and sums are those of all fires."""

from bisect import bisect_left
from itertools import pairwise
from random import Random

import pytest

from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS
from nats_scheduler.schedule.instants import MICROSECOND, MILLISECOND, SECOND
from nats_scheduler.service.overview import Histogram, histogram_of, sum_of

BOUNDS = tuple(round(one * SECOND) for one in LATENESS_BUCKETS_SECONDS)


def counted(lateness: list[int]) -> Histogram:
    counts = [0] * (len(BOUNDS) + 1)
    for one in lateness:
        counts[bisect_left(BOUNDS, one)] += 1
    return histogram_of(LATENESS_BUCKETS_SECONDS, counts, max(lateness, default=0))


def test_a_quantile_is_interpolated_within_its_bucket() -> None:
    one = Histogram((10, 20, 40), (10, 10, 20, 0), 0)
    assert [one.quantile(share) for share in (0.125, 0.25, 0.375, 0.5, 0.75, 1)] == [5, 10, 15, 20, 30, 40]
    assert Histogram((10, 20), (0, 4, 0), 16).quantile(0.5) == 13, "the bucket ends at the greatest lateness"
    assert Histogram((10, 20), (0, 0, 4), 100).quantile(0.5) == 60
    assert Histogram((10, 20), (0, 0, 4), 0).quantile(0.99) == 20, "of the last bucket only the beginning is known"
    assert Histogram().quantile(0.99) is None


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
    total = sum_of(counted(part) for part in parts)
    everything = [one for part in parts for one in part]
    assert total == counted(everything) if everything else total.total == 0


@pytest.mark.parametrize(
    ("bounds", "counts"),
    [
        ((0.1, 0.2), (1, 2)),
        ((0.2, 0.1), (1, 2, 3)),
        ((0.1, 0.1), (1, 2, 3)),
        ((-0.1, 0.1), (1, 2, 3)),
        ((0.1, float("inf")), (1, 2, 3)),
        ((), ()),
    ],
)
def test_counts_that_do_not_fit_their_bounds_are_none(bounds: tuple[float, ...], counts: tuple[int, ...]) -> None:
    assert histogram_of(bounds, counts, 5) == Histogram()
