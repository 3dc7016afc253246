"""Read the zone data of the time zones that schedules use: the sidecar's, and that of this machine.

Cost: two files for each zone.
"""

from collections.abc import Sequence

from nats_scheduler.doctor.facts import StreamFacts, ZoneData
from nats_scheduler.schedule.patterns import time_zone_of
from nats_scheduler.schedule.tzif import read_tzif
from nats_scheduler.schedule.zone_files import host_zone_data, package_zone_data

NOT_IN_FILES = frozenset({"UTC", "Local"})
"""Zones that are not read from a file, or mean another one on each host."""


def zones_in(streams: Sequence[StreamFacts]) -> list[str]:
    """Return the names of the zones that schedules use; none if this machine has no zone data at all."""
    if host_zone_data("Etc/UTC") is None:
        return []
    patterns = {listed.pattern for stream in streams for listed in stream.schedules}
    return sorted({name for pattern in patterns if (name := time_zone_of(pattern)) is not None} - NOT_IN_FILES)


def zone_data_of(name: str) -> ZoneData:
    """Read one zone."""
    return ZoneData(read_tzif(package_zone_data(name) or b""), read_tzif(host_zone_data(name) or b""))
