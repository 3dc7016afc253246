"""One connection to an account, what is known of its server, and what is reached through it.

The sidecar has one for each connection, and so has a command; both find the streams that carry schedules through it.
"""

from dataclasses import dataclass
from typing import Self

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.registry import CalendarBucket, Registry, SnapshotsBucket, snapshots_bucket_of
from nats_scheduler.jetstream.streams import FlaggedStreams
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.runtime.modes import CarryingStreams
from nats_scheduler.settings.sidecar import SidecarSettings


@dataclass(frozen=True, slots=True)
class Access:
    """One connection and what is reached through it, for as long as the connection lasts."""

    connection: Connection
    settings: SidecarSettings
    server: Capabilities
    api: JetStreamApi
    registry: Registry
    calendars: CalendarBucket
    snapshots: SnapshotsBucket

    @classmethod
    def through(cls, connection: Connection, settings: SidecarSettings) -> Self:
        """Return the access that a connection gives; nothing is requested yet, and so the server is not known."""
        chosen = settings.connection
        api = JetStreamApi(connection, chosen.api_prefix, chosen.request_timeout_seconds)
        registry = Registry(connection, api, settings.registry_bucket)
        calendars = CalendarBucket(connection, api, settings.calendars_bucket)
        snapshots = SnapshotsBucket(connection, api, snapshots_bucket_of(settings.registry_bucket))
        return cls(connection, settings, Capabilities(), api, registry, calendars, snapshots)

    @property
    def flagged(self) -> FlaggedStreams:
        """The streams that carry the flag."""
        return FlaggedStreams(self.api, self.registry, self.server)

    @property
    def carrying(self) -> CarryingStreams:
        """What finds the streams that carry schedules, by the settings."""
        return CarryingStreams(self.api, self.flagged, self.server, self.settings.portable_streams)
