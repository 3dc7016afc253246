"""The requests of the JetStream API that the client needs, over its wire (`control.requests`).

The rules:

- A question that the server could not answer at the moment (no leader) is repeated a few times.
- No request of JetStream reads backwards. So the messages on a subject in a range of sequences at the end are read, in
  parts side by side, then those of the range before it, which is longer if there were few. Each message is a request,
  bodies included.
"""

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from nats_scheduler.client.client_wire import NO_RESPONDERS, ClientReply, ClientWire
from nats_scheduler.control.errors import (
    TEMPORARY_STATUS,
    NoAnswerError,
    NoRespondersError,
    RefusedError,
    StreamNotFoundError,
    UnknownOutcomeError,
)
from nats_scheduler.control.requests import Requests, told_apart
from nats_scheduler.control.store import ID_IN_PROCESS
from nats_scheduler.control.store_port import Published, Refusal, StreamNow
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX
from nats_scheduler.message.foreign_json import Object, inner, integer, read_object
from nats_scheduler.message.stored import StoredMessage

DEFAULT_PREFIX = "$JS.API"
"""The prefix of JetStream's API in the domain of the server itself."""

ANSWER_SECONDS = 5.0
"""Longest wait for one answer."""

RETRY_WAITS_SECONDS = (0.05, 0.2, 0.5, 1.0)
"""Waits before a question is repeated that the server could not answer at the moment."""

MAX_LOOKUPS_IN_FLIGHT = 64
"""Messages of a list that are asked for at once."""

FIRST_RANGE = 512
"""Sequences of the first range that is read backwards."""

MAX_RANGE = 65_536
RANGE_GROWTH = 4
READERS = 16
"""Parts of a range that are read side by side."""

QUESTIONS = ("STREAM.INFO.", "STREAM.MSG.GET.", "STREAM.NAMES")
"""Requests that change nothing."""


