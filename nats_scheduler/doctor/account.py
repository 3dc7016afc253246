"""What the gatherers ask of an account: a connection, and the modes of its streams."""

from typing import Protocol

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.calendars import CalendarBucket
from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.settings.sidecar import SidecarSettings


class Account(Protocol):
    """One account on one connection; `cli.session.Session` is one."""

    @property
    def connection(self) -> Connection:
        """The connection."""
        ...

    @property
    def api(self) -> JetStreamApi:
        """The JetStream of the account."""
        ...

    @property
    def registry(self) -> Registry:
        """The sidecars' bucket, which may not exist."""
        ...

    @property
    def calendars(self) -> CalendarBucket:
        """The bucket of calendars, which may not exist."""
        ...

    @property
    def server(self) -> Capabilities:
        """What the server can do."""
        ...

    @property
    def settings(self) -> SidecarSettings:
        """The settings of the running sidecars, as far as they share them."""
        ...

    async def with_mode(self, state: StreamState) -> tuple[StreamState, Mode | None]:
        """Return a stream with its registry entry, and its mode, None if it is not served."""
        ...
