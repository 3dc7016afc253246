"""The figures of the streams, the clock and the versions, as they are at the moment of a scrape.

Nothing of this is counted or stored when it changes: it is read at each scrape.

The rules:

- A scrape has a thread of its own, and it makes a pause after each unit of work: a thread that computes without pauses
  would keep the event loop, and with it the fires, waiting for the interpreter again and again.
- Nothing that is read belongs to the event loop or waits for it, so the figures are true while the loop is blocked.

Cost: a quarter of a microsecond of work for each schedule that is held, and 20 us for each stream, at each scrape.
With the pauses a scrape takes 1.5 s for a million schedules.
"""

import platform
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from time import sleep
from typing import NamedTuple, Protocol

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from nats_scheduler.engine.views.figures import Figures
from nats_scheduler.engine.views.seen import Work, done
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.version import VERSION

REST_SECONDS = 0.0005
"""The pause after each unit of the work on one stream (`engine.views.figures`), which takes about a third of that."""

STREAMS_PER_SLICE = 8
"""This many streams with few schedules are one unit."""


class StreamFigures(NamedTuple):
    """The values that are read of one stream."""

    name: str
    mode: str
    is_ready: bool
    """True if there is contact with it and all that is stored has been read."""
    figures: Work[Figures]
    now: int
    """The moment (ns since the Unix epoch) at which the figures are found."""


class Readings(Protocol):
    """The values that the metrics read of the sidecar; called in any thread."""

    def streams(self) -> Sequence[StreamFigures]:
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


class Gauges(Collector):
    """The gauges of the streams that are served, and of this instance; before `readings` is set they have no value."""

    def __init__(self) -> None:
        self.readings: Readings | None = None

    def collect(self) -> Iterator[Metric]:
        """Return the gauges with their present values."""
        mode = _gauge("stream_mode", "1 for the mode in which a stream is served.", "stream", "mode")
        held = _gauge("schedules_held", "Schedules held, by kind of their patterns.", "stream", "kind")
        gauges = [(_gauge(name, text, "stream"), read) for name, text, read in _OF_STREAMS]
        for number, stream in enumerate([] if self.readings is None else self.readings.streams(), 1):
            found = _figures(stream)
            mode.add_metric([stream.name, stream.mode], 1)
            for kind, count in found.held.items():
                held.add_metric([stream.name, kind.value], count)
            for gauge, read in gauges:
                if (value := read(stream, found)) is not None:
                    gauge.add_metric([stream.name], value)
            if number % STREAMS_PER_SLICE == 0:
                sleep(REST_SECONDS)
        yield from (mode, held, *(gauge for gauge, _read in gauges), *self._of_the_instance())

    def _of_the_instance(self) -> Iterator[Metric]:
        readings = self.readings
        text = "Streams that this instance cannot serve because it lacks a permission."
        unable = _gauge("streams_unable", text)
        unable.add_metric([], 0 if readings is None else readings.unable())
        yield unable
        ahead = _gauge("clock_offset_seconds", "The server's clock minus this machine's.")
        offset = None if readings is None else readings.clock_offset()
        if offset is not None:
            ahead.add_metric([], offset / SECOND)
        yield ahead
        about = {
            "version": VERSION,
            "python_version": platform.python_version(),
            "nats_py_version": version("nats-py"),
            "server_version": "" if readings is None else readings.server_version(),
        }
        build = _gauge("build_info", "The versions of this program, Python, the client library and the server.", *about)
        build.add_metric([*about.values()], 1)
        yield build


def _figures(stream: StreamFigures) -> Figures:
    """Return the figures of a stream, found with pauses if that takes long."""
    return done(stream.figures, lambda: sleep(REST_SECONDS))


def _age_seconds(stream: StreamFigures, since: int | None) -> float:
    return 0 if since is None else (stream.now - since) / SECOND


_OF_STREAMS: Sequence[tuple[str, str, Callable[[StreamFigures, Figures], float | None]]] = (
    (
        "stream_ready",
        "Whether there is contact with a stream that is served, and all of it has been read, so that it fires.",
        lambda stream, _found: stream.is_ready,
    ),
    (
        "schedules_paused",
        "Schedules that are paused, and fire nothing until they are resumed.",
        lambda _stream, found: found.paused,
    ),
    (
        "schedules_overdue",
        "Schedules of this instance with a fire due for more than a second and not stored.",
        lambda _stream, found: found.overdue,
    ),
    (
        "oldest_overdue_age_seconds",
        "How long the oldest of them is due; 0 if there is none.",
        lambda stream, found: _age_seconds(stream, found.overdue_since),
    ),
    (
        "schedules_blocked",
        "Schedules of this instance whose fires wait until the one before is finished.",
        lambda _stream, found: found.blocked,
    ),
    (
        "schedules_catching_up",
        "Schedules of this instance whose missed fires wait for their turn.",
        lambda _stream, found: found.catching_up,
    ),
    (
        "oldest_blocked_age_seconds",
        "How long the oldest of these fires is due; 0 if there is none.",
        lambda stream, found: _age_seconds(stream, found.blocked_since),
    ),
    (
        "next_fire_timestamp_seconds",
        "When the next schedule is due, in seconds since the epoch.",
        lambda _stream, found: None if found.next_due is None else found.next_due / SECOND,
    ),
    (
        "fires_in_flight",
        "Fires published of which the outcome is not known yet.",
        lambda _stream, found: found.in_flight,
    ),
    (
        "purges_pending",
        "Schedules that are done, and old versions, still to be purged.",
        lambda _stream, found: found.purges_pending,
    ),
)
"""The gauges with one value for each stream: name, help, and value; None is no value."""


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"nats_scheduler_{name}", text, labels=labels)
