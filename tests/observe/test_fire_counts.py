"""The counts of fires are shown exactly as counters and a histogram of `prometheus_client` would show them."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from nats_scheduler.engine.events import FireReadBack
from nats_scheduler.observe.fire_counts import LATENESS_BUCKETS_SECONDS, FireCounts, FireMetrics

LATE_SECONDS = (0.0, 0.0003, 0.0005, 0.00051, 0.0042, 0.25, 0.9, 1.0, 59.9, 60.0, 3600.0)


def lines(registry: CollectorRegistry) -> set[str]:
    """Return the samples of a registry, without the time at which each series began."""
    text = generate_latest(registry).decode()
    return {line for line in text.splitlines() if "_created" not in line}


def test_the_metrics_are_those_that_the_client_library_would_show() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    shown = FireMetrics()
    ours.register(shown)
    texts = {metric.name: metric.documentation for metric in shown.collect()}
    fires, duplicates, overdue = (
        Counter(name, texts[name], ["stream"], registry=theirs)
        for name in ("nats_scheduler_fires", "nats_scheduler_fires_duplicate", "nats_scheduler_fires_overdue")
    )
    name = "nats_scheduler_fire_lateness_seconds"
    lateness = Histogram(name, texts[name], ["stream"], registry=theirs, buckets=LATENESS_BUCKETS_SECONDS)
    for stream in ("ORDERS", 'with "quotes"'):
        counts = shown.by_stream[stream] = FireCounts()
        counts.stored, counts.duplicates, counts.overdue = 7, 2, 1
        fires.labels(stream).inc(7)
        duplicates.labels(stream).inc(2)
        overdue.labels(stream).inc()
        for seconds in LATE_SECONDS:
            shown.read_back(stream, FireReadBack("s", "t", 0, 0, 0, 1), seconds)
            lateness.labels(stream).observe(seconds)
    assert lines(ours) == lines(theirs)


def test_a_stream_without_fires_has_all_its_series() -> None:
    registry, shown = CollectorRegistry(), FireMetrics()
    registry.register(shown)
    shown.by_stream["ORDERS"] = FireCounts()
    assert registry.get_sample_value("nats_scheduler_fires_total", {"stream": "ORDERS"}) == 0
    assert registry.get_sample_value("nats_scheduler_fire_lateness_seconds_count", {"stream": "ORDERS"}) == 0
