"""Counters and a histogram, in the names and units that Prometheus users expect.

One registry a process, labelled by stream; nothing is labelled by subject, because subjects have no bound.
"""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from nats_scheduler.engine.events import Ending

LATENESS_BUCKETS_SECONDS = (0.0005, 0.001, 0.0015, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 60.0)


class StreamMetrics:
    """What is counted for each fire of one stream: found once, since to find a sample costs more than to count."""

    def __init__(self, metrics: "Metrics", stream: str) -> None:
        self.fires = metrics.fires.labels(stream)
        self.duplicates = metrics.duplicates.labels(stream)
        self.accepted = metrics.accepted.labels(stream)
        self.lateness = metrics.lateness.labels(stream)
        self.ended = {ending: metrics.ended.labels(stream, ending.name.lower()) for ending in Ending}


class Metrics:
    """What is counted."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.fires = self._counter("fires", "Fires acknowledged as stored, by stream.")
        self.duplicates = self._counter("fires_duplicate", "Fires that the server had stored already.")
        self.unsettled = self._counter("fires_unsettled", "Publishes without an answer, repeated.")
        self.refused = self._counter("fires_refused", "Fires the server refused, by its code.", "code")
        self.forged = self._counter("fires_forged", "Messages that claim to be fires and cannot be.")
        self.missed = self._counter("fires_missed", "Fires stored that stand for others that were missed.")
        self.dropped = self._counter("fires_dropped", "Schedules that ended while a fire was refused, by code.", "code")
        self.failing = Gauge(
            "nats_scheduler_schedules_failing",
            "Schedules with a fire that the server refuses for the time being.",
            ["stream"],
            registry=self.registry,
        )
        self.accepted = self._counter("schedules_accepted", "Schedules taken on while running.")
        self.rejected = self._counter("schedules_rejected", "Invalid schedules, by the server's code.", "code")
        self.ended = self._counter("schedules_ended", "Schedules no longer held, by reason.", "reason")
        self.purges_failed = self._counter("purges_failed", "Removals of schedules that failed.")
        self.expired = self._counter("messages_expired", "Messages removed because their TTL ran out, on 2.10.")
        self.expiries_failed = self._counter("expiries_failed", "Removals of expired messages that failed.")
        self.shards = Gauge(
            "nats_scheduler_shards_held",
            "Shards of a stream, of 64, that this instance fires for.",
            ["stream"],
            registry=self.registry,
        )
        self.instances = Gauge(
            "nats_scheduler_instances_alive",
            "Instances that serve the account, this one among them.",
            registry=self.registry,
        )
        self.lateness = Histogram(
            "nats_scheduler_fire_lateness_seconds",
            "Time from a fire's due time to its storage, by the server's clock.",
            ["stream"],
            registry=self.registry,
            buckets=LATENESS_BUCKETS_SECONDS,
        )

        self._streams: dict[str, StreamMetrics] = {}

    def of(self, stream: str) -> StreamMetrics:
        """Return what is counted for each fire of a stream."""
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = StreamMetrics(self, stream)
        return found

    def value(self, name: str, **labels: str) -> float:
        """Return the value of one sample, 0 where nothing was counted yet."""
        return self.registry.get_sample_value(f"nats_scheduler_{name}_total", labels) or 0.0

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"nats_scheduler_{name}", text, ["stream", *labels], registry=self.registry)
