"""Requests over a nats-py connection that the program has, with header blocks that arrive as they were written.

nats-py merges headers of the same name and strips their values, and a schedule is its header block. So a message with
headers is written as a frame of our own; everything else goes through the public methods of the connection.

The rules:

- Nothing is sent that makes the server close the connection: too large a message, too long a subject.
- Only an answer that the caller accepts counts: a publish with a reply subject is received by all core subscribers, and
  one of them may answer before the server.
- Callbacks of the connection are never replaced. A missing permission is found in `last_error`, which nats-py sets for
  it, so it is noticed within milliseconds and not at the end of the wait.

Cost: one subscription for each connection, however many values use it.
Limit: what the connection has queued when it is lost is sent after it was made again, as nats-py does.
`tests/client/test_wire.py` holds nats-py to what is used here that it does not document.
"""

import asyncio
import json
import re
import secrets
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import NamedTuple, TypeVar
from weakref import WeakValueDictionary

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from nats_scheduler.control.errors import (
    ForbiddenError,
    NoAnswerError,
    NotPossibleError,
    RefusedError,
    StreamNotFoundError,
    UnknownOutcomeError,
)
from nats_scheduler.control.port import Published, Refusal, StreamNow
from nats_scheduler.control.requests import Requests
from nats_scheduler.control.store import ID_IN_PROCESS
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX
from nats_scheduler.message.capabilities import Capabilities, capabilities_of
from nats_scheduler.message.foreign_json import Object, inner, integer, read_object
from nats_scheduler.message.stored import StoredMessage

MAX_CONTROL_LINE_BYTES = 4_096
"""Longest first line of a frame that servers accept by default; a longer one makes them close the connection."""

TOO_LARGE = 10054
"""The server's code for a message that is too large for its stream."""

MIN_CHECK_SECONDS, MAX_CHECK_SECONDS = 0.01, 0.25
"""The wait, at first and at most, before it is checked whether the request was denied."""

TOKEN_BYTES = 12
"""Random bytes of the last token of a reply subject: who sees one cannot answer another request."""

NO_RESPONDERS = "503"

_BLANK = re.compile(r"[\s\x00]").search

T = TypeVar("T")


class NotSentError(NoAnswerError):
    """There is no connection at the moment: nothing was sent."""


class Reply(NamedTuple):
    """An answer."""

    status: str
    """The inline status of the server, such as `503`; "" if there is none."""
    body: bytes
    has_headers: bool = False


