"""One connection to one server: it begins, it ends once for any reason, and it is never repaired.

nats-py can reconnect by itself, but several of its states look alive and are not (a dead read loop, a client closed for
good by an `-ERR`).
So reconnecting is off, and the runtime makes a new connection: one code path for every way to lose one.

Requests share one inbox; each has its own last token and a deadline.
That token is a number that nobody can guess: a client that sees the reply subject of one request, such as that of a
fire, can answer no other one. JetStream answers without headers; what has some is a stored message, in the answer to a
direct get, which its client may have sent to any subject.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar, cast

from nats_scheduler.control.errors import (
    ConnectionLostError,
    DeadlineError,
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
from nats_scheduler.jetstream.denials import Denial, forbidden
from nats_scheduler.jetstream.wire import RunReader, Sink, WireClient
from nats_scheduler.schedule.instants import next_multiple
from nats_scheduler.settings.server_addresses import masked_url

Part = TypeVar("Part")

REQUEST_DEADLINE_CHECK_INTERVAL_SECONDS = 0.25
"""The interval between checks of all deadlines: one timer for all requests, as they come in bursts of thousands."""

CONNECTION_CHECK_INTERVAL_SECONDS = 0.5
"""The interval at which `end_when` checks the connection while nothing is written."""

PING_INTERVAL_SECONDS = 0.5
"""The interval between two pings of the server."""

MAX_OUTSTANDING_PINGS = 3
"""After this many pings in silence the next one ends the connection, after 2 s: *Live* allows 3 s."""

MAX_OUTSTANDING_PINGS_OF_A_COMMAND = 39
"""The same for who has no fire to send: after 20 s, as requests have deadlines of their own, and a server may pause."""

MAX_UNANSWERED_PINGS = 60
"""After this many pings without an answer the connection ends, whatever the line carries: after 30 s."""

MAX_SENT_CONTROL_LINE_BYTES = 4_096
"""Longest control line that a server accepts by default; it closes the connection over a longer one."""


class ServerInfo(NamedTuple):
    """The server's own information, as it sent it last."""

    name: str
    version: str
    max_payload: int
    """Bytes of headers and body together."""
    domain: str
    cluster: str
    """The name of its cluster, "" if it is a single server."""
    has_jetstream: bool
    """True if JetStream runs in this server, and not only in one that it is connected to."""
    id: str = ""
    """What it calls itself in its answers on `$SYS.REQ…`, which other servers may answer too."""


def frame(subject: str, reply: str, block: bytes, body: bytes) -> bytes:
    """Return the PUB or HPUB frame of one message."""
    if not block:
        name = subject.encode("utf-8", "surrogateescape")
        return b"PUB %b %b %d\r\n%b\r\n" % (name, reply.encode(), len(body), body)
    size = len(block)
    return b"HPUB %b %b %d %d\r\n%b%b\r\n" % (
        subject.encode("utf-8", "surrogateescape"),
        reply.encode(),
        size,
        size + len(body),
        block,
        body,
    )


def _check_length(line: str) -> None:
    """Raise `NotPossibleError` if a control line is longer than the server accepts."""
    length = len(line.encode("utf-8", "surrogateescape"))
    if length > MAX_SENT_CONTROL_LINE_BYTES:
        raise NotPossibleError(
            f"{line[:80]}…: a control line of {length} bytes, the server accepts {MAX_SENT_CONTROL_LINE_BYTES}"
        )


NUMBER_BYTES = 6
"""Random bytes between two numbers of requests."""

NUMBERS_AT_ONCE = 32


def unguessable_numbers() -> Iterator[int]:
    """Yield increasing numbers of which none follows from others; half a microsecond each."""
    number = 0
    while True:
        drawn = os.urandom(NUMBER_BYTES * NUMBERS_AT_ONCE)
        for at in range(0, len(drawn), NUMBER_BYTES):
            number += 1 + int.from_bytes(drawn[at : at + NUMBER_BYTES])
            yield number


