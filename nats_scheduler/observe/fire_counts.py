"""The stored fires of each stream and their lateness: counted at each fire, shown when metrics are requested.

A counter of `prometheus_client` is several objects with a lock, and its histogram has one for each bucket. Two events
of each fire are counted, and with a thousand streams none of those objects is in a cache of the processor by then.
So the counts of one stream are numbers in one small object, and the metrics are computed from them at a request.

The last fires are kept too, for requests that ask what fired just now.

The rule: the names, units and buckets are those that a counter and a histogram of `prometheus_client` would have.
Cost: a fraction of a microsecond a fire, and about half a megabyte for the last fires.
Limit: no series for the time at which a counter was created.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate
from operator import attrgetter

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from nats_scheduler.engine.events import FireConfirmed, FireStored
from nats_scheduler.observe.metric_samples import with_samples

LATENESS_BUCKETS_SECONDS = (0.0005, 0.001, 0.0015, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 60.0)

BUCKET_NAMES = (*map(str, LATENESS_BUCKETS_SECONDS), "+Inf")

MAX_RECENT_FIRES = 1_000
"""The last fires of all streams that are kept."""

_LATENESS = "nats_scheduler_fire_lateness_seconds"


class FireCounts:
    """The fires of one stream since the start of the process."""

    __slots__ = ("duplicates", "lateness", "latest", "overdue", "refused", "seconds_late", "stored")

    def __init__(self) -> None:
        self.stored = self.duplicates = self.overdue = self.refused = 0
        self.lateness = [0] * len(BUCKET_NAMES)
        """The number of fires in each bucket of lateness, without those of the buckets before it."""
        self.seconds_late = 0.0
        """The sum of all lateness."""
        self.latest = 0.0
        """The greatest lateness since it was last taken (`observe.activity`), that of overdue fires too."""

    def late(self, seconds: float) -> None:
        """Count a fire that was stored `seconds` after its time."""
        self.lateness[bisect_left(LATENESS_BUCKETS_SECONDS, seconds)] += 1
        self.seconds_late += seconds


_COUNTERS: tuple[tuple[str, str, Callable[[FireCounts], int]], ...] = (
    ("nats_scheduler_fires", "Fires acknowledged as stored, by stream.", attrgetter("stored")),
    ("nats_scheduler_fires_duplicate", "Fires that the server had stored already.", attrgetter("duplicates")),
    (
        "nats_scheduler_fires_overdue",
        "Fires stored that were due before this instance could fire them; not in the histogram.",
        attrgetter("overdue"),
    ),
)


class FireMetrics(Collector):
    """The metrics of all streams' fires; computed at each request for the metrics."""

    def __init__(self) -> None:
        self.by_stream: dict[str, FireCounts] = {}
        """The counts of each stream; read in other threads."""
        self.recent: deque[tuple[str, FireConfirmed]] = deque(maxlen=MAX_RECENT_FIRES)
        """The last fires and their streams, in the order in which they were read back."""

    def of(self, stream: str) -> FireCounts:
        """Return the counts of a stream."""
        found = self.by_stream.get(stream)
        if found is None:
            found = self.by_stream[stream] = FireCounts()
        return found

    def stored(self, stream: str, event: FireStored) -> None:
        """Count a fire that was acknowledged."""
        counts = self.by_stream.get(stream) or self.of(stream)
        if event.duplicate:
            counts.duplicates += 1
        else:
            counts.stored += 1

    def read_back(self, stream: str, event: FireConfirmed, seconds: float) -> None:
        """Count a fire that was read back, `seconds` after its time, and keep it among the last ones."""
        counts = self.by_stream.get(stream) or self.of(stream)
        if event.overdue:
            counts.overdue += 1
        else:
            counts.late(seconds)
        if seconds > counts.latest:
            counts.latest = seconds
        self.recent.append((stream, event))

    def collect(self) -> Iterator[Metric]:
        """Return the metrics with their present values."""
        for name, text, read in _COUNTERS:
            family = CounterMetricFamily(name, text, labels=["stream"])
            yield with_samples(family, self._counted(f"{name}_total", read))
        text = "Time from a fire's due time to its storage, by the server's clock, without overdue fires."
        yield with_samples(HistogramMetricFamily(_LATENESS, text), self._latenesses())

    def _counted(self, name: str, read: Callable[[FireCounts], int]) -> Iterator[Sample]:
        for stream, counts in self.by_stream.copy().items():
            yield Sample(name, {"stream": stream}, read(counts))

    def _latenesses(self) -> Iterator[Sample]:
        for stream, counts in self.by_stream.copy().items():
            through = 0
            for bucket, through in zip(BUCKET_NAMES, accumulate(list(counts.lateness)), strict=True):
                yield Sample(f"{_LATENESS}_bucket", {"stream": stream, "le": bucket}, through)
            yield Sample(f"{_LATENESS}_count", {"stream": stream}, through)
            yield Sample(f"{_LATENESS}_sum", {"stream": stream}, counts.seconds_late)
