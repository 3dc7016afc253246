"""Counters, gauges and histograms, with the names and units that Prometheus users expect.

One registry per process, labelled by stream; nothing is labelled by subject, because their number has no limit.
The rule: a series exists from the moment its stream is served, at 0, for every value of a label that is known in
advance. So an alert on the rate of an event also sees its first occurrence.
"""

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.ownership.owners import Reason
from nats_scheduler.message.rejection import MESSAGE_CODES
from nats_scheduler.observe.canary_record import CanaryMetrics
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS, FireMetrics
from nats_scheduler.observe.gauges import Gauges
from nats_scheduler.observe.metric_samples import LabelledCounter

# A series for each counter with the time of its creation would double what a scrape costs.
disable_created_metrics()  # type: ignore[no-untyped-call]

EARLY_ENDINGS = (Ending.EXPIRED, Ending.MAX_AGE)
"""The reasons why a schedule ends before its next fire, if that is known when it is stored."""

SILENT_CAUSES = ("not_stored", "dropped", "unconsumed")
"""The causes why a schedule that is to fire delivers nothing."""

REFUSAL_CODES = (403, 10002, 10023, 10028, 10047, 10054, 10071, 10077, 10097, 10109, 10111, 10165, 10166, 10190)
"""The codes with which a fire is refused, if they are known in advance: no permission (403), no resources, too large,
a limit of the stream, a changed schedule, a sealed stream, an invalid TTL, roll-up or target.
Any other code gets its series when it first occurs.
"""


