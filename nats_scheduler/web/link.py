"""The connection of the status page, and the requests that it sends.

Where no sidecar runs, what the server itself fires is read, and answered as a sidecar would: changes are not.
Cost: one connection, and a dial every second while there is none.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol

from nats_scheduler.control.errors import NoRespondersError, NotConnectedError
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.observe.log import logger
from nats_scheduler.service.change_endpoints import CHANGE_LIMIT_SECONDS, CONTROL_SUBJECTS
from nats_scheduler.service.client import ask
from nats_scheduler.service.sidecar_answers import ANSWER_SECONDS
from nats_scheduler.settings.connection_settings import ConnectionSettings

RECONNECT_PAUSE_SECONDS = 1.0
"""Pause after a pass over all servers in which none accepted the connection."""

CHANGE_SECONDS = CHANGE_LIMIT_SECONDS + 2
"""Longest wait for the answer to a change, which a sidecar makes within `CHANGE_LIMIT_SECONDS`."""

REPORT_INTERVAL_SECONDS = 30.0
"""The interval at which the log repeats why there is no connection."""


class Reader(Protocol):
    """Answers as a sidecar would, where none runs (`runtime.asked.ServerAlone`)."""

    @property
    def opened(self) -> Callable[[], AbstractAsyncContextManager[None]]:
        """Let the server be read for as long as the context lasts."""

    async def answer(self, endpoint: str, request: Mapping[str, object]) -> Object:
        """Return the answer of an endpoint that reads; raises `SchedulerError`."""


class Link:
    """A connection that is made again when it is lost, for as long as that takes.

    A request never waits for it: without a connection it fails at once with the reason, so that a page can say so.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        rule: str | None = None,
        reader_on: Callable[[Connection], Reader] | None = None,
    ) -> None:
        """Connect by `settings`; changes are asked for under a rule of the sidecars, if one is named.

        `reader_on` returns who answers on a connection where no sidecar does; None if nobody.
        """
        self._reader_on = reader_on
        self._reader: Reader | None = None
        self._control = f"{CONTROL_SUBJECTS}.for.{rule}" if rule else CONTROL_SUBJECTS
        self._dialer = Dialer(settings)
        self._connection: Connection | None = None
        self._reason = "the first connection is being made"
        self._reported: tuple[str, float] = ("", 0.0)

    @property
    def server(self) -> str:
        """The server that it is connected to, "" if it is not connected."""
        return "" if self._connection is None else self._connection.server.name

    async def keep(self) -> None:
        """Connect, and connect again, until cancelled."""
        while True:
            try:
                connection = await self._dialer.dial()
            except NotConnectedError as error:
                self._reason = str(error)
                self._report_failure()
                await asyncio.sleep(RECONNECT_PAUSE_SECONDS)
                continue
            await self._use(connection)

    async def _use(self, connection: Connection) -> None:
        """Serve requests with a connection until it is lost."""
        self._connection, self._reported = connection, ("", 0.0)
        self._reader = None if self._reader_on is None else self._reader_on(connection)
        server = connection.server
        logger().info("connected", server=connection.url, name=server.name, version=server.version)
        try:
            async with nullcontext() if self._reader is None else self._reader.opened():
                self._reason = await asyncio.shield(connection.lost)
            logger().warning("connection_lost", reason=self._reason)
        finally:
            self._connection = self._reader = None
            await connection.close()

    def _report_failure(self) -> None:
        now, (reason, reported_at) = asyncio.get_running_loop().time(), self._reported
        if self._reason != reason or now - reported_at >= REPORT_INTERVAL_SECONDS:
            self._reported = self._reason, now
            logger().warning("connect_failed", reason=self._reason)

    async def ask(self, endpoint: str, request: Mapping[str, object]) -> Object:
        """Send a request to the micro service and return the answer; raises `SchedulerError`."""
        if self._connection is None:
            raise NotConnectedError(self._reason)
        try:
            return await ask(self._connection, endpoint, request, ANSWER_SECONDS, "the user of this page")
        except NoRespondersError:
            if self._reader is None:
                raise
            return await self._reader.answer(endpoint, request)

    async def change(self, endpoint: str, request: Mapping[str, object]) -> Object:
        """Send a request that changes a schedule, once, and return the answer; raises `SchedulerError`."""
        if self._connection is None:
            raise NotConnectedError(self._reason)
        return await ask(
            self._connection, endpoint, request, CHANGE_SECONDS, "the user of this page", control=self._control
        )