@dataclass(slots=True)
class _PendingRequest:
    """A request that waits for its answer, until `deadline` by the loop's clock."""

    subject: str
    answer: asyncio.Future[Reply]
    deadline: float
    seconds: float
    accepts: Accepts
    resend_frame: bytes = b""
    """The frame that is sent again while no answer comes; empty for a request that is sent once."""
    resend_at: float = 0.0


class Connection:
    """A live connection; `lost` resolves to the reason when it ends."""

    def __init__(
        self, client: WireClient, inbox_prefix: str, unique: str, max_outstanding_pings: int = MAX_OUTSTANDING_PINGS
    ) -> None:
        self._client = client
        self._max_outstanding_pings = max_outstanding_pings
        self._inbox = f"{inbox_prefix}.{unique}"
        self._requests = f"{self._inbox}.r."
        self._loop = asyncio.get_running_loop()
        self._pending: dict[bytes, _PendingRequest] = {}
        self._numbers = unguessable_numbers()
        self._checks: dict[float, dict[int, Callable[[], object]]] = {}
        """The periodic checks, by their period."""
        self._checks_begun = 0
        self._end_checking: Callable[[], None] | None = None
        """Ends the check of the deadlines of requests, while that is made."""
        self._parts: dict[Callable[[Connection], Any], Any] = {}
        """The objects that all streams of the connection share: one of each kind."""
        self.lost: asyncio.Future[str] = self._loop.create_future()
        self._sid = client.add_sink(f"{self._requests}*", self._answered)
        client.when_denied.append(self._denied)
        self._took = client.max_payload
        """Bytes that the server took of a message when it informed of itself last."""
        self._asked_too_much = False
        """True if a request was not sent, because it was larger than that."""
        self._when_limited: list[Callable[[int], None]] = []
        client.when_informed.append(self._informed)
        client.reading.add_done_callback(lambda _task: self.end(client.fault or "the connection's reader stopped"))
        self.every(PING_INTERVAL_SECONDS, self._ping)

    @property
    def server(self) -> ServerInfo:
        """The server that this connection is to."""
        info = self._client.server_info
        return ServerInfo(
            name=str(info.get("server_name", "")),
            version=str(info.get("version", "")),
            max_payload=self._client.max_payload,
            domain=str(info.get("domain", "")),
            cluster=str(info.get("cluster", "")),
            has_jetstream=info.get("jetstream") is True,
            id=str(info.get("server_id", "")),
        )

    @property
    def url(self) -> str:
        """The address that was dialled, without its password; "" once the connection is closed."""
        dialled = self._client.connected_url
        return "" if dialled is None else masked_url(dialled.geturl())

    @property
    def known_addresses(self) -> list[str]:
        """The addresses of the servers of its cluster, as the server sent them at the connect."""
        addresses = self._client.server_info.get("connect_urls")
        return [one for one in addresses if isinstance(one, str)] if isinstance(addresses, list) else []

    @property
    def is_lost(self) -> bool:
        """True if it has ended."""
        return self.lost.done()

    def inbox(self, name: str) -> str:
        """Return a subject of this connection alone, other than that of requests; for instance `inbox("ack")`."""
        return f"{self._inbox}.{name}"

    def subscribe(self, subject: str, sink: Sink, queue_group: str = "") -> int:
        """Deliver to `sink` what is published on `subject`; returns the number for `unsubscribe`.

        Of the subscribers with the same `queue_group` the server chooses one for each message; "" is no group.
        Raises `NotPossibleError` if the subject is too long for the protocol, and so for any publisher.
        """
        _check_length(f"SUB {subject} {queue_group} 1234567890")
        return self._client.add_sink(subject, sink, queue_group)

    def unsubscribe(self, number: int) -> None:
        """End a subscription; a second time is harmless."""
        self._client.remove_sink(number)

    def after_this_chunk(self, listener: Callable[[], None]) -> None:
        """Call `listener` once, when all bytes of the current read, or else of the next one, were delivered."""
        self._client.after_chunk.append(listener)

    def read_runs(self, number: int, run: RunReader, *, short: bool = False) -> None:
        """Have `run` take many messages of a subscription at once, or few too (`short`), until it ends."""
        self._client.runs[number] = run
        if short:
            self._client.short_runs[number] = run

    def one(self, kind: Callable[["Connection"], Part]) -> Part:
        """Return the connection's only part of this kind; the first call makes it."""
        if kind not in self._parts:
            self._parts[kind] = kind(self)
        return cast(Part, self._parts[kind])

    def when_denied(self, listener: Callable[[Denial], None]) -> Callable[[], None]:
        """Call `listener` with each permission that the user lacks; return the function that ends that."""
        listeners = self._client.when_denied
        listeners.append(listener)
        return lambda: listeners.remove(listener) if listener in listeners else None

    def when_limited(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with the bytes that the server takes of a message, when that changes."""
        self._when_limited.append(listener)

    @property
    def lacks_room(self) -> bool:
        """True if a request was too large for the server since it was last looked at."""
        return self._asked_too_much

    async def look_again(self) -> None:
        """Look at what the server announces now, since it takes too little; listeners hear of a difference.

        If it takes what it did not take of ours before, the connection ends, so that all of that is asked again.
        """
        await self._client.look_again()
        self._asked_too_much = False

    def _informed(self) -> None:
        before, self._took = self._took, self._client.max_payload
        if before == self._took:
            return
        for listener in self._when_limited:
            listener(self._took)
        if self._asked_too_much and self._took > before:
            self.end(f"the server takes messages of {self._took} bytes now, and took {before} before")

    def every(self, seconds: float, check: Callable[[], object]) -> Callable[[], None]:
        """Call `check` once every `seconds`; return what ends that. The connection's end ends it too.

        There is one timer for all checks with one period: a thousand timers cost a thousand turns of the event loop,
        and a thousand checks in one turn next to nothing. So the first check comes within one period, not after it. A
        check is short, does not wait, and must not raise.
        """
        checks = self._checks.setdefault(seconds, {})
        if not checks:
            self._check_later(seconds, checks)
        self._checks_begun += 1
        number = self._checks_begun
        checks[number] = check

        def end() -> None:
            checks.pop(number, None)
            if not checks and self._checks.get(seconds) is checks:
                del self._checks[seconds]

        return end

    def _run_checks(self, seconds: float, checks: dict[int, Callable[[], object]]) -> None:
        for check in list(checks.values()):
            check()
        if checks and not self.is_lost:
            self._check_later(seconds, checks)

    def _check_later(self, seconds: float, checks: dict[int, Callable[[], object]]) -> None:
        self._loop.call_at(next_multiple(self._loop.time(), seconds), self._run_checks, seconds, checks)

    def end_when(self, find_reason: Callable[[], str]) -> None:
        """End the connection when `find_reason` returns a reason; "" means none.

        It is called periodically, and right before bytes are given to the socket; with a reason they are not sent.
        """

        def is_sound() -> bool:
            reason = "" if self.is_lost else find_reason()
            if reason:
                self.end(reason)
            return not self.is_lost

        self._client.may_write = is_sound
        if is_sound():
            self.every(CONNECTION_CHECK_INTERVAL_SECONDS, is_sound)

    def write(self, frames: bytes) -> None:
        """Send whole frames."""
        self._client.write(frames)

    def flush(self) -> None:
        """Give what was written to the socket now, and not after this turn of the event loop."""
        self._client.flush_frames()

    def publish(self, subject: str, body: bytes, block: bytes = b"", reply: str = "") -> bool:
        """Publish without waiting; send nothing and return False if the server would close the connection over it."""
        message = frame(subject, reply, block, body)
        size = len(block) + len(body)
        if size > self._client.max_payload or message.index(b"\r\n") > MAX_SENT_CONTROL_LINE_BYTES:
            return False
        self.write(message)
        return True

    def unsent_bytes(self) -> int:
        """Return how many bytes the socket has not yet taken."""
        return self._client.unsent_bytes()

    @property
    def server_version(self) -> str:
        """The version of the server, as it said last."""
        return self.server.version

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
        """Send a request as `Transport` says; raises `ConnectionLostError` if the connection has ended before, too."""
        if self.is_lost:
            raise ConnectionLostError(f"{subject}: {self.lost.result()}")
        size = len(block) + len(body)
        if size > self._client.max_payload:
            self._asked_too_much = True
            raise too_large(subject, size, self._client.max_payload)
        number = next(self._numbers)
        reply_to = f"{self._requests}{number}"
        _check_length(f"HPUB {subject} {reply_to} {size} {size}")
        message = frame(subject, reply_to, block, body)
        now = self._loop.time()
        waiting = _PendingRequest(subject, self._loop.create_future(), now + deadline, deadline, accepts)
        if is_repeatable:
            waiting.resend_frame, waiting.resend_at = message, now + RESEND_INTERVAL_SECONDS
        token = b"%d" % number
        self._pending[token] = waiting
        self.write(message)
        if self._end_checking is None:
            self._end_checking = self.every(REQUEST_DEADLINE_CHECK_INTERVAL_SECONDS, self._check_deadlines)
        try:
            reply = await waiting.answer
        finally:
            self._pending.pop(token, None)
        if reply.block.startswith(NO_RESPONDERS):
            raise nobody_answers(subject)
        return reply

    def _check_deadlines(self) -> None:
        """End requests that are past their deadline, and send repeatable ones again, while any is pending."""
        now = self._loop.time()
        for waiting in self._pending.values():
            if waiting.answer.done():
                continue
            if waiting.deadline <= now:
                waiting.answer.set_exception(DeadlineError(f"{waiting.subject}: no answer within {waiting.seconds} s"))
            elif waiting.resend_frame and waiting.resend_at <= now:
                waiting.resend_at = now + RESEND_INTERVAL_SECONDS
                self.write(waiting.resend_frame)
        if not self._pending and self._end_checking is not None:
            self._end_checking()
            self._end_checking = None

    def end(self, reason: str) -> None:
        """Declare the connection lost, once; every pending request raises `ConnectionLostError`."""
        if self.lost.done():
            return
        self.lost.set_result(reason)
        for waiting in self._pending.values():
            if not waiting.answer.done():
                waiting.answer.set_exception(ConnectionLostError(reason))
        self._pending.clear()
        for checks in self._checks.values():
            checks.clear()

    async def close(self) -> None:
        """Close the connection from this side, after the socket accepted what was written."""
        self._client.sinks.clear()
        self._client.runs.clear()
        self._client.short_runs.clear()
        self._client.flush_frames()
        await self._client.close()
        self.end("closed by the sidecar")

    def _ping(self) -> None:
        silent, unanswered = self._client.ping()
        if silent > self._max_outstanding_pings or unanswered > MAX_UNANSWERED_PINGS:
            self.end("the server answers no pings")

    def _answered(self, subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        waiting = self._pending.get(subject[subject.rfind(b".") + 1 :])
        if waiting is None or waiting.answer.done():
            return
        if block.startswith(NO_RESPONDERS) or waiting.accepts(block, body):
            waiting.answer.set_result(Reply(block, body))

    def _denied(self, denial: Denial) -> None:
        """Fail the oldest request on a denied subject: the server denies requests in the order of sending."""
        if not denial.publishes:
            return
        for waiting in self._pending.values():
            if waiting.subject == denial.subject and not waiting.answer.done():
                waiting.answer.set_exception(forbidden(waiting.subject))
                return
