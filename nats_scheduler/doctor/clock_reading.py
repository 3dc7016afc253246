"""Read the clocks of the servers, and the zone data of the time zones that schedules use.

An answer about a stream or a consumer contains the time of the node that leads it. Each node is asked once, through a
stream that it leads, or else through a consumer. So the clocks of a cluster's nodes can be compared with each other,
and with that of this machine.
Limit: a node that leads nothing in the account does not show its time.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.doctor.facts import ClockReading, StreamFacts, ZoneData
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.message.foreign_json import inner, server_time
from nats_scheduler.schedule.tzif import read_tzif
from nats_scheduler.schedule.zone_data import host_zone_data, package_zone_data

MAX_CLOCKS_READ = 64
"""Nodes that are asked for their time."""

ATTEMPTS = 3
"""Streams and consumers that are asked, one after the other, until the node that leads them answers."""


async def read_clocks(
    api: JetStreamApi, infos: Iterable[Mapping[str, Any]], streams: Sequence[StreamFacts], now: Callable[[], int]
) -> list[ClockReading]:
    """Read the clock of each node; `infos` are of STREAM.LIST, and `now` returns the time of this machine (ns)."""
    led: dict[str, list[tuple[str, str | None]]] = {}
    for info in infos:
        led.setdefault(leader_of(info), []).append((str(inner(info.get("config")).get("name")), None))
    for stream in streams:
        for node, consumer in stream.consumer_leaders.items():
            led.setdefault(node, []).append((stream.name, consumer))
    readings: dict[str, ClockReading] = {}
    for node, candidates in islice(led.items(), MAX_CLOCKS_READ):
        for stream_led, consumer_led in candidates[:ATTEMPTS]:
            if node in readings:
                break
            reading = await _read(api, stream_led, consumer_led, now)
            if reading is not None:
                readings[reading.node] = reading
    return list(readings.values())


def leader_of(info: Mapping[str, Any]) -> str:
    """Return the name of the node that leads a stream or a consumer, "" for a server without a cluster."""
    return str(inner(info.get("cluster")).get("leader") or "")


async def _read(api: JetStreamApi, stream: str, consumer: str | None, now: Callable[[], int]) -> ClockReading | None:
    asked_at = now()
    try:
        info = await (api.stream(stream) if consumer is None else api.consumer(stream, consumer))
    except SchedulerError:
        return None  # it has no leader, or is gone
    answered_at, shown = now(), server_time(info)
    where = stream if consumer is None else f"{stream} > {consumer}"
    return None if shown is None else ClockReading(where, shown, asked_at, answered_at, leader_of(info))


NOT_IN_FILES = frozenset({"UTC", "Local"})
"""Zones that are not read from a file, or mean another one on each host."""


def zones_in(streams: Sequence[StreamFacts]) -> list[str]:
    """Return the names of the zones that schedules use; none if this machine has no zone data at all."""
    if host_zone_data("Etc/UTC") is None:
        return []
    patterns = {listed.pattern for stream in streams for listed in stream.schedules}
    return sorted({name for pattern in patterns if (name := pattern.time_zone) is not None} - NOT_IN_FILES)


def zone_data_of(name: str) -> ZoneData:
    """Read one zone."""
    return read_tzif(package_zone_data(name) or b""), read_tzif(host_zone_data(name) or b"")
