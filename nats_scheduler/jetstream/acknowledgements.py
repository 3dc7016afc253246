"""Send many numbered requests with a window, and take their answers: fires with acknowledgements, and purges.

A request's reply subject names its sender and its number there. So the answers of a thousand streams come to one inbox
of the connection, are parsed together like those of one, and share one timer for their deadlines.

Each request is concluded exactly once. One that the sidecar's user may not send is not answered at all: the server's
`-ERR` names its subject. Since the server denies in the order of sending, it means the oldest one in flight to that
subject.

The rule: a sender is called for its own requests only. Who sees the reply subject of one of them knows neither that of
another one nor the key of another sender (`connection.unguessable_numbers`).
Cost: one frame and one dictionary entry for each request, and all frames of a group leave in one write; a dictionary
entry for each sender, and nothing while nothing is in flight.
"""

import asyncio
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, Generic, TypeVar

from nats_scheduler.jetstream.connection import Connection, unguessable_numbers
from nats_scheduler.jetstream.denials import Denial
from nats_scheduler.jetstream.frame_runs import ACKNOWLEDGED, PURGED, AnswerFrames

ACK_DEADLINE_CHECK_INTERVAL_SECONDS = 0.25
"""The interval between two checks of the deadlines of requests in flight."""

Sent = TypeVar("Sent")


class Sender(ABC, Generic[Sent]):
    """Sends the requests of one stream on one connection."""

    def __init__(
        self, connection: Connection, answers: "SendersInbox", stream: str, within_seconds: float, silence: str
    ) -> None:
        """Send nothing yet; `stream` is the one that answers have to name, and `silence` says that none came."""
        self._connection = connection
        self._answers = answers
        self._within_seconds = within_seconds
        self._silence = silence
        self._loop = asyncio.get_running_loop()
        self._in_flight: dict[bytes, Sent] = {}
        """By number, in the order in which they were sent."""
        self._deadlines: deque[tuple[float, int]] = deque()
        """By when (of the loop's clock) the requests up to a number have to be answered."""
        self._numbers = unguessable_numbers()
        self._inbox, self._key = answers.join(self, stream)
        self._is_to_fill = False
        """True if `_fill_up` will be called in this turn of the event loop, or after this chunk."""
        self._ended: str | None = None

    @property
    def in_flight(self) -> int:
        """The number of requests that were sent and are not concluded."""
        return len(self._in_flight)

    def end(self, reason: str) -> None:
        """Conclude everything as failed, also what was not sent yet: to send it again is harmless."""
        if self._ended is not None:
            return
        self._ended = reason
        self._answers.leave(self._key)
        opened = [*self._in_flight.values(), *self._take_waiting()]
        self._in_flight.clear()
        for request in opened:
            self._fail(request, reason)

    def acknowledged(self, number: bytes, block: bytes, body: bytes) -> None:
        """Take the answer to one request; if another client may have given it, the request still waits."""
        request = self._in_flight.get(number)
        if request is not None and self._conclude(request, block, body):
            del self._in_flight[number]
            self._fill_soon()

    def acknowledged_run(self, numbers: Sequence[bytes], sequences: Sequence[int]) -> None:
        """Do what `acknowledged` does, for answers that each say that it was done."""
        popped = [self._in_flight.pop(number, None) for number in numbers]
        requests = [request for request in popped if request is not None]
        if len(requests) != len(popped):  # some came too late
            sequences = [sequence for request, sequence in zip(popped, sequences, strict=True) if request is not None]
        if requests:
            self._conclude_run(requests, sequences)
            self._fill_soon()

    def conclude_denied(self, denials: Counter[str]) -> None:
        """Conclude the oldest requests to each denied subject, in one pass for all denials of a chunk."""
        for number, request in list(self._in_flight.items()):
            subject = self._subject_of(request)
            if denials[subject] > 0:
                denials[subject] -= 1
                del self._in_flight[number]
                self._deny(request)
        self._fill()

    def conclude_late(self, now: float) -> None:
        """Conclude as failed what has a deadline at or before `now`, by the loop's clock."""
        late_through = 0
        while self._deadlines and self._deadlines[0][0] <= now:
            _deadline, late_through = self._deadlines.popleft()
        for number in list(takewhile(lambda number: int(number) <= late_through, self._in_flight)):
            self._fail(self._in_flight.pop(number), self._silence)
        self._fill()

    def _fill(self) -> None:
        """Send what may be sent now."""
        requests = self._next_to_send()
        if not requests:
            return
        if not self._in_flight:
            self._deadlines.clear()
        frames, number = list[bytes](), 0
        for request, number in zip(requests, self._numbers, strict=False):
            self._in_flight[b"%d" % number] = request
            frames.append(self._frame(request, number))
        self._connection.write(b"".join(frames))
        self._deadlines.append((self._loop.time() + self._within_seconds, number))
        self._answers.expect(self._key)

    def _fill_soon(self) -> None:
        """Send what waits for room, after all answers of this chunk."""
        if self._waits_for_room() and not self._is_to_fill:
            self._is_to_fill = True
            self._connection.after_this_chunk(self._fill_up)

    def _fill_up(self) -> None:
        self._is_to_fill = False
        if self._ended is None:
            self._fill()

    @abstractmethod
    def _next_to_send(self) -> Sequence[Sent]:
        """Take what the window allows to be sent now."""

    @abstractmethod
    def _waits_for_room(self) -> bool:
        """Return whether anything waits for answers to those in flight."""

    @abstractmethod
    def _take_waiting(self) -> Sequence[Sent]:
        """Take all that is not sent yet."""

    @abstractmethod
    def _frame(self, request: Sent, number: int) -> bytes:
        """Return the frame of a request."""

    @abstractmethod
    def _subject_of(self, request: Sent) -> str:
        """Return the subject to which a request is sent."""

    @abstractmethod
    def _conclude(self, request: Sent, block: bytes, body: bytes) -> bool:
        """Conclude a request by its answer; return False if the answer may be another client's."""

    @abstractmethod
    def _conclude_run(self, requests: Sequence[Sent], sequences: Sequence[int]) -> None:
        """Conclude requests that were done, each with what its answer counts."""

    @abstractmethod
    def _deny(self, request: Sent) -> None:
        """Conclude a request that our user may not send."""

    @abstractmethod
    def _fail(self, request: Sent, reason: str) -> None:
        """Conclude a request of which nothing is known."""


