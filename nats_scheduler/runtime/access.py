"""One connection to an account, what is known of its server, and what is reached through it.

The sidecar has one for each connection, and so has a command; both find the streams that carry schedules through it.
"""

from dataclasses import dataclass
from typing import Self

from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.calendar_bucket import CalendarBucket
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.registry import BucketLimits, Registry
from nats_scheduler.jetstream.streams import FlaggedStreams, StreamState
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.runtime.modes import Mode, ServedStream, mode_of
from nats_scheduler.settings.sidecar_settings import SidecarSettings


@dataclass(frozen=True, slots=True)
class Access:
    """One connection and what is reached through it, for as long as the connection lasts."""

    connection: Connection
    settings: SidecarSettings
    server: Capabilities
    api: JetStreamApi
    registry: Registry
    calendars: CalendarBucket

    @classmethod
    def through(cls, connection: Connection, settings: SidecarSettings) -> Self:
        """Return the access that a connection gives; nothing is requested yet, and so the server is not known."""
        chosen = settings.connection
        api = JetStreamApi(connection, chosen.api_prefix, chosen.request_timeout_seconds)
        limits = BucketLimits(settings.bucket_max_bytes, settings.bucket_storage)
        registry = Registry(connection, api, settings.registry_bucket, limits)
        calendars = CalendarBucket(connection, api, settings.calendars_bucket, limits)
        return cls(connection, settings, Capabilities(), api, registry, calendars)

    @property
    def flagged(self) -> FlaggedStreams:
        """The streams that carry the flag."""
        return FlaggedStreams(self.api, self.registry, self.server)

    async def served_streams(self) -> list[ServedStream]:
        """Return every stream that carries schedules, as the server and the registry have it at the moment, by name.

        Those with the flag, and those that the settings name; whether a sidecar serves them is another question. It
        takes the list of streams, and a request to the registry for each stream where the server does not keep the
        flag. Raises `SchedulerError`.
        """
        states = [StreamState.from_info(info) async for info in self.api.streams()]
        found = [await self.with_mode(state) for state in sorted(states, key=lambda state: state.name)]
        return [ServedStream(state, mode) for state, mode in found if mode is not None]

    async def with_mode(self, state: StreamState) -> tuple[StreamState, Mode | None]:
        """Return a stream with its registry entry, and its mode by the sidecar's own rules.

        The mode is None if the stream is not served.
        """
        try:
            state = await self.flagged.recall(state)
        except ForbiddenError:
            if not state.is_native and not state.has_metadata_flag:  # these are flagged without a registry entry
                raise
        mode = mode_of(state, self.server, self.settings.portable_streams)
        return state, None if mode is Mode.EMULATED and state.excludes_schedules else mode
