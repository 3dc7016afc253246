"""The record of the canary, a schedule of this instance's own: how often, how late and when it fired last.

The rule: all of it follows from the fires that were read back and from the time that is given. So it is true as well
while there is no connection, and nothing has to happen for a canary to be missed.
A canary is missed each time that an interval has passed without a fire, `GRACE_NS` after it.

Cost: none between two fires.
"""

from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from nats_scheduler.observe.fire_counts import BUCKET_NAMES, FireCounts
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import SECOND

GRACE_NS = 5 * SECOND
"""The time (ns) that a canary may fire later than one interval after the last one.

*Live* allows 3 s from a fault on; publishing the canary again, and the time until it is due, take the rest.
"""


class CanaryRecord:
    """The fires of one instance's canary."""

    def __init__(self, interval: int, monotonic: Callable[[], int]) -> None:
        """Expect a fire every `interval` (ns) from now on; `monotonic` returns our monotonic clock (ns)."""
        self._interval = interval
        self._monotonic = monotonic
        self._last_at = monotonic()
        """The instant (ns, monotonic) at which the last fire was read back, or the first one began to be awaited."""
        self._missed_before = 0
        """The number of canaries that were missed before that."""
        self.counts = FireCounts()
        self.last_stored_at: int | None = None
        """The instant (ns, by the server's clock) at which the last fire was stored, None before the first."""
        self.setback = ""
        """Why the canary cannot be fired at the moment, as far as that is known."""

    def fired(self, due: int, stored_at: int) -> None:
        """Count a fire that was due and stored at these instants (ns, by the server's clock)."""
        self._missed_before = self.missed
        self._last_at = self._monotonic()
        self.last_stored_at = stored_at
        self.counts.stored += 1
        self.counts.late((stored_at - due) / SECOND)

    @property
    def missed(self) -> int:
        """The number of canaries that were missed until now."""
        return self._missed_before + max(0, (self._monotonic() - self._last_at - GRACE_NS) // self._interval)

    def not_ready(self) -> list[str]:
        """Return why this instance cannot be trusted to fire, in one sentence; nothing if its canary fires."""
        age = self._monotonic() - self._last_at
        if self.last_stored_at is None:
            found = "the canary has not fired yet"
        elif age >= self._interval + GRACE_NS:
            interval = format_duration(self._interval)
            found = f"the canary fired {age // SECOND} s ago for the last time, and is due every {interval}"
        else:
            return []
        return [f"{found}: {self.setback}" if self.setback else found]


class CanaryMetrics(Collector):
    """The metrics of the canary; they have no series if there is none."""

    def __init__(self) -> None:
        self.record: CanaryRecord | None = None

    def collect(self) -> Iterator[Metric]:
        """Return the metrics with their present values."""
        fires = CounterMetricFamily("nats_scheduler_canary_fires", "Fires of this instance's canary, as read back.")
        missed = CounterMetricFamily(
            "nats_scheduler_canary_missed", "Intervals that have passed without a fire of the canary."
        )
        last = GaugeMetricFamily(
            "nats_scheduler_canary_last_fire_timestamp_seconds",
            "When the last fire of the canary was stored, in seconds since the epoch.",
        )
        lateness = HistogramMetricFamily(
            "nats_scheduler_canary_lateness_seconds",
            "Time from the canary's due time to the storage of its fire, by the server's clock.",
        )
        if (record := self.record) is not None:
            fires.add_metric([], record.counts.stored)
            missed.add_metric([], record.missed)
            if record.last_stored_at is not None:
                last.add_metric([], record.last_stored_at / SECOND)
            through = accumulate(list(record.counts.lateness))
            lateness.add_metric([], list(zip(BUCKET_NAMES, through, strict=True)), record.counts.seconds_late)
        yield from (fires, missed, last, lateness)
