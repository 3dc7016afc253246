"""Lateness as it is counted in buckets: sums, and quantiles by interpolation, as Prometheus computes them.

The rule: within a bucket the fires are taken as spread evenly. If the greatest lateness is known, its bucket ends
there, so that no quantile is greater than what occurred.
Cost: some microseconds.
Limit: a quantile is as exact as its bucket is narrow.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from nats_scheduler.schedule.instants import SECOND

MAX_BOUND_SECONDS = 1e9
"""All bounds are less."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """How many fires were how late."""

    bounds: tuple[int, ...] = ()
    """The upper bounds (ns) of all buckets but the last one, ascending."""
    counts: tuple[int, ...] = (0,)
    """Fires in each bucket, each without those before it; one more than there are bounds."""
    most: int = 0
    """The greatest lateness (ns); 0 if it is not known."""

    @property
    def total(self) -> int:
        """How many fires are counted."""
        return sum(self.counts)

    def quantile(self, share: float) -> int | None:
        """Return the lateness (ns) that a share (0 to 1) of the fires did not exceed; None without fires."""
        assert 0 <= share <= 1, f"share of {share}: 0 to 1 was expected"
        rank, before = share * self.total, 0
        for count, (lower, upper) in zip(self.counts, pairwise(self._edges()), strict=True):
            if count and before + count >= rank:
                end = min(upper, self.most) if self.most else upper
                return lower + round(max(end - lower, 0) * (rank - before) / count)
            before += count
        return None

    def _edges(self) -> list[int]:
        """Return where the buckets begin and end: the first begins at 0, the last ends at the greatest lateness."""
        last = self.bounds[-1] if self.bounds else 0
        return [0, *self.bounds, max(self.most, last)]


def histogram_of(bounds_seconds: Sequence[float], counts: Sequence[int], most: int) -> Histogram:
    """Return the histogram of an answer; counts that do not fit the bounds are none."""
    is_ascending = all(lower < upper for lower, upper in pairwise((0, *bounds_seconds, MAX_BOUND_SECONDS)))
    if not is_ascending or len(counts) != len(bounds_seconds) + 1:
        return Histogram()
    return Histogram(tuple(round(one * SECOND) for one in bounds_seconds), tuple(counts), most)


def sum_of(histograms: Iterable[Histogram]) -> Histogram:
    """Return all fires of histograms with equal bounds; one without fires may have others."""
    total = Histogram()
    for one in histograms:
        if not one.total:
            continue
        if not total.total:
            total = one
            continue
        assert one.bounds == total.bounds, "histograms of one answer have equal bounds"
        counts = tuple(map(int.__add__, total.counts, one.counts))
        total = Histogram(total.bounds, counts, max(total.most, one.most))
    return total
