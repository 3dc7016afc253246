"""A labelled counter shows exactly what a counter of `prometheus_client` would show."""

import pytest
from prometheus_client import CollectorRegistry, Counter, generate_latest

from nats_scheduler.observe.fire_counts import LabelledCounter


def test_it_shows_what_the_client_library_would_show() -> None:
    ours, theirs = CollectorRegistry(auto_describe=True), CollectorRegistry()
    name, text, labels = "nats_scheduler_fires_refused", "Fires, refused.", ("stream", "code")
    counter, real = LabelledCounter(name, text, labels), Counter(name, text, labels, registry=theirs)
    ours.register(counter)
    assert generate_latest(ours) == generate_latest(theirs)
    for stream, code, amount in (("A", "403", 1), ('with "quotes"', "10077", 3), ("A", "403", 2), ("B", "403", 0)):
        counter.labels(stream, code).inc(amount)
        real.labels(stream, code).inc(amount)
    assert generate_latest(ours) == generate_latest(theirs)
    assert ours.get_sample_value(f"{name}_total", {"stream": "A", "code": "403"}) == 3
    restricted = ours.restricted_registry([f"{name}_total"])
    assert generate_latest(restricted) == generate_latest(theirs)


def test_a_series_has_all_labels() -> None:
    with pytest.raises(AssertionError, match="has the labels"):
        LabelledCounter("name", "text", ("stream", "code")).labels("A")
