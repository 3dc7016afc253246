"""Counters, gauges and a histogram, in the names and units that Prometheus users expect.

One registry a process, labelled by stream; nothing is labelled by subject, because subjects have no bound.
The rule: a series exists from the moment its stream is served, at 0, also where a label has values that are known
beforehand: an alert on the rate of what never happened before sees the first time that it happens.
"""

from collections.abc import Callable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from nats_scheduler.engine.events import Ending
from nats_scheduler.message.rejection import MESSAGE_CODES

LATENESS_BUCKETS_SECONDS = (0.0005, 0.001, 0.0015, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0, 60.0)

EARLY_ENDINGS = (Ending.EXPIRED, Ending.MAX_AGE)
"""What ends a schedule before its next fire, as far as that is known when it is stored."""

REFUSAL_CODES = (403, 10002, 10023, 10028, 10047, 10054, 10071, 10077, 10097, 10109, 10111, 10165, 10166, 10190)
"""With which codes a fire is refused, as far as that is known beforehand: no permission (403), no resources, too large,
a limit of the stream, a schedule that changed, a sealed stream, a TTL, a roll-up or a target that cannot be.
Any other code gets its series when it is first seen.
"""


class StreamMetrics:
    """What is counted for each fire of one stream: found once, since to find a sample costs more than to count."""

    def __init__(self, metrics: "Metrics", stream: str) -> None:
        self.fires = metrics.fires.labels(stream)
        self.duplicates = metrics.duplicates.labels(stream)
        self.accepted = metrics.accepted.labels(stream)
        self.overdue = metrics.overdue.labels(stream)
        self.lateness = metrics.lateness.labels(stream)
        self.ended = {ending: metrics.ended.labels(stream, ending.name.lower()) for ending in Ending}


class ReadyStreams(Collector):
    """Says of each stream that is served whether what is due there fires; looked up when somebody asks."""

    def __init__(self) -> None:
        self.look: Callable[[], Mapping[str, bool]] = dict
        """Returns for each stream that is served whether it is ready; called in any thread."""

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Look now."""
        ready = GaugeMetricFamily(
            "nats_scheduler_stream_ready",
            "Whether there is contact with a stream that is served, and all of it has been read, so that it fires.",
            labels=["stream"],
        )
        for stream, is_ready in self.look().items():
            ready.add_metric([stream], float(is_ready))
        yield ready


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
        self.failing = self._gauge(
            "schedules_failing", "Schedules with a fire that the server refuses for the time being.", "stream"
        )
        self.overdue = self._counter(
            "fires_overdue", "Fires stored that came due before they could be fired; the histogram leaves them out."
        )
        self.accepted = self._counter("schedules_accepted", "Schedules taken on while running.")
        self.rejected = self._counter("schedules_rejected", "Invalid schedules, by the server's code.", "code")
        self.ended = self._counter("schedules_ended", "Schedules no longer held, by reason.", "reason")
        self.ends_early = self._counter(
            "schedules_end_early", "Schedules that expire before their next fire, by reason.", "reason"
        )
        self.misnamed = self._counter("headers_misnamed", "Messages with headers that look like those of a schedule.")
        self.purges_failed = self._counter("purges_failed", "Removals of schedules that failed.")
        self.expired = self._counter("messages_expired", "Messages removed because their TTL ran out, on 2.10.")
        self.expiries_failed = self._counter("expiries_failed", "Removals of expired messages that failed.")
        self.served = self._gauge("stream_served", "Whether this instance serves a stream: 1 or 0.", "stream")
        self.shards = self._gauge("shards_held", "Shards of a stream, of 64, that this instance fires for.", "stream")
        self.instances = self._gauge("instances_alive", "Instances that serve the account, this one among them.")
        self.connected = self._gauge("connected", "Whether there is a connection, and JetStream answers: 1 or 0.")
        self.connections = Counter(
            "nats_scheduler_connections",
            "Connections made since the start; all but one reconnects.",
            registry=self.registry,
        )
        self.connected_at = self._gauge(
            "last_connect_timestamp_seconds", "When the last connection was made, in seconds since the Unix epoch."
        )
        self.lateness = Histogram(
            "nats_scheduler_fire_lateness_seconds",
            "Time from a fire's due time to its storage, by the server's clock, without what was overdue.",
            ["stream"],
            registry=self.registry,
            buckets=LATENESS_BUCKETS_SECONDS,
        )
        self.ready = ReadyStreams()
        self.registry.register(self.ready)
        self.loop_lateness = Histogram(
            "nats_scheduler_event_loop_lateness_seconds",
            "Time by which the event loop was late for what it was to do at a time, looked at twice a second.",
            registry=self.registry,
            buckets=LATENESS_BUCKETS_SECONDS,
        )
        self.overloaded = Gauge(
            "nats_scheduler_overloaded",
            "1 while the event loop or the fires are late again and again.",
            registry=self.registry,
        )

        self._streams: dict[str, StreamMetrics] = {}

    def of(self, stream: str) -> StreamMetrics:
        """Return what is counted for each fire of a stream."""
        found = self._streams.get(stream)
        if found is None:
            found = self._streams[stream] = StreamMetrics(self, stream)
        return found

    def serves(self, stream: str) -> None:
        """Have every series of a stream that is served from now on, at 0 if nothing was counted yet."""
        self.of(stream)
        counters = self.unsettled, self.forged, self.missed, self.purges_failed, self.expired, self.expiries_failed
        for counter in (*counters, self.misnamed):
            counter.labels(stream)
        for ending in EARLY_ENDINGS:
            self.ends_early.labels(stream, ending.name.lower())
        for code in REFUSAL_CODES:
            self.refused.labels(stream, str(code))
            self.dropped.labels(stream, str(code))
        for code in MESSAGE_CODES:
            self.rejected.labels(stream, str(code))
        self.shards.labels(stream)
        self.failing.labels(stream)
        self.served.labels(stream).set(1)

    def serves_no_more(self, stream: str) -> None:
        """Show that a stream is not served; what was counted stays."""
        self.served.labels(stream).set(0)
        self.shards.labels(stream).set(0)
        self.failing.labels(stream).set(0)

    def value(self, name: str, **labels: str) -> float:
        """Return the value of one sample, 0 if nothing was counted yet."""
        return self.registry.get_sample_value(f"nats_scheduler_{name}_total", labels) or 0.0

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"nats_scheduler_{name}", text, ["stream", *labels], registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"nats_scheduler_{name}", text, labels, registry=self.registry)
