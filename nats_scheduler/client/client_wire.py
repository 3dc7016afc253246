"""Requests over a nats-py connection that the program has, by its public methods alone, so that every version serves.

The rules:

- A message is sent with the headers that were asked for, or refused: `publish` of nats-py takes one text for each name
  and strips it. Only the blanks between colon and value, which are no part of it, become one.
- Nothing is sent that makes the server close the connection: too large a message, too long a subject.
- Only an answer that the caller accepts counts: a publish with a reply subject is received by all core subscribers, and
  one of them may answer before the server. A question without an answer is sent again; a change is sent once.
- Callbacks of the connection are never replaced. A missing permission is found in `last_error`, which nats-py sets for
  it, so it is noticed within milliseconds and not at the end of the wait.

Cost: one subscription for each connection, however many values use it.
Limit: what the connection has queued when it is lost is sent after it was made again, as nats-py does. A message with
two headers of one name, or one that is not UTF-8, can be read and not sent.
`tests/client/test_client_wire.py` holds nats-py to what is used here that it does not document.
"""

import asyncio
import re
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from weakref import WeakValueDictionary

import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from nats_scheduler.control.errors import (
    ConnectionLostError,
    DeadlineError,
    ForbiddenError,
    NoAnswerError,
    NotConnectedError,
    NotPossibleError,
    too_large,
)
from nats_scheduler.control.transport import (
    ANSWER_SECONDS,
    NO_RESPONDERS,
    RESEND_INTERVAL_SECONDS,
    Accepts,
    Reply,
    accept_all,
    nobody_answers,
)
from nats_scheduler.message.headers import CRLF, EMPTY_BLOCK, HEADER_LINE

MAX_CONTROL_LINE_BYTES = 4_096
"""Longest first line of a frame that servers accept by default; a longer one makes them close the connection."""

MIN_CHECK_SECONDS, MAX_CHECK_SECONDS = 0.01, 0.25
"""The wait, at first and at most, before it is checked whether the request was denied."""

TOKEN_BYTES = 12
"""Random bytes of the last token of a reply subject: who sees one cannot answer another request."""

_BLANK = re.compile(r"[\s\x00]").search
_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch
"""What nats-py takes as the name of a header, in its newest versions."""
_SENT_AS_IT_IS = re.compile(r"(?!\s)[^\r\n\ud800-\udfff]*(?<!\s)").fullmatch
"""A value that nats-py neither strips nor changes nor fails to encode."""


