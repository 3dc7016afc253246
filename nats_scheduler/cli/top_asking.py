"""The questions of `top` to the sidecars, and the receipt of what they publish.

Rule: all is asked in each interval, and an answer that is not there by then is shown when it comes
(`service.sidecar_answers`). Where no sidecar runs, what the server itself fires is read here, and answered as a sidecar
would (`runtime.asked`).
A connection that is lost is made again, as often as it takes.
These permissions are enough: to publish to `nats_scheduler.v1.>`, and to subscribe to `nats_scheduler.advisory.>` and
to the own inboxes; to read without a sidecar, those to list and read streams.
Cost: seven questions in each interval, one more for each sidecar and for each of the streams that are shown first.
Limit: an advisory that was published while there was no connection is shown only if a stream keeps advisories.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager

from nats_scheduler.cli.top_knowledge import Asked, Knowledge
from nats_scheduler.control.errors import NoRespondersError, NotConnectedError, SchedulerError
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.denials import Denial
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX
from nats_scheduler.message.foreign_json import Object
from nats_scheduler.runtime.asked import ServerAlone
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.service.client import ask
from nats_scheduler.service.sidecar_answers import ANSWER_SECONDS, Answers
from nats_scheduler.settings.sidecar_settings import SidecarSettings

ADVISORIES = f"{ADVISORY_PREFIX}.>"
RECONNECT_WAIT_SECONDS = 1.0
MAX_NAME_CHARS = 12
"""The most characters of a server's name that are shown: without a name it has its id, of 56 characters."""


class Feed:
    """Asks for what is shown, on one connection after the other."""

    def __init__(self, settings: SidecarSettings, stream: str | None, interval: float) -> None:
        """Prepare to ask each `interval` seconds about a stream, or about all."""
        self._settings = settings
        self._dialer = Dialer(settings.connection)
        self._interval = interval
        self._connection: Connection | None = None
        self._alone: ServerAlone | None = None
        self._answers = Answers(self._ask, SystemClock().now, lambda _error: None)
        self.knowledge = Knowledge(stream, self._answers, interval)

    async def connect(self) -> Connection:
        """Connect, and receive advisories; raises `SchedulerError`."""
        self._connection = connection = await self._dialer.dial()
        self._alone = ServerAlone(connection, self._settings)
        server, known = connection.server, self.knowledge
        name = server.name if len(server.name) <= MAX_NAME_CHARS else f"{server.name[:MAX_NAME_CHARS]}…"
        known.server, known.lost, known.denied = f"{connection.url} ({name}, {server.version})", "", ""
        self._answers.ask_again()
        connection.when_denied(self._denied)
        connection.subscribe(ADVISORIES, lambda _to, _reply, _block, body: known.advised(body))
        return connection

    async def once(self) -> None:
        """Ask everything once; what follows from the first answers in a second round; raises `SchedulerError`."""
        connection = await self.connect()
        try:
            async with self._opened():
                await self._ask_all(self.knowledge.questions(), None)
                if self._alone is not None and await self._alone.have_read():
                    self._answers.ask_again()
                    await self._ask_all(self.knowledge.questions(), None)
                await self._ask_all(self.knowledge.further_questions(), None)
        finally:
            await self._answers.close()
            await connection.close()

    async def keep_asking(self, connection: Connection, notify: Callable[[], None]) -> None:
        """Ask in each interval until cancelled, and call `notify` when there is something to show."""
        try:
            while True:
                try:
                    async with self._opened():
                        await self._ask_until_lost(connection, notify)
                    self.knowledge.lost = str(connection.lost.result())
                finally:
                    await connection.close()
                notify()
                connection = await self._connect_again(notify)
        finally:
            await self._answers.close()

    async def _ask_until_lost(self, connection: Connection, notify: Callable[[], None]) -> None:
        loop, known = asyncio.get_running_loop(), self.knowledge
        while not connection.is_lost:
            next_round = loop.time() + self._interval
            await self._ask_all([*known.questions(), *known.further_questions()], self._interval)
            notify()
            await asyncio.wait((connection.lost,), timeout=max(next_round - loop.time(), 0))

    async def _ask_all(self, questions: Iterable[Asked], patience: float | None) -> None:
        """Ask those of the questions for which it is time, all at once, and wait for `patience` (s) at most."""
        await asyncio.gather(*(self._answers.get(question, request, patience) for question, request in questions))
        self.knowledge.take()

    async def _ask(self, endpoint: str, request: Mapping[str, object]) -> Object:
        if self._connection is None or self._alone is None or self._connection.is_lost:
            raise NotConnectedError("there is no connection")
        try:
            return await ask(self._connection, endpoint, request, ANSWER_SECONDS)
        except NoRespondersError:
            return await self._alone.answer(endpoint, request)

    def _opened(self) -> AbstractAsyncContextManager[None]:
        """Let what the server fires be read, where no sidecar runs."""
        assert self._alone is not None, "there is a connection"
        return self._alone.opened()

    async def _connect_again(self, notify: Callable[[], None]) -> Connection:
        while True:
            try:
                return await self.connect()
            except SchedulerError as error:
                self.knowledge.lost = " ".join(str(error).split())
                notify()
            await asyncio.sleep(RECONNECT_WAIT_SECONDS)

    def _denied(self, denial: Denial) -> None:
        """Note that advisories are not received; a request that is denied fails by itself."""
        if not denial.publishes and denial.subject == ADVISORIES:
            self.knowledge.denied = f"this user may not subscribe to {ADVISORIES}: failures appear late"
