"""Checks of the clock and of the time zones.

Rule: a clock is judged by bounds. The server showed its time after it was asked and before the answer came, so only an
offset that no delay of the network explains is reported.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from nats_scheduler.doctor.facts import AccountFacts, ClockReading, StreamFacts, ZoneData
from nats_scheduler.doctor.finding import Code, Finding
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.message.foreign_json import inner, server_time
from nats_scheduler.schedule.instants import DAY, SECOND, SECONDS_PER_DAY, civil_from_days
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.schedule.tzif import OffsetTable, read_tzif
from nats_scheduler.schedule.zone_data import host_zone_data, package_zone_data
from nats_scheduler.schedule.zones import Zone

MAX_CLOCK_OFFSET_NS = SECOND
"""A clock that differs by less from another one is not reported (ns)."""

MAX_ZONE_DATA_AGE_YEARS = 1
"""Zone data of this year and of this number of years before counts as recent: there is a release in every year."""

ZONES_COMPARED_NS = 5 * 366 * DAY
"""The time ahead (ns) for which two versions of a zone are compared: that for which a fire is searched."""


def check_clocks(facts: AccountFacts) -> Iterator[Finding]:
    """Find that the clock of this machine and that of a server differ."""
    readings = [(reading, offset_of(reading)) for reading in facts.clocks]
    worst = max(readings, key=lambda one: abs(one[1]), default=None)
    if worst is None or abs(worst[1]) < MAX_CLOCK_OFFSET_NS:
        return
    reading, offset = worst
    seconds = abs(offset) / SECOND
    side = "ahead of" if offset < 0 else "behind"
    what = f"the clock of this machine is {seconds:.1f} s {side} that of the server that leads {reading.where}"
    yield Finding(Code.CLOCK_OFF, what, "chronyc tracking, or timedatectl, on this machine and on the server")


def check_nodes_clocks(facts: AccountFacts) -> Iterator[Finding]:
    """Find that the clocks of two nodes of a cluster differ, whatever this machine's clock shows."""
    readings = [reading for reading in facts.clocks if reading.node]
    if len(readings) < 2:
        return
    ahead = max(readings, key=lambda one: one.shown - one.answered_at)
    behind = min(readings, key=lambda one: one.shown - one.asked_at)
    difference = (ahead.shown - ahead.answered_at) - (behind.shown - behind.asked_at)
    if difference >= MAX_CLOCK_OFFSET_NS:
        seconds = difference / SECOND
        what = f"the clock of node {ahead.node} is {seconds:.1f} s ahead of that of node {behind.node}"
        yield Finding(Code.CLOCKS_DIFFER, what, f"chronyc tracking, or timedatectl, on {ahead.node} and {behind.node}")


def offset_of(reading: ClockReading) -> int:
    """Return how far (ns) the server's clock is ahead of ours at least; negative if it is behind, 0 if that is open."""
    least, most = reading.shown - reading.answered_at, reading.shown - reading.asked_at
    if least > 0:
        return least
    return min(most, 0)


def check_zone_data(facts: AccountFacts) -> Iterator[Finding]:
    """Find zone data that is more than a year old."""
    this_year = civil_from_days(facts.at // SECOND // SECONDS_PER_DAY)[0]
    for place, version in sorted(facts.zone_versions.items()):
        year = re.match(r"\d{4}", version)
        if year is not None and int(year[0]) < this_year - MAX_ZONE_DATA_AGE_YEARS:
            what = f"the zone data in {place} is version {version}"
            yield Finding(Code.ZONE_DATA_OLD, what, _update_of(place))


def _update_of(place: str) -> str:
    if place.startswith("/"):
        return "update the package tzdata of this machine's system, and that of the servers"
    return "pip install --upgrade tzdata, and restart the sidecars"


def check_zones(facts: AccountFacts) -> Iterator[Finding]:
    """Find zones in use that are different in the sidecar's data and in that of this machine."""
    users = _users_of_zones(facts)
    for name, (ours, hosts) in sorted(facts.zones.items()):
        at = None if ours is None or hosts is None else first_difference(ours, hosts, facts.at)
        if ours is not None and hosts is None:
            how = "is missing in the zone data of this machine"
        elif ours is None and hosts is not None:
            how = "is missing in the sidecar's zone data"
        elif at is not None:
            how = f"has another offset in the sidecar's zone data than on this machine from {format_rfc3339(at)} on"
        else:
            continue
        command = "pip install --upgrade tzdata; update the package tzdata of the system"
        for stream in users.get(name, ()):
            yield Finding(Code.ZONES_DISAGREE, f"time zone {name} {how}", command, stream.name)


def check_server_zones(_facts: AccountFacts, stream: StreamFacts) -> Iterator[Finding]:
    """Find zones in use that are different in the data of the server, by what it has fired."""
    for one in stream.zone_differences:
        what = f"{one}, which a fire of {one.schedule} shows"
        command = "update the zone data that is older: on the server its system's package tzdata; here pip install "
        yield Finding(Code.ZONES_DISAGREE, what, f"{command}--upgrade tzdata", stream.name, one.schedule)


def _users_of_zones(facts: AccountFacts) -> dict[str, list[StreamFacts]]:
    users: dict[str, list[StreamFacts]] = {}
    for stream in facts.streams:
        names = {listed.pattern.time_zone for listed in stream.schedules}
        for name in sorted(name for name in names if name is not None):
            users.setdefault(name, []).append(stream)
    return users


def first_difference(ours: OffsetTable, theirs: OffsetTable, now: int) -> int | None:
    """Return the first instant (ns) from `now` on at which two tables have another offset; None if there is none."""
    one, other, at = Zone("ours", ours), Zone("theirs", theirs), now
    while at < now + ZONES_COMPARED_NS:
        here, there = one.segment_at(at), other.segment_at(at)
        if here.offset != there.offset:
            return at
        ends = [segment.end for segment in (here, there) if segment.end is not None]
        if not ends:
            return None
        at = min(ends)
    return None


# Read the clocks of the servers: an answer about a stream or a consumer contains the time of the node that leads it.
#
# Rule: each node is asked once, through a stream that it leads, or else through a consumer. So the clocks of a
# cluster's nodes can be compared with each other, and with that of this machine. Cost: one request for each node.
# Limit: a node that leads nothing in the account does not show its time.

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
    except JetStreamError:
        return None  # it has no leader, or is gone
    answered_at, shown = now(), server_time(info)
    where = stream if consumer is None else f"{stream} > {consumer}"
    return None if shown is None else ClockReading(where, shown, asked_at, answered_at, leader_of(info))


# Read the zone data of the time zones that schedules use: the sidecar's, and that of this machine.
#
# Cost: two files for each zone.

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
