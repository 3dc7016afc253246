"""Read the clocks of the servers: an answer about a stream or a consumer contains the time of the node that leads it.

Rule: each node is asked once, through a stream that it leads, or else through a consumer. So the clocks of a cluster's
nodes can be compared with each other, and with that of this machine.
Cost: one request for each node. Limit: a node that leads nothing in the account does not show its time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from nats_scheduler.doctor.facts import ClockReading, StreamFacts
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import inner
from nats_scheduler.jetstream.server_time import server_time

MAX_CLOCKS_READ = 64
"""Nodes that are asked for their time."""

ATTEMPTS = 3
"""Streams and consumers that are asked, one after the other, until the node that leads them answers."""


class _Led(NamedTuple):
    """What a node leads: a stream, or one of its consumers."""

    stream: str
    consumer: str | None = None


async def read_clocks(
    api: JetStreamApi, infos: Iterable[Mapping[str, Any]], streams: Sequence[StreamFacts], now: Callable[[], int]
) -> list[ClockReading]:
    """Read the clock of each node; `infos` are of STREAM.LIST, and `now` returns the time of this machine (ns)."""
    led: dict[str, list[_Led]] = {}
    for info in infos:
        led.setdefault(leader_of(info), []).append(_Led(str(inner(info.get("config")).get("name"))))
    for stream in streams:
        for node, consumer in stream.consumer_leaders.items():
            led.setdefault(node, []).append(_Led(stream.name, consumer))
    readings: dict[str, ClockReading] = {}
    for node, candidates in islice(led.items(), MAX_CLOCKS_READ):
        for one in candidates[:ATTEMPTS]:
            if node in readings:
                break
            reading = await _read(api, one, now)
            if reading is not None:
                readings[reading.node] = reading
    return list(readings.values())


def leader_of(info: Mapping[str, Any]) -> str:
    """Return the name of the node that leads a stream or a consumer, "" for a server without a cluster."""
    return str(inner(info.get("cluster")).get("leader") or "")


async def _read(api: JetStreamApi, led: _Led, now: Callable[[], int]) -> ClockReading | None:
    asked_at = now()
    try:
        info = await (api.stream(led.stream) if led.consumer is None else api.consumer(led.stream, led.consumer))
    except JetStreamError:
        return None  # it has no leader, or is gone
    answered_at, shown = now(), server_time(info)
    where = led.stream if led.consumer is None else f"{led.stream} > {led.consumer}"
    return None if shown is None else ClockReading(where, shown, asked_at, answered_at, leader_of(info))