class ClientWire:
    """The requests of one connection; a `Transport`."""

    def __init__(self, connection: Client) -> None:
        """Send nothing yet; `wire_of` returns the one that all share."""
        self._connection = connection
        self._inbox = ""
        self._opening = asyncio.Lock()
        self._waiting: dict[str, tuple[asyncio.Future[Reply], Accepts]] = {}

    @property
    def server_version(self) -> str:
        """The version of the server that the program is connected to."""
        version = self._connection.connected_server_version
        return f"{version.major}.{version.minor}.{version.patch}"

    async def request(
        self,
        subject: str,
        body: bytes = b"",
        block: bytes = b"",
        deadline: float = ANSWER_SECONDS,
        *,
        is_repeatable: bool = False,
        accepts: Accepts = accept_all,
    ) -> Reply:
        """Send a request as `Transport` says.

        Raises `ForbiddenError` also if the user may not receive an answer, and `NotPossibleError` for what nats-py
        cannot send as it is.
        """
        headers = self._checked(subject, block, body)
        if not self._connection.is_connected:
            await asyncio.sleep(0)  # else a program that repeats it at once keeps nats-py from connecting again
            raise NotConnectedError(f"{subject}: there is no connection to a server at the moment")
        await self._open()
        token = secrets.token_hex(TOKEN_BYTES)
        send = partial(self._connection.publish, subject, body, f"{self._inbox}{token}", headers)
        answered, error_before = asyncio.get_running_loop().create_future(), self._connection.last_error
        self._waiting[token] = answered, accepts
        try:
            await send()
            await self._wait(answered, subject, deadline, error_before, send if is_repeatable else None)
        except nats.errors.Error as error:
            raise NotConnectedError(f"{subject}: {error}") from None
        except OSError as error:
            raise NoAnswerError(f"{subject}: {error}") from None
        finally:
            del self._waiting[token]
        reply: Reply = answered.result()
        if reply.block.startswith(NO_RESPONDERS):
            raise nobody_answers(subject)
        return reply

    async def publish(self, subject: str, body: bytes, block: bytes) -> None:
        """Send a message without waiting for an answer; on a lost connection it is discarded."""
        headers = self._checked(subject, block, body)
        if self._connection.is_connected:
            await self._connection.publish(subject, body, headers=headers)

    def was_denied_below(self, prefix: str) -> bool:
        """Return whether the last error of the connection says that the user may not publish to such a subject."""
        text = str(self._connection.last_error).lower()
        return f'permissions violation for publish to "{prefix.lower()}.' in text

    async def _wait(
        self,
        answered: "asyncio.Future[Reply]",
        subject: str,
        seconds: float,
        error_before: Exception | None,
        send_again: Callable[[], Awaitable[None]] | None,
    ) -> None:
        """Wait until a request is answered; raises what shows that it will not be."""
        loop = asyncio.get_running_loop()
        began, pause = loop.time(), MIN_CHECK_SECONDS
        resend_at = began + RESEND_INTERVAL_SECONDS
        while (left := began + seconds - loop.time()) > 0:
            await asyncio.wait((answered,), timeout=min(pause, left))
            if answered.done():
                return
            error = self._connection.last_error
            if error is not error_before and _denies(error, "publish", subject):
                raise ForbiddenError(f"the user of this program may not publish to {subject}", subject)
            if _denies(error, "subscription", f"{self._inbox}*"):
                raise ForbiddenError(f"the user of this program may not subscribe to its inbox {self._inbox}*")
            if self._connection.is_closed:
                raise ConnectionLostError(f"{subject}: the connection was closed before an answer came")
            if send_again is not None and loop.time() >= resend_at and self._connection.is_connected:
                resend_at = loop.time() + RESEND_INTERVAL_SECONDS
                await send_again()
            pause = min(2 * pause, MAX_CHECK_SECONDS)
        raise DeadlineError(f"{subject}: no answer within {seconds:g} s")

    async def _open(self) -> None:
        """Subscribe once to an inbox for all answers."""
        async with self._opening:
            if not self._inbox:
                inbox = f"{self._connection.new_inbox()}."
                try:
                    await self._connection.subscribe(f"{inbox}*", cb=self._received)
                except nats.errors.Error as error:
                    raise NotConnectedError(f"{inbox}*: {error}") from None
                self._inbox = inbox

    async def _received(self, message: Msg) -> None:
        answered, accepts = self._waiting.get(message.subject.rpartition(".")[2], (None, accept_all))
        if answered is None or answered.done():
            return
        # The beginning of a block is all that is asked of an answer here.
        block = f"NATS/1.0 {message.headers.get('Status', '')}".encode() if message.headers else b""
        if block.startswith(NO_RESPONDERS) or accepts(block, message.data):
            answered.set_result(Reply(block, message.data))

    def _checked(self, subject: str, block: bytes, body: bytes) -> dict[str, str] | None:
        """Return the headers of a block, None without one; refuse what makes a server close the connection."""
        if not isinstance(body, bytes | bytearray | memoryview):
            raise TypeError(f"a body of {body!r:.80}: bytes are expected, such as 'text'.encode()")
        headers = _headers(subject, block) if block else None
        size, most = _size(headers or {}) + len(body), self._connection.max_payload
        if size > most:
            raise too_large(subject, size, most)
        if not subject or _BLANK(subject):
            raise NotPossibleError(f"{subject[:80]!r} is no subject: it is empty, or has blanks")
        try:
            line = len(subject.encode()) + len(self._inbox) + 64
        except UnicodeEncodeError:
            raise NotPossibleError(f"{subject[:80]!r} is not UTF-8: nats-py cannot send to such a subject") from None
        if line > MAX_CONTROL_LINE_BYTES:
            raise NotPossibleError(f"{subject[:80]!r}… has {len(subject):,} characters: no server takes such a subject")
        return headers


_wires: "WeakValueDictionary[int, ClientWire]" = WeakValueDictionary()
"""By the `id` of the connection, which lives as long as its wire; the subscription of the connection keeps the wire."""


def wire_of(connection: Client) -> ClientWire:
    """Return the requests of a connection; the same for all that ask with it."""
    wire = _wires.get(id(connection))
    if wire is None:
        wire = _wires[id(connection)] = ClientWire(connection)
    return wire


def _denies(error: Exception | None, act: str, subject: str) -> bool:
    """Return whether an error is the server's answer to what the user may not do; nats-py makes it lower case."""
    return error is not None and f'permissions violation for {act} to "{subject.lower()}"' in str(error).lower()


def _headers(subject: str, block: bytes) -> dict[str, str]:
    """Return the headers of a block as nats-py takes them; raises `NotPossibleError` if it would send others.

    It strips names too, so blanks behind a name are how several headers have the same one.
    """
    headers: dict[str, str] = {}
    for line in block.removeprefix(HEADER_LINE).split(CRLF)[:-2]:
        name, colon, value = line.decode("utf-8", "surrogateescape").partition(":")
        value = value.lstrip(" ")
        if not colon or not _NAME(name) or not _SENT_AS_IT_IS(value):
            raise NotPossibleError(f"{subject}: nats-py cannot send the header {line[:80]!r} as it is")
        while name in headers:
            name += " "
        headers[name] = value
    return headers


def _size(headers: dict[str, str]) -> int:
    """Return the bytes that headers take in a message, or a few more."""
    return len(EMPTY_BLOCK) + sum(len(f"{name}: {value}\r\n".encode()) for name, value in headers.items())
