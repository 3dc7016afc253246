"""One command's connection to a server: connect, read what it can do, find the streams that are served.

Rule: nothing is written. The registry is read if it exists; a command that writes to it opens it first. Every failure
of the server or the network ends the command with 1 and one sentence.
Cost: the client and pydantic are imported, some 200 ms; one connection and one request.
Limit: one pass over the servers; a command does not wait for a server to come back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from nats_scheduler.cli.output import CommandError, print_warning
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.calendars import CalendarBucket
from nats_scheduler.jetstream.capabilities import OLDEST_VERSION, Capabilities, capabilities
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import FlaggedStreams, StreamState
from nats_scheduler.runtime.carrying import CarryingStreams, ServedStream
from nats_scheduler.runtime.fleet import is_instance
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.service.client import ServiceClient
from nats_scheduler.settings.load import ResolvedSettings
from nats_scheduler.settings.sidecar import SidecarSettings

T = TypeVar("T")

__all__ = ["ServedStream", "Session", "in_session", "open_session"]


@dataclass(frozen=True, slots=True)
class Session:
    """A connection, and what is known of its server."""

    connection: Connection
    api: JetStreamApi
    registry: Registry
    calendars: CalendarBucket
    server: Capabilities
    settings: SidecarSettings
    service: ServiceClient
    """Asks the running sidecars."""

    @property
    def flagged(self) -> FlaggedStreams:
        """The streams that carry the flag."""
        return FlaggedStreams(self.api, self.registry, self.server)

    @property
    def carrying(self) -> CarryingStreams:
        """What finds the streams that carry schedules, by the settings of this session."""
        return CarryingStreams(self.api, self.flagged, self.server, self.settings.portable_streams)

    async def with_mode(self, state: StreamState) -> tuple[StreamState, Mode | None]:
        """Return a stream with its registry entry, and its mode; the mode is None if the stream is not served."""
        return await self.carrying.with_mode(state)

    async def served_streams(self) -> list[ServedStream]:
        """Return every stream of the account that is served, by name."""
        return await self.carrying.all()

    async def served_stream(self, name: str) -> ServedStream:
        """Return one stream; end the command with 1 if it does not exist or is not served."""
        info = await self.api.stream(name)
        if info is None:
            raise CommandError(f"stream {name} does not exist")
        state, mode = await self.with_mode(StreamState.from_info(info))
        if mode is None:
            hint = "give its configuration with allow_msg_schedules to `nats-scheduler stream add`"
            raise CommandError(f"stream {name} does not carry schedules: {hint}")
        return ServedStream(state, mode)


def in_session(resolved: ResolvedSettings, work: Callable[[Session], Awaitable[T]]) -> T:
    """Connect, run a command's work and return its result; end the command with 1 if that fails."""
    for warning in resolved.warnings:
        print_warning(warning)
    # Not the task's result: asyncio.run builds the repr of a finished task twice, with all 100,000 schedules of a list.
    done: list[T] = []

    async def connect_and_work() -> None:
        async with open_session(resolved.settings) as session:
            done.append(await work(session))

    try:
        asyncio.run(connect_and_work())
    except JetStreamError as error:
        raise CommandError(str(error)) from None
    return done[0]


@asynccontextmanager
async def open_session(settings: SidecarSettings) -> AsyncIterator[Session]:
    """Connect, and close the connection at the end; raises `JetStreamError` if JetStream is not available."""
    connection = await Dialer(settings.connection).dial()
    try:
        api = JetStreamApi(connection, settings.connection.api_prefix, settings.connection.request_timeout_seconds)
        greeting = connection.server
        server = capabilities(await api.info(), greeting.version, greeting.max_payload)
        if server.is_too_old:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise CommandError(f"the server is version {server.version}: message schedules need {oldest} or later")
        registry = Registry(connection, api, settings.registry_bucket)
        registry.broken = lambda _key, reason: print_warning(f"a value in the registry is ignored: {reason}")
        calendars = CalendarBucket(connection, api, settings.calendars_bucket)
        service = ServiceClient(connection, partial(is_instance, registry))
        yield Session(connection, api, registry, calendars, server, settings, service)
    finally:
        await connection.close()
