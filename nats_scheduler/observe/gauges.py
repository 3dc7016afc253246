"""What is true at the moment of a scrape: the figures of the streams, the clock, the versions.

Nothing of this is counted or stored when it changes: it is read at each scrape.

The rules:

- A scrape has a thread of its own, and it makes a pause after each slice of work: a thread that computes without pauses
  would keep the event loop, and with it the fires, waiting for the interpreter again and again.
- Nothing that is read belongs to the event loop or waits for it, so the figures are true while the loop stands still.

Cost: a quarter of a microsecond of work for each schedule that is held, and 20 us for each stream, at each scrape.
With the pauses a scrape takes 1.5 s for a million schedules.
"""

import platform
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from time import sleep
from typing import NamedTuple, Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nats_scheduler.engine.views.figures import Figures
from nats_scheduler.engine.views.pages import Sliced
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.version import VERSION

REST_SECONDS = 0.0005
"""The pause after each slice, which takes about a third of that."""

UNITS_PER_SLICE = 2
"""So many units of the work on one stream (`engine.views.figures`) are one slice."""

STREAMS_PER_SLICE = 8
"""So many streams with few schedules are one slice."""


class StreamReading(NamedTuple):
    """What is read of one stream."""

    name: str
    mode: str
    is_ready: bool
    """Whether there is contact with it and all that is stored has been read."""
    figures: Sliced[Figures]
    now: int
    """The moment (ns since the Unix epoch) at which the figures are found."""


class Readings(Protocol):
    """What the metrics read of the sidecar; called in any thread."""

    def streams(self) -> Sequence[StreamReading]:
        """Return the streams that are served."""
        ...

    def unable(self) -> int:
        """Return how many of them this instance cannot serve."""
        ...

    def clock_offset(self) -> int | None:
        """Return the server's clock minus this machine's (ns), None before a server has reported its time."""
        ...

    def server_version(self) -> str:
        """Return the version of the server of the current or last connection, empty before the first."""
        ...


class NoReadings:
    """Nothing is served."""

    def streams(self) -> Sequence[StreamReading]:
        """Return no streams."""
        return ()

    def unable(self) -> int:
        """Return 0."""
        return 0

    def clock_offset(self) -> int | None:
        """Return None."""
        return None

    def server_version(self) -> str:
        """Return no version."""
        return ""


class StreamGauges(Collector):
    """The gauges of the streams that are served."""

    def __init__(self) -> None:
        self.readings: Readings = NoReadings()

    def collect(self) -> Iterator[Metric]:
        """Return the gauges with their present values."""
        ready = _by_stream(
            "stream_ready",
            "Whether there is contact with a stream that is served, and all of it has been read, so that it fires.",
        )
        mode = _by_stream("stream_mode", "1 for the mode in which a stream is served.", "mode")
        held = _by_stream("schedules_held", "Schedules held, by kind of their patterns.", "kind")
        paused = _by_stream("schedules_paused", "Schedules that are paused, and fire nothing until they are resumed.")
        overdue = _by_stream(
            "schedules_overdue", "Schedules of this instance with a fire due for more than a second and not stored."
        )
        oldest = _by_stream("oldest_overdue_age_seconds", "How long the oldest of them is due; 0 if there is none.")
        held_back = _by_stream(
            "schedules_held_back", "Schedules of this instance whose fires wait until the one before is finished."
        )
        longest = _by_stream(
            "oldest_held_back_age_seconds", "How long the oldest of these fires is due; 0 if there is none."
        )
        coming = _by_stream("next_fire_timestamp_seconds", "When the next schedule is due, in seconds since the epoch.")
        flying = _by_stream("fires_in_flight", "Fires published of which the outcome is not known yet.")
        purges = _by_stream("purges_pending", "Schedules that are done, and old versions, still to be purged.")
        for number, stream in enumerate(self.readings.streams(), 1):
            name, found = [stream.name], _figures(stream)
            ready.add_metric(name, float(stream.is_ready))
            mode.add_metric([stream.name, stream.mode], 1)
            for kind, count in found.held.items():
                held.add_metric([stream.name, kind.value], count)
            paused.add_metric(name, found.paused)
            overdue.add_metric(name, found.overdue)
            oldest.add_metric(name, _age_seconds(stream, found.overdue_since))
            held_back.add_metric(name, found.held_back)
            longest.add_metric(name, _age_seconds(stream, found.held_back_since))
            if found.next_due is not None:
                coming.add_metric(name, found.next_due / SECOND)
            flying.add_metric(name, found.in_flight)
            purges.add_metric(name, found.purges_pending)
            if number % STREAMS_PER_SLICE == 0:
                sleep(REST_SECONDS)
        yield from (ready, mode, held, paused, overdue, oldest, held_back, longest, coming, flying, purges)


class ProcessGauges(Collector):
    """The gauges of this instance."""

    def __init__(self, readings: "StreamGauges") -> None:
        """Read what `readings` reads."""
        self._read = readings

    def collect(self) -> Iterator[Metric]:
        """Return the gauges with their present values."""
        readings = self._read.readings
        yield GaugeMetricFamily(
            "nats_scheduler_streams_unable",
            "Streams that this instance cannot serve because it lacks a permission.",
            value=readings.unable(),
        )
        ahead = _gauge("clock_offset_seconds", "The server's clock minus this machine's.")
        if (offset := readings.clock_offset()) is not None:
            ahead.add_metric([], offset / SECOND)
        yield ahead
        about = {
            "version": VERSION,
            "python_version": platform.python_version(),
            "nats_py_version": version("nats-py"),
            "server_version": readings.server_version(),
        }
        build = _gauge("build_info", "The versions of this program, Python, the client library and the server.", *about)
        build.add_metric([*about.values()], 1)
        yield build


def _figures(stream: StreamReading) -> Figures:
    """Return the figures of a stream, found with pauses if that takes long."""
    units = 1
    while stream.figures.advance():
        if units % UNITS_PER_SLICE == 0:
            sleep(REST_SECONDS)
        units += 1
    return stream.figures.result


def _age_seconds(stream: StreamReading, since: int | None) -> float:
    return 0 if since is None else (stream.now - since) / SECOND


def _by_stream(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return _gauge(name, text, "stream", *labels)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"nats_scheduler_{name}", text, labels=labels)
