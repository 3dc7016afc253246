"""What is reached through one connection: JetStream's API, and the buckets of the registry, calendars and snapshots."""

from dataclasses import dataclass

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.buckets import CalendarBucket, SnapshotsBucket, snapshots_bucket_of
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.settings.sidecar import SidecarSettings


@dataclass(frozen=True, slots=True)
class Access:
    """One connection and what is reached through it, for as long as the connection lasts."""

    connection: Connection
    api: JetStreamApi
    registry: Registry
    calendars: CalendarBucket
    snapshots: SnapshotsBucket


def access_through(connection: Connection, settings: SidecarSettings) -> Access:
    """Return the access that a connection gives; nothing is requested yet."""
    chosen = settings.connection
    api = JetStreamApi(connection, chosen.api_prefix, chosen.request_timeout_seconds)
    calendars = CalendarBucket(connection, api, settings.calendars_bucket)
    snapshots = SnapshotsBucket(connection, api, snapshots_bucket_of(settings.registry_bucket))
    return Access(connection, api, Registry(connection, api, settings.registry_bucket), calendars, snapshots)
