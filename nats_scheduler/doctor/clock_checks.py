"""Checks of the clock and of the time zones.

Rule: a clock is judged by bounds. The server showed its time after it was asked and before the answer came, so only an
offset that no delay of the network explains is reported.
"""

import re
from collections.abc import Iterator

from nats_scheduler.doctor.facts import AccountFacts, ClockReading, StreamFacts
from nats_scheduler.message.findings import Code, Finding
from nats_scheduler.schedule.instants import DAY, SECOND, SECONDS_PER_DAY, civil_from_days
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.schedule.tzif import OffsetTable
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