class Metrics:
    """The metrics of a process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry(auto_describe=True)  # so that `name[]` finds what is not of the library
        self.fires = FireMetrics()
        self.registry.register(self.fires)
        self.unanswered = self._counter("fires_unanswered", "Publishes without an answer, repeated.")
        self.refused = self._counter("fires_refused", "Fires the server refused, by its code.", "code")
        self.forged = self._counter("fires_forged", "Messages that claim to be fires and cannot be.")
        self.missed = self._counter("fires_missed", "Make-up fires stored, each for all missed fires of a schedule.")
        self.skipped = self._counter("fires_skipped", "Fires that a policy of their schedule dropped.", "policy")
        self.timed_out = self._counter("fires_timed_out", "Unfinished fires that count as finished after X-Timeout.")
        self.not_done = self._counter("fires_not_done", "Fires that were unfinished after X-Done-Within.")
        self.dropped = self._counter("fires_dropped", "Schedules that ended while a fire was refused, by code.", "code")
        self.failing = self._gauge(
            "schedules_failing", "Schedules whose fires the server refuses at the moment.", "stream"
        )
        self.accepted = self._counter("schedules_accepted", "Schedules accepted while the stream is followed live.")
        self.rejected = self._counter("schedules_rejected", "Invalid schedules, by the server's code.", "code")
        self.ended = self._counter("schedules_ended", "Schedules no longer held, by reason.", "reason")
        self.ends_early = self._counter(
            "schedules_end_early", "Schedules that expire before their next fire, by reason.", "reason"
        )
        self.replaced_unfired = self._counter(
            "schedules_replaced_unfired", "Schedules that fire once and were replaced before that by another body."
        )
        self.silent = self._counter(
            "schedules_silent", "Reports of schedules that deliver nothing although they are to, by cause.", "cause"
        )
        self.misnamed = self._counter("headers_misnamed", "Messages with headers that look like those of a schedule.")
        self.purges_failed = self._counter("purges_failed", "Removals of schedules that failed.")
        self.expired = self._counter("messages_expired", "Messages removed because their TTL ran out, on 2.10.")
        self.expiries_failed = self._counter("expiries_failed", "Removals of expired messages that failed.")
        self.served = self._gauge("stream_served", "Whether this instance serves a stream: 1 or 0.", "stream")
        self.owner = self._gauge("stream_owner", "Whether this instance owns a stream and fires: 1 or 0.", "stream")
        self.takeovers = self._counter("takeovers", "Times that this instance became the owner, by reason.", "reason")
        self.last_takeover = self._gauge(
            "last_takeover_timestamp_seconds",
            "When this instance last became the owner of a stream, in seconds since the Unix epoch; 0 for never.",
            "stream",
        )
        self.instances = self._gauge("instances_alive", "Instances that serve the account, this one among them.")
        self.unserved = self._gauge(
            "streams_unserved", "Streams that hold schedules which nothing fires, because they have no flag."
        )
        self.connected = self._gauge("connected", "Whether there is a connection, and JetStream answers: 1 or 0.")
        self.connections = Counter(
            "nats_scheduler_connections",
            "Connections made since the start; all but the first are reconnects.",
            registry=self.registry,
        )
        self.connected_at = self._gauge(
            "last_connect_timestamp_seconds", "When the last connection was made, in seconds since the Unix epoch."
        )
        self.failures_not_kept = Counter(
            "nats_scheduler_failures_not_kept",
            "Advisories that no stream keeps: refused, too large, or no stream takes them.",
            registry=self.registry,
        )
        self.requests_refused = Counter(
            "nats_scheduler_requests_refused",
            "Requests to the micro service that were refused because they were too many (error 429).",
            registry=self.registry,
        )
        self.requests_dropped = Counter(
            "nats_scheduler_requests_dropped",
            "Requests to the micro service, discovery too, that got no answer because they were far too many.",
            registry=self.registry,
        )
        self.gauges = Gauges()
        self.canary = CanaryMetrics()
        self.registry.register(self.gauges)
        self.registry.register(self.canary)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self.loop_lateness = Histogram(
            "nats_scheduler_event_loop_lateness_seconds",
            "How late the event loop runs a timer, measured twice a second.",
            registry=self.registry,
            buckets=LATENESS_BUCKETS_SECONDS,
        )
        self.overloaded = self._gauge("overloaded", "1 while the event loop or the fires are repeatedly late.")

    def serves(self, stream: str) -> None:
        """Create every series of a stream that is served from now on, at 0 if nothing was counted yet."""
        self.fires.of(stream)
        counters = self.unanswered, self.forged, self.missed, self.purges_failed, self.expired, self.expiries_failed
        more = self.accepted, self.misnamed, self.timed_out, self.not_done, self.replaced_unfired
        for counter in (*counters, *more):
            counter.labels(stream)
        for ended in Ending:
            self.ended.labels(stream, ended.name.lower())
        for cause in SILENT_CAUSES:
            self.silent.labels(stream, cause)
        self.skipped.labels(stream, "X-Missed")
        self.skipped.labels(stream, "X-Overlap")
        for ending in EARLY_ENDINGS:
            self.ends_early.labels(stream, ending.name.lower())
        for code in REFUSAL_CODES:
            self.refused.labels(stream, str(code))
            self.dropped.labels(stream, str(code))
        for code in MESSAGE_CODES:
            self.rejected.labels(stream, str(code))
        for reason in Reason:
            self.takeovers.labels(stream, reason.value)
        self.owner.labels(stream)
        self.last_takeover.labels(stream)
        self.failing.labels(stream)
        self.served.labels(stream).set(1)

    def stops_serving(self, stream: str) -> None:
        """Show that a stream is not served any more; counters keep their values."""
        self.served.labels(stream).set(0)
        self.owner.labels(stream).set(0)
        self.failing.labels(stream).set(0)

    def took_over(self, stream: str, reason: str) -> None:
        """Show that this instance owns a stream from now on."""
        self.owner.labels(stream).set(1)
        self.takeovers.labels(stream, reason).inc()
        self.last_takeover.labels(stream).set_to_current_time()

    def value(self, name: str, **labels: str) -> float:
        """Return the value of one sample, 0 if nothing was counted yet."""
        return self.registry.get_sample_value(f"nats_scheduler_{name}_total", labels) or 0.0

    def _counter(self, name: str, text: str, *labels: str) -> LabelledCounter:
        counter = LabelledCounter(f"nats_scheduler_{name}", text, ("stream", *labels))
        self.registry.register(counter)
        return counter

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"nats_scheduler_{name}", text, labels, registry=self.registry)