class Wire:
    """The requests of one connection."""

    def __init__(self, connection: Client) -> None:
        """Send nothing yet; `wire_of` returns the one that all share."""
        self._connection = connection
        self._inbox = ""
        self._opening = asyncio.Lock()
        self._waiting: dict[str, Callable[[Reply], None]] = {}

    @property
    def server(self) -> Capabilities:
        """The capabilities of the server that the program is connected to, by its version."""
        version = self._connection.connected_server_version
        return capabilities_of(f"{version.major}.{version.minor}.{version.patch}")

    async def request(
        self,
        subject: str,
        body: bytes = b"",
        block: bytes = b"",
        *,
        within_seconds: float,
        accept: Callable[[Reply], T | None],
    ) -> T:
        """Send a message and return what `accept` makes of the first answer that it accepts (not None).

        Raises `NoAnswerError` if there is none in time, `ForbiddenError` if the user may not send it or receive an
        answer, and `RefusedError` or `NotPossibleError` for what no server would take, before anything is sent.
        """
        self._check(subject, block, body)
        if not self._connection.is_connected:
            await asyncio.sleep(0)  # else a program that repeats it at once keeps nats-py from connecting again
            raise NotSentError(f"{subject}: there is no connection to a server at the moment")
        await self._open()
        token, answered = secrets.token_hex(TOKEN_BYTES), asyncio.get_running_loop().create_future()

        def received(reply: Reply) -> None:
            if not answered.done() and (found := accept(reply)) is not None:
                answered.set_result(found)

        self._waiting[token] = received
        error_before = self._connection.last_error
        try:
            await self._send(subject, f"{self._inbox}{token}", block, body)
            return await self._answer(answered, subject, error_before, within_seconds)
        except nats.errors.Error as error:
            raise NotSentError(f"{subject}: {error}") from None
        except OSError as error:
            raise NoAnswerError(f"{subject}: {error}") from None
        finally:
            del self._waiting[token]

    async def publish(self, subject: str, block: bytes, body: bytes) -> None:
        """Send a message without waiting for an answer; on a lost connection it is discarded."""
        self._check(subject, block, body)
        if self._connection.is_connected:
            await self._send(subject, "", block, body)

    def was_denied_below(self, prefix: str) -> bool:
        """Return whether the last error of the connection says that the user may not publish to such a subject."""
        text = str(self._connection.last_error).lower()
        return f'permissions violation for publish to "{prefix.lower()}.' in text

    async def _answer(
        self, answered: "asyncio.Future[T]", subject: str, error_before: Exception | None, within_seconds: float
    ) -> T:
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + within_seconds, MIN_CHECK_SECONDS
        while (left := deadline - loop.time()) > 0:
            await asyncio.wait((answered,), timeout=min(pause, left))
            if answered.done():
                return answered.result()
            error = self._connection.last_error
            if error is not error_before and _denies(error, "publish", subject):
                raise ForbiddenError(f"the user of this program may not publish to {subject}")
            if _denies(error, "subscription", f"{self._inbox}*"):
                raise ForbiddenError(f"the user of this program may not subscribe to its inbox {self._inbox}*")
            if self._connection.is_closed:
                break
            pause = min(2 * pause, MAX_CHECK_SECONDS)
        raise NoAnswerError(f"{subject}: no answer within {within_seconds:g} s")

    async def _open(self) -> None:
        """Subscribe once to an inbox for all answers."""
        async with self._opening:
            if not self._inbox:
                inbox = f"{self._connection.new_inbox()}."
                try:
                    await self._connection.subscribe(f"{inbox}*", cb=self._received)
                except nats.errors.Error as error:
                    raise NoAnswerError(f"{inbox}*: {error}") from None
                self._inbox = inbox

    async def _received(self, message: Msg) -> None:
        received = self._waiting.get(message.subject.rpartition(".")[2])
        if received is not None:
            headers = message.headers or {}
            received(Reply(str(headers.get("Status", "")), message.data, bool(headers)))

    async def _send(self, subject: str, reply: str, block: bytes, body: bytes) -> None:
        if not block:
            await self._connection.publish(subject, body, reply=reply)
            return
        # What `Client.publish` does with a block of its own making.
        await self._connection._send_command(_frame(subject, reply, block, body))
        if self._connection._flush_queue is not None and self._connection._flush_queue.empty():
            await self._connection._flush_pending()

    def _check(self, subject: str, block: bytes, body: bytes) -> None:
        """Refuse what makes a server close the connection."""
        if not isinstance(body, bytes | bytearray | memoryview):
            raise TypeError(f"a body of {body!r:.80}: bytes are expected, such as 'text'.encode()")
        size, most = len(block) + len(body), self._connection.max_payload
        if size > most:
            text = f"message size exceeds maximum allowed: {size:,} bytes with headers, and the server takes {most:,}"
            raise RefusedError(text, TOO_LARGE)
        if not subject or _BLANK(subject):
            raise NotPossibleError(f"{subject[:80]!r} is no subject: it is empty, or has blanks")
        line = len(subject.encode("utf-8", "surrogateescape")) + len(self._inbox) + 64
        if line > MAX_CONTROL_LINE_BYTES:
            raise NotPossibleError(f"{subject[:80]!r}… has {len(subject):,} characters: no server takes such a subject")


_wires: "WeakValueDictionary[int, Wire]" = WeakValueDictionary()
"""By the `id` of the connection, which lives as long as its wire; the subscription of the connection keeps the wire."""


