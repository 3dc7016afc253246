"""The acknowledgements of all streams of one connection: one inbox, one timer. The same for the answers to purges.

A fire's reply subject names its publisher and the fire's number there. So the acknowledgements of a thousand streams
are parsed together like those of one.

The rule: a publisher is called for its own fires only.
Cost: a dictionary entry for each publisher; nothing while nothing is in flight.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import Denial
from nats_scheduler.jetstream.wire import AcknowledgementFrames, PurgeFrames

ACK_DEADLINE_CHECK_INTERVAL_SECONDS = 0.25
"""How often the fires in flight are checked against their deadline."""


class Sender(Protocol):
    """What sends fires with acknowledgements, or purges with answers."""

    @property
    def in_flight(self) -> int:
        """The number of fires, or purges, that were sent and are not concluded."""

    def acknowledged(self, number: bytes, block: bytes, body: bytes) -> None:
        """Take the acknowledgement of one fire, or the answer to one purge."""

    def acknowledged_run(self, numbers: Sequence[bytes], sequences: Sequence[int]) -> None:
        """Take consecutive acknowledgements that each say that something was stored anew, or answers of success."""

    def conclude_denied(self, denials: Counter[str]) -> None:
        """Conclude the oldest of those to each denied subject, and subtract them from `denials`."""

    def conclude_late(self, now: float) -> None:
        """Conclude those whose deadline is at or before `now`, by the loop's clock."""


class Acknowledgements:
    """The acknowledgements of one connection."""

    def __init__(
        self,
        connection: Connection,
        name: str = "a",
        frames: Callable[[str, Mapping[bytes, bytes]], AcknowledgementFrames | PurgeFrames] = AcknowledgementFrames,
    ) -> None:
        """Receive on the inbox with this name; `frames` reads the usual ones from the bytes."""
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._inbox = connection.inbox(name)
        self._senders: dict[bytes, Sender] = {}
        self._streams: dict[bytes, bytes] = {}
        self._busy: dict[bytes, Sender] = {}
        """The senders that have fires in flight."""
        self._joined = 0
        self._denials: Counter[str] = Counter()
        self._deadline_timer: asyncio.TimerHandle | None = None
        self._frames = frames(self._inbox, self._streams)
        sid = connection.subscribe(f"{self._inbox}.*.*", self._received)
        connection.read_runs(sid, self._received_run, short=True)
        connection.when_denied(self._denied)

    def join(self, sender: Sender, stream: str) -> tuple[str, bytes]:
        """Return the inbox below which a new sender numbers its fires into a stream, and the sender's key."""
        self._joined += 1
        key = b"%d" % self._joined
        self._senders[key], self._streams[key] = sender, stream.encode("utf-8", "surrogateescape")
        return f"{self._inbox}.{self._joined}", key

    def leave(self, key: bytes) -> None:
        """Stop calling the sender with this key."""
        self._senders.pop(key, None)
        self._streams.pop(key, None)
        self._busy.pop(key, None)

    def expect(self, key: bytes) -> None:
        """Check the deadlines of the sender with this key until it has nothing in flight."""
        self._busy[key] = self._senders[key]
        if self._deadline_timer is None:
            self._deadline_timer = self._loop.call_later(ACK_DEADLINE_CHECK_INTERVAL_SECONDS, self._check_deadlines)

    def _received(self, subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        _inbox, key, number = subject.rsplit(b".", 2)
        sender = self._senders.get(key)
        if sender is not None:
            sender.acknowledged(number, block, body)

    def _received_run(self, buffer: bytes, position: int) -> int:
        """Do what `_received` does, for consecutive acknowledgements that say that something was stored anew."""
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
        self._deadline_timer = None
        now = self._loop.time()
        for key, sender in list(self._busy.items()):
            if sender.in_flight:
                sender.conclude_late(now)
            else:
                self._busy.pop(key, None)
        if self._busy and self._deadline_timer is None and not self._connection.is_lost:
            self._deadline_timer = self._loop.call_later(ACK_DEADLINE_CHECK_INTERVAL_SECONDS, self._check_deadlines)


class PurgeAnswers(Acknowledgements):
    """The answers to the purges of one connection."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, "p", PurgeFrames)