class JetStreamRequests(Requests):
    """Requests to the JetStream of an account: the `Wire` of `control.store_port`."""

    def __init__(self, wire: ClientWire, prefix: str = DEFAULT_PREFIX) -> None:
        self._wire = wire
        self._prefix = prefix
        self._may_advise = True

    @property
    def finds_last(self) -> bool:
        """True if the server is known to find the message before a deleted one; False if it is of another domain."""
        return self._prefix == DEFAULT_PREFIX and self._wire.server.finds_last

    async def stream_of(self, subject: str) -> str:
        """Return the name of the stream that has a subject; raises `StreamNotFoundError`."""
        with told_apart():
            names = (await self.call("STREAM.NAMES", {"subject": subject})).get("streams")
        if not isinstance(names, list) or not names:
            raise StreamNotFoundError(f"no stream has the subject {subject}")
        return str(names[0])

    async def newest(
        self, stream: str, subjects: str, is_wanted: Callable[[StoredMessage], bool]
    ) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, with its body, if its headers are wanted."""
        asked: deque[asyncio.Task[StoredMessage | None]] = deque()
        try:
            async for subject, _number in self.subjects(stream, subjects):
                asked.append(asyncio.ensure_future(self.last(stream, subject)))
                if len(asked) >= MAX_LOOKUPS_IN_FLIGHT and (found := await asked.popleft()) and is_wanted(found):
                    yield found
            while asked:
                if (found := await asked.popleft()) and is_wanted(found):
                    yield found
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def backwards(self, stream: StreamNow, subject: str) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages of a stream on a subject without their bodies, newest first."""
        first, end, length = stream.first_sequence, stream.last_sequence + 1, FIRST_RANGE
        while end > first:
            start = max(first, end - length)
            found = await self._range(stream.name, subject, start, end)
            for message in reversed(found):
                yield message
            end = start
            if len(found) * RANGE_GROWTH <= FIRST_RANGE:
                length = min(length * RANGE_GROWTH, MAX_RANGE)

    async def check_publish(self, subject: str) -> None:
        """Raise nothing: to ask what the user may needs a permission that programs do not have."""

    async def check_request(self, request: str) -> None:
        """Raise nothing: the same."""

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes) -> Published | Refusal:
        """Send a message once and return what the stream answers."""

        def accept(reply: ClientReply) -> Published | Refusal | None:
            return _read_outcome(stream, reply)

        try:
            outcome: Published | Refusal = await self._wire.request(
                subject, body, block, within_seconds=ANSWER_SECONDS, accept=accept
            )
        except NoAnswerError as error:
            if not error.may_be_done:
                raise
            raise UnknownOutcomeError(str(error)) from None
        if outcome is _NOBODY:
            raise NoRespondersError(f"{subject}: {_NOBODY.description}")
        return outcome

    async def advise(self, subject: str, body: bytes, block: bytes) -> None:
        """Publish an advisory, and wait for nothing.

        Each attempt of a user who may not publish there is an error of the connection, so none follows the first.
        """
        self._may_advise = self._may_advise and not self._wire.was_denied_below(ADVISORY_PREFIX)
        if self._may_advise:
            await self._wire.publish(subject, block, body)

    async def wait(self, seconds: float) -> None:
        """Wait before an attempt is repeated."""
        await asyncio.sleep(seconds)

    async def _range(self, stream: str, subject: str, start: int, end: int) -> list[StoredMessage]:
        """Return the messages on a subject in a range of sequences, in their order."""
        step = max(-(-(end - start) // READERS), 1)
        parts = [(at, min(at + step, end)) for at in range(start, end, step)]
        read = await asyncio.gather(*(self._part(stream, subject, *part) for part in parts))
        return [message for part in read for message in part]

    async def _part(self, stream: str, subject: str, at: int, end: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        while at < end:
            message = await self.message(stream, seq=at, next_by_subj=subject)
            if message is None or message.sequence >= end:
                break
            found.append(message._replace(body=None))
            at = message.sequence + 1
        return found

    async def call(self, request: str, body: Object) -> Object:
        """Return the answer to a request; a question is repeated while the server cannot answer at the moment."""
        for wait in RETRY_WAITS_SECONDS if request.startswith(QUESTIONS) else ():
            try:
                return await self._call(request, body)
            except RefusedError as error:
                if error.status != TEMPORARY_STATUS:
                    raise
                await asyncio.sleep(wait)
        return await self._call(request, body)

    async def _call(self, request: str, body: Object) -> Object:
        content = json.dumps(body).encode() if body else b""
        subject = f"{self._prefix}.{request}"

        def accept(reply: ClientReply) -> Object | None:
            is_servers = not reply.has_headers or reply.status == NO_RESPONDERS
            return read_answer(reply) if is_servers else None

        answer = await self._wire.request(subject, content, within_seconds=ANSWER_SECONDS, accept=accept)
        if (error := answer.get("error")) is not None:
            status, code = integer(inner(error).get("code")), integer(inner(error).get("err_code"))
            raise RefusedError(status, code, str(inner(error).get("description")), request)
        return answer


_IN_PROCESS = Refusal(409, ID_IN_PROCESS, "duplicate message id is in process")

_NOBODY = Refusal(0, 0, "no stream has the subject, or it has no leader")


def _read_outcome(stream: str, reply: ClientReply) -> Published | Refusal | None:
    """Return what the server says of a message; None if it is not the server that answers.

    Each answer of a server names the stream, refusals too, and a sequence if the message is stored. It has no headers,
    as the answer to a direct get has, whose body a user chooses. 2.10 calls an identity that it knows, and not whether
    its message is stored, a duplicate of sequence 0.
    """
    if reply.status == NO_RESPONDERS:
        return _NOBODY
    answer = read_object(reply.body) or {}
    if reply.has_headers or answer.get("stream") != stream:
        return None
    if answer.get("error") is not None:
        error = inner(answer["error"])
        return Refusal(integer(error.get("code")), integer(error.get("err_code")), str(error.get("description")))
    sequence, is_duplicate = integer(answer.get("seq"), -1), answer.get("duplicate") is True
    if sequence > 0:
        return Published(sequence, is_duplicate)
    return _IN_PROCESS if is_duplicate and sequence == 0 else None


def read_answer(reply: ClientReply) -> Object | None:
    """Return an answer as an object; None if it is none."""
    if reply.status == NO_RESPONDERS:
        return {"error": {"code": TEMPORARY_STATUS, "err_code": 0, "description": "JetStream does not answer"}}
    return read_object(reply.body)