class SendersInbox:
    """The answers to the senders of one kind on one connection."""

    def __init__(self, connection: Connection, name: str, usual: bytes) -> None:
        """Receive on the inbox with this name; those that say `usual` are read from the bytes together."""
        self._connection = connection
        self._inbox = connection.inbox(name)
        self._senders: dict[bytes, Sender[Any]] = {}
        self._streams: dict[bytes, bytes] = {}
        self._busy: dict[bytes, Sender[Any]] = {}
        """The senders that have requests in flight."""
        self._keys = unguessable_numbers()
        self._denials: Counter[str] = Counter()
        self._end_checking: Callable[[], None] | None = None
        """Ends the check of deadlines, while that is made."""
        self._frames = AnswerFrames(self._inbox, self._streams, usual)
        sid = connection.subscribe(f"{self._inbox}.*.*", self._received)
        connection.read_runs(sid, self._received_run, short=True)
        connection.when_denied(self._denied)

    def join(self, sender: "Sender[Any]", stream: str) -> tuple[str, bytes]:
        """Return the inbox below which a new sender numbers its requests, and the sender's key.

        Answers that are read together have to name the `stream`, or none if it is "".
        """
        number = next(self._keys)
        key = b"%d" % number
        self._senders[key], self._streams[key] = sender, stream.encode("utf-8", "surrogateescape")
        return f"{self._inbox}.{number}", key

    def leave(self, key: bytes) -> None:
        """Stop calling the sender with this key."""
        self._senders.pop(key, None)
        self._streams.pop(key, None)
        self._busy.pop(key, None)

    def expect(self, key: bytes) -> None:
        """Check the deadlines of the sender with this key until it has nothing in flight."""
        self._busy[key] = self._senders[key]
        if self._end_checking is None:
            self._end_checking = self._connection.every(ACK_DEADLINE_CHECK_INTERVAL_SECONDS, self._check_deadlines)

    def _received(self, subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        _inbox, key, number = subject.rsplit(b".", 2)
        sender = self._senders.get(key)
        if sender is not None:
            sender.acknowledged(number, block, body)

    def _received_run(self, buffer: bytes, position: int) -> int:
        """Do what `_received` does, for consecutive answers that say what is usual."""
        groups, position = self._frames.read(buffer, position)
        for key, numbers, sequences in groups:
            sender = self._senders.get(key)
            if sender is not None:
                sender.acknowledged_run(numbers, sequences)
                if not sender.in_flight:
                    self._busy.pop(key, None)
        return position

    def _denied(self, denial: Denial) -> None:
        if denial.publishes and self._busy:
            if not self._denials:
                self._connection.after_this_chunk(self._conclude_denied)
            self._denials[denial.subject] += 1

    def _conclude_denied(self) -> None:
        denials, self._denials = self._denials, Counter()
        for sender in list(self._busy.values()):
            sender.conclude_denied(denials)

    def _check_deadlines(self) -> None:
        now = asyncio.get_running_loop().time()
        for key, sender in list(self._busy.items()):
            if sender.in_flight:
                sender.conclude_late(now)
            else:
                self._busy.pop(key, None)
        if not self._busy and self._end_checking is not None:
            self._end_checking()
            self._end_checking = None


def acknowledgements(connection: Connection) -> SendersInbox:
    """Return what takes the acknowledgements of fires; for `Connection.one`."""
    return SendersInbox(connection, "a", ACKNOWLEDGED)


def purge_answers(connection: Connection) -> SendersInbox:
    """Return what takes the answers to purges; for `Connection.one`."""
    return SendersInbox(connection, "p", PURGED)