def wire_of(connection: Client) -> Wire:
    """Return the requests of a connection; the same for all that ask with it."""
    wire = _wires.get(id(connection))
    if wire is None:
        wire = _wires[id(connection)] = Wire(connection)
    return wire


def _denies(error: Exception | None, act: str, subject: str) -> bool:
    """Return whether an error is the server's answer to what the user may not do; nats-py makes it lower case."""
    return error is not None and f'permissions violation for {act} to "{subject.lower()}"' in str(error).lower()


def _frame(subject: str, reply: str, block: bytes, body: bytes) -> bytes:
    line = f"HPUB {subject} {reply} {len(block)} {len(block) + len(body)}\r\n"
    return b"".join((line.encode("utf-8", "surrogateescape"), block, body, b"\r\n"))


# The requests of the JetStream API that the client needs (`control.requests`).
#
# A question that the server could not answer at the moment (no leader) is repeated a few times.
# No request of JetStream reads backwards. So the messages on a subject in a range of sequences at the end are read, in
# parts side by side, then those of the range before it, which is longer if there were few.
# Cost: a request for each message that is read, bodies included.

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

_TEMPORARY_STATUS = 503


class JetStreamRequests(Requests):
    """Requests to the JetStream of an account: the `Wire` of `control.port`."""

    def __init__(self, wire: Wire, prefix: str = DEFAULT_PREFIX) -> None:
        self._wire = wire
        self._prefix = prefix
        self._may_advise = True

    @property
    def finds_last(self) -> bool:
        """True if the server is known to find the message before a deleted one; False if it is of another domain."""
        return self._prefix == DEFAULT_PREFIX and self._wire.server.finds_last

    async def stream_of(self, subject: str) -> str:
        """Return the name of the stream that has a subject; raises `StreamNotFoundError`."""
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

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes) -> Published | Refusal:
        """Send a message once and return what the stream answers."""

        def accept(reply: Reply) -> Published | Refusal | None:
            return _read_outcome(stream, reply)

        try:
            outcome: Published | Refusal = await self._wire.request(
                subject, body, block, within_seconds=ANSWER_SECONDS, accept=accept
            )
        except NotSentError:
            raise
        except NoAnswerError as error:
            raise UnknownOutcomeError(str(error)) from None
        if outcome is _NOBODY:
            raise NoAnswerError(f"{subject}: {_NOBODY.description}")
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
            except _NotNowError:
                await asyncio.sleep(wait)
        return await self._call(request, body)

    async def _call(self, request: str, body: Object) -> Object:
        content = json.dumps(body).encode() if body else b""
        subject = f"{self._prefix}.{request}"

        def accept(reply: Reply) -> Object | None:
            is_servers = not reply.has_headers or reply.status == NO_RESPONDERS
            return read_answer(reply) if is_servers else None

        answer = await self._wire.request(subject, content, within_seconds=ANSWER_SECONDS, accept=accept)
        if (error := answer.get("error")) is not None:
            status, code = integer(inner(error).get("code")), integer(inner(error).get("err_code"))
            text = f"{request}: {inner(error).get('description')} ({code})"
            raise _NotNowError(text) if status == _TEMPORARY_STATUS else RefusedError(text, code)
        return answer


class _NotNowError(NoAnswerError):
    """The server cannot answer at the moment: the stream has no leader, or JetStream is not ready."""


_IN_PROCESS = Refusal(409, ID_IN_PROCESS, "duplicate message id is in process")

_NOBODY = Refusal(0, 0, "no stream has the subject, or it has no leader")


def _read_outcome(stream: str, reply: Reply) -> Published | Refusal | None:
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


def read_answer(reply: Reply) -> Object | None:
    """Return an answer as an object; None if it is none."""
    if reply.status == NO_RESPONDERS:
        return {"error": {"code": _TEMPORARY_STATUS, "err_code": 0, "description": "JetStream does not answer"}}
    return read_object(reply.body)
