"""The requests of the sidecar for the store of schedules (`control.store`), over the connection of the process.

Most of them are those of `control.requests`. The errors of this room become those of `control.schedule_errors`; an
outcome that nobody knows is `UnknownOutcomeError`.

Cost: one request for each method; `newest` and `backwards` read the messages on their subjects from the newest to the
oldest (`jetstream.stretches`).
Limit: on a stream with `no_ack` no publish is answered, so the outcome of each is unknown.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from nats_scheduler.control.requests import Requests
from nats_scheduler.control.schedule_errors import (
    ForbiddenError,
    NoAnswerError,
    RefusedError,
    StreamNotFoundError,
    UnknownOutcomeError,
)
from nats_scheduler.control.store_port import Published, Refusal, StreamNow
from nats_scheduler.engine.inputs import Stored, Unknown
from nats_scheduler.jetstream.api import STREAM_NOT_FOUND, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import (
    ApiError,
    ConnectionLostError,
    JetStreamError,
    NoJetStreamError,
    NotPermittedError,
    RequestUnansweredError,
    UnreadableAnswerError,
    UnsendableError,
)
from nats_scheduler.jetstream.own_permissions import OwnPermissions
from nats_scheduler.jetstream.publish import answer_of, outcome_of
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.foreign_json import Object, inner
from nats_scheduler.message.generated import NOT_AVAILABLE
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.message.user_permissions import PUBLISH, permits

MAX_PAYLOAD_EXCEEDED = 10054
"""The server's code for a message that is too large."""

BODIES_IN_FLIGHT = 32
"""Messages that are read at once for a list."""

MESSAGES_PER_TURN = 64
"""Messages that are interpreted before other work of the event loop goes on: less than a millisecond."""

_UNANSWERED = (RequestUnansweredError, ConnectionLostError, UnreadableAnswerError)


class ScheduleWire(Requests):
    """The requests of one connection; the `Wire` of `control.store_port`."""

    def __init__(self, connection: Connection, api: JetStreamApi) -> None:
        self._connection = connection
        self._api = api

    @property
    def finds_last(self) -> bool:
        """True if the server is known to find the message before one that was deleted."""
        return self._api.finds_last

    async def call(self, request: str, body: Object) -> Object:
        """Return the answer to a request; the connection repeats a question that is not answered."""
        with translated():
            return inner(await self._api.call(request, body or None))

    async def stream_of(self, subject: str) -> str:
        """Return the name of the account's stream that has a subject."""
        with translated():
            info = await self._api.stream_with(subject)
        if info is None:
            raise StreamNotFoundError(f"no stream has the subject {subject}")
        return StreamState.from_info(info).name

    async def newest(
        self, stream: str, subjects: str, is_wanted: Callable[[StoredMessage], bool]
    ) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, with its body, if its headers are wanted."""
        seen: set[str] = set()
        found: list[StoredMessage] = []
        async for message in self.backwards(await self.stream(stream), subjects):
            if message.subject not in seen and subject_matches(message.subject, subjects):
                seen.add(message.subject)
                if is_wanted(message):
                    found.append(message)
        for start in range(0, len(found), BODIES_IN_FLIGHT):
            part = found[start : start + BODIES_IN_FLIGHT]
            for bare, read in zip(part, await self._bodies(stream, part), strict=True):
                if read is not None:  # an answer in JSON does not have the bytes of each subject
                    yield read._replace(subject=bare.subject)

    async def backwards(self, stream: StreamNow, subject: str) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages of a stream on a subject without their bodies, newest first."""
        reader = StretchReader(self._connection, self._api, stream.config, subject)
        with translated():
            async for chunk in reader.backwards(max(stream.first_sequence, 1), stream.last_sequence):
                for place, message in enumerate(chunk):
                    if place % MESSAGES_PER_TURN == MESSAGES_PER_TURN - 1:
                        await asyncio.sleep(0)
                    yield message

    async def check_publish(self, subject: str) -> None:
        """Raise `ForbiddenError` if the server lists that the user may not publish to a subject."""
        listed = await self._connection.one(OwnPermissions).listed()
        if listed is not None and not permits(listed, PUBLISH, subject):
            with translated():
                raise NotPermittedError(subject)

    async def check_request(self, request: str) -> None:
        """Raise `ForbiddenError` if the server lists that the user may not send a request."""
        await self.check_publish(f"{self._api.prefix}.{request}")

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes) -> Published | Refusal:
        """Send a message once and return what the stream answers."""
        with translated():
            try:
                reply = await self._connection.request(subject, body, block, accepts=answer_of(stream))
            except NoJetStreamError as error:
                raise NoAnswerError(f"{subject}: {error}") from None
            except _UNANSWERED as error:
                raise UnknownOutcomeError(f"{subject}: {error}") from None
        outcome = outcome_of(stream, reply.block, reply.body)
        if outcome is None:
            raise UnknownOutcomeError(f"{subject}: the answer is not one of stream {stream}")
        if isinstance(outcome, Stored):
            return Published(outcome.sequence, outcome.duplicate)
        if isinstance(outcome, Unknown):
            reason = f"{subject}: {outcome.reason}"
            raise UnknownOutcomeError(reason) if outcome.may_be_stored else NoAnswerError(reason)
        return Refusal(outcome.status, outcome.code, outcome.description)

    async def advise(self, subject: str, body: bytes, block: bytes) -> None:
        """Publish an advisory, and wait for nothing."""
        self._connection.publish(subject, body, block)

    async def wait(self, seconds: float) -> None:
        """Wait before an attempt is repeated."""
        await asyncio.sleep(seconds)

    async def _bodies(self, stream: str, messages: list[StoredMessage]) -> list[StoredMessage | None]:
        return await asyncio.gather(*(self.message(stream, seq=one.sequence) for one in messages))


@contextmanager
def translated() -> Iterator[None]:
    """Raise the errors of this room as those of `control`."""
    try:
        yield
    except NotPermittedError as error:
        raise ForbiddenError(str(error)) from None
    except UnsendableError as error:
        raise RefusedError(str(error), MAX_PAYLOAD_EXCEEDED) from None
    except ApiError as error:
        if error.code == STREAM_NOT_FOUND:
            raise StreamNotFoundError(str(error)) from None
        if error.code in NOT_AVAILABLE:
            raise NoAnswerError(str(error)) from None
        raise RefusedError(str(error), error.code) from None
    except JetStreamError as error:
        raise NoAnswerError(str(error)) from None
