"""The page's own connection to NATS: made again whenever it is lost, and used for requests to the micro service.

The rule: a connection is never repaired; when one ends, a new one is dialled, for as long as it takes. A request never
waits for a connection: without one it fails at once with the reason, so that a page can say so.
Cost: one connection; a dial every second while there is none.
"""

import asyncio
import json
from collections.abc import Mapping

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.dial import Dialer
from nats_scheduler.jetstream.errors import (
    ConnectError,
    ConnectionLostError,
    JetStreamError,
    NoAnswerError,
    NoJetStreamError,
    NotPermittedError,
    UnsendableError,
)
from nats_scheduler.jetstream.foreign_json import Object, read_object
from nats_scheduler.observe.log import logger
from nats_scheduler.service.endpoint import SUBJECTS
from nats_scheduler.service.micro import error_of
from nats_scheduler.settings.connection import ConnectionSettings

RECONNECT_PAUSE_SECONDS = 1.0
"""Pause after a pass over all servers in which none accepted the connection."""

REPORT_INTERVAL_SECONDS = 30.0
"""How often the log repeats why there is no connection."""

ANSWER_SECONDS = 10.0
"""Longest wait for an answer: a sidecar has 30 s, and a page is not looked at for that long."""


class QuestionError(Exception):
    """A request has no answer; the text is a sentence for the reader of the page."""


class NotConnectedError(QuestionError):
    """There is no connection to NATS."""


class NobodyAnswersError(QuestionError):
    """No sidecar subscribes to the endpoint, or none answered in time."""

    def __init__(self, sentence: str, *, is_absent: bool = False) -> None:
        super().__init__(sentence)
        self.is_absent = is_absent


class RefusedError(QuestionError):
    """A sidecar answered with an error of the micro service."""

    def __init__(self, code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class Link:
    """A connection that is made again when it is lost."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._dialer = Dialer(settings)
        self._connection: Connection | None = None
        self._reason = "the first connection is being made"
        self._reported: tuple[str, float] = ("", 0.0)

    @property
    def server(self) -> str:
        """The server that it is connected to, "" if it is not connected."""
        return "" if self._connection is None else self._connection.server.name

    @property
    def why_not_connected(self) -> str:
        """Why there is no connection, "" if there is one."""
        return self._reason if self._connection is None else ""

    async def keep(self) -> None:
        """Connect, and connect again, until cancelled."""
        while True:
            try:
                connection = await self._dialer.dial()
            except ConnectError as error:
                self._reason = str(error)
                self._report_failure()
                await asyncio.sleep(RECONNECT_PAUSE_SECONDS)
                continue
            await self._use(connection)

    async def _use(self, connection: Connection) -> None:
        """Serve requests with a connection until it is lost."""
        self._connection, self._reported = connection, ("", 0.0)
        server = connection.server
        logger().info("connected", server=connection.url, name=server.name, version=server.version)
        try:
            self._reason = await asyncio.shield(connection.lost)
            logger().warning("connection_lost", reason=self._reason)
        finally:
            self._connection = None
            await connection.close()

    def _report_failure(self) -> None:
        now, (reason, reported_at) = asyncio.get_running_loop().time(), self._reported
        if self._reason != reason or now - reported_at >= REPORT_INTERVAL_SECONDS:
            self._reported = self._reason, now
            logger().warning("connect_failed", reason=self._reason)

    async def ask(self, endpoint: str, request: Mapping[str, object]) -> Object:
        """Send a request to the micro service and return the answer; raises `QuestionError`."""
        connection = self._connection
        if connection is None:
            raise NotConnectedError(self._reason)
        body = json.dumps({key: value for key, value in request.items() if value is not None}).encode()
        try:
            reply = await connection.request(f"{SUBJECTS}.{endpoint}", body, deadline=ANSWER_SECONDS)
        except JetStreamError as error:
            raise _question_error(endpoint, error) from None
        if reply.block:
            raise RefusedError(*error_of(reply.block))
        answer = read_object(reply.body)
        if answer is None:
            raise NobodyAnswersError("something answers in place of a sidecar, with what is no JSON object")
        return answer


def _question_error(endpoint: str, error: JetStreamError) -> QuestionError:
    """Return what a failed request means to the reader of a page."""
    match error:
        case NoJetStreamError():
            return NobodyAnswersError("nothing subscribes to its requests", is_absent=True)
        case NoAnswerError():
            return NobodyAnswersError(f"no sidecar answered within {ANSWER_SECONDS:.0f} s")
        case NotPermittedError():
            return RefusedError(403, f"the user of this page may not publish to {SUBJECTS}.{endpoint}")
        case ConnectionLostError():
            return NotConnectedError(str(error))
        case UnsendableError():
            return RefusedError(400, "the request is too long for the server")
        case _:
            return NobodyAnswersError(str(error))
