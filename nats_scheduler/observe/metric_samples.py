"""Metrics with a series for each stream, of which there may be thousands, made one sample at a time.

A scrape has a thread of its own, and the event loop waits for the interpreter while that thread computes. A counter
of `prometheus_client` makes all its samples at once, and so does its text format: with a thousand streams that kept
every fire waiting by 5 ms again and again, for a second.

The rules: no sample exists before it is written, and who writes makes a pause after a few (`observe.monitoring_pages`).
What is read in the thread of a scrape is copied with `copy`, during which no other thread runs.
Limit: no series for the time at which a counter was created.
"""

from collections.abc import Iterator, Sequence
from typing import cast

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample


def with_samples(family: Metric, samples: Iterator[Sample]) -> Metric:
    """Return a family whose samples are made while they are read, once."""
    family.samples = cast("list[Sample]", samples)  # all that is done with them is to iterate
    return family


class Count:
    """One series of a counter."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0.0

    def inc(self, amount: float = 1) -> None:
        """Count; called on the event loop only, so that it needs no lock."""
        self.value += amount


class LabelledCounter(Collector):
    """A counter with labels; what it shows is what a `prometheus_client.Counter` would."""

    def __init__(self, name: str, text: str, labels: Sequence[str]) -> None:
        """Count nothing yet; `name` is without the suffix `_total`."""
        self._name = name
        self._text = text
        self._labels = tuple(labels)
        self._counts: dict[tuple[str, ...], Count] = {}

    def labels(self, *values: str) -> Count:
        """Return the series with these values of the labels; it exists from now on."""
        found = self._counts.get(values)
        if found is None:
            assert len(values) == len(self._labels), f"{self._name} has the labels {self._labels}"
            found = self._counts[values] = Count()
        return found

    def collect(self) -> Iterator[Metric]:
        """Return the counter with its present values."""
        yield with_samples(CounterMetricFamily(self._name, self._text, labels=self._labels), self._samples())

    def _samples(self) -> Iterator[Sample]:
        name = f"{self._name}_total"
        for values, count in self._counts.copy().items():
            yield Sample(name, dict(zip(self._labels, values, strict=True)), count.value)
