"""Where `top` has its knowledge from: the micro service of the sidecars, and the advisories that they publish.

Rule: nothing else is read, so that these permissions are enough: to publish to `nats_scheduler.v1.>`, and to subscribe
to `nats_scheduler.advisory.>` and to the own inboxes. A connection that is lost is made again, as often as it takes.
Cost: seven questions in each interval, one more for each sidecar and for each of the streams that are shown first.
Limit: an advisory that was published while there was no connection is shown only if a stream keeps advisories.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from nats_scheduler.cli.top_knowledge import Knowledge
from nats_scheduler.cli.top_questions import Questions
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.errors import Denial, JetStreamError
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX
from nats_scheduler.settings.connection import ConnectionSettings

ADVISORIES = f"{ADVISORY_PREFIX}.>"
RECONNECT_WAIT_SECONDS = 1.0
MAX_NAME_CHARS = 12
"""How much of the name of a server is shown: without one it has its id, of 56 characters."""


class Feed:
    """Fills the knowledge, on one connection after the other."""

    def __init__(self, settings: ConnectionSettings, knowledge: Knowledge, interval: float) -> None:
        """Prepare to ask each `interval` seconds."""
        self._dialer = Dialer(settings)
        self._knowledge = knowledge
        self._interval = interval

    async def connect(self) -> Connection:
        """Connect, and receive advisories; raises `JetStreamError`."""
        connection = await self._dialer.dial()
        server = connection.server
        name = server.name if len(server.name) <= MAX_NAME_CHARS else f"{server.name[:MAX_NAME_CHARS]}…"
        self._knowledge.connected(f"{connection.url} ({name}, {server.version})")
        connection.when_denied(self._denied)
        connection.subscribe(ADVISORIES, lambda _to, _reply, _block, body: self._knowledge.advised(body))
        return connection

    async def once(self, connection: Connection) -> None:
        """Ask everything once; what follows from the first answers in a second round."""
        questions = Questions(connection, self._interval, self._knowledge.answered)
        try:
            questions.ask_due(self._knowledge.questions())
            await questions.wait()
            questions.ask_due(self._knowledge.further_questions())
            await questions.wait()
        finally:
            await questions.close()

    async def keep_asking(self, connection: Connection, notify: Callable[[], None]) -> None:
        """Ask in each interval until cancelled, and call `notify` when there is something to show."""
        while True:
            try:
                await self._ask_until_lost(connection, notify)
                self._knowledge.lost = str(connection.lost.result())
            finally:
                await connection.close()
            notify()
            connection = await self._connect_again(notify)

    async def _ask_until_lost(self, connection: Connection, notify: Callable[[], None]) -> None:
        questions = Questions(connection, self._interval, self._knowledge.answered)
        loop = asyncio.get_running_loop()
        try:
            while not connection.is_lost:
                next_round = loop.time() + self._interval
                questions.ask_due(self._knowledge.questions())
                questions.ask_due(self._knowledge.further_questions())
                await questions.wait(self._interval)
                notify()
                await asyncio.wait((connection.lost,), timeout=max(next_round - loop.time(), 0))
        finally:
            await questions.close()

    async def _connect_again(self, notify: Callable[[], None]) -> Connection:
        while True:
            try:
                return await self.connect()
            except JetStreamError as error:
                self._knowledge.lost = " ".join(str(error).split())
                notify()
            await asyncio.sleep(RECONNECT_WAIT_SECONDS)

    def _denied(self, denial: Denial) -> None:
        """Note that advisories are not received; a request that is denied fails by itself."""
        if not denial.publishes and denial.subject == ADVISORIES:
            self._knowledge.denied = f"this user may not subscribe to {ADVISORIES}: failures appear late"
