"""The schedules of streams in memory: the store of schedules over a wire on which a test decides what goes wrong.

The rule: what is stored, and what is refused, is decided by `MemoryStream`, as a server would; a fault comes before or
after that. The contract suite (`tests/control/contract.py`) runs on it and on real servers.
Nothing fires here. Cost: a few microseconds a call. Limit: one server, and no permissions but those that a test takes.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from nats_scheduler.control.changes import Change
from nats_scheduler.control.errors import (
    ConflictError,
    ForbiddenError,
    NoAnswerError,
    NotServedError,
    RefusedError,
    SchedulerError,
    StreamNotFoundError,
    UnknownOutcomeError,
)
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served, StreamNow
from nats_scheduler.engine.inputs import Outcome, Refused, Stored
from nats_scheduler.message.capabilities import capabilities_of
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.publish_answers import Published, Refusal
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import FLAG
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.testing.memory_stream import MemoryStream

T = TypeVar("T")

MAX_HEADERS_BYTES = 65_535


class Fault(Enum):
    """A fate of one publish or delete."""

    REFUSED = "the server refuses it"
    FORBIDDEN = "the user lacks the permission"
    BEHIND = "a leader that is behind refuses its condition, and nobody has changed anything"
    NO_ANSWER = "the server does not answer, and nothing is stored"
    UNKNOWN_DONE = "it is done, and the answer is lost"
    UNKNOWN_NOT_DONE = "it is lost on the way"


class MemoryWire:
    """Streams in memory; the `Wire` and the `ServedStreams` of `control.store_port`."""

    def __init__(self, now: Callable[[], int]) -> None:
        """Begin without streams; `now` returns the time (ns since the Unix epoch)."""
        self._now = now
        self.streams: dict[str, MemoryStream] = {}
        self._native: set[str] = set()
        self.faults: deque[Fault | None] = deque()
        """The fates of the next publishes and deletes, in their order; None is no fault."""
        self.read_faults: deque[Fault | None] = deque()
        """The fates of the next reads of last messages."""
        self.unseen: deque[bool] = deque()
        """Whether the next reads of last messages are answered by a leader that has no message there yet."""
        self.interruptions: deque[Callable[[], object]] = deque()
        """The acts of other clients right before the next publishes and deletes, one for each."""
        self.waited_for: deque[Callable[[], object]] = deque()
        """The acts of other clients during the next waits, one for each."""
        self.forbidden: set[str] = set()
        """The subjects, and the requests, that the user is known not to be allowed to publish."""
        self.waits: list[float] = []
        """The waits (s) so far; none of them takes time."""

    def add_stream(self, config: Mapping[str, Any], *, guard: bool = True, is_native: bool = False) -> MemoryStream:
        """Create a stream; `guard=False` is a server of 2.10.

        With the flag in its configuration it has schedules, which a sidecar fires, or a server if it `is_native`.
        """
        stream = MemoryStream(config, self._now, guard=guard)
        self.streams[str(config["name"])] = stream
        if is_native:
            self._native.add(str(config["name"]))
        return stream

    async def served(self, stream: str) -> Served:
        """Return how a stream is served."""
        found = self._stream(stream)
        if not found.config.get(FLAG):
            raise NotServedError(f"stream {stream} does not carry schedules: set {FLAG}")
        is_native = stream in self._native
        version = "2.14.0" if is_native else "2.11.0" if found.guard else "2.10.0"
        return Served(found.rules, (ADR51, PORTABLE), is_native, capabilities_of(version))

    def now(self) -> int:
        """Return the time (ns)."""
        return self._now()

    async def stream(self, name: str) -> StreamNow:
        """Return a stream."""
        found = self._stream(name)
        first = next((one.sequence for one in found.messages()), found.last_sequence + 1)
        return StreamNow(dict(found.config), first, found.last_sequence)

    async def stream_of(self, subject: str) -> str:
        """Return the name of the stream that has a subject."""
        for name, stream in self.streams.items():
            if is_covered(subject, stream.rules.subjects):
                return name
        raise StreamNotFoundError(f"no stream has the subject {subject}")

    async def message(self, stream: str, **where: Any) -> StoredMessage | None:
        """Return the message at `seq`, or `seq` + `next_by_subj`."""
        found, sequence = self._stream(stream), where["seq"]
        if "next_by_subj" in where:
            return next(found.messages(where["next_by_subj"], sequence - 1), None)
        return found.message(sequence)

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject."""
        fault = self.read_faults.popleft() if self.read_faults else None
        if fault is not None:
            raise _ERRORS[fault]()
        is_unseen = self.unseen.popleft() if self.unseen else False
        return None if is_unseen else self._stream(stream).last(subject)

    async def subjects(self, stream: str, within: str) -> AsyncIterator[tuple[str, int]]:
        """Yield the subjects with messages that match, with their numbers."""
        for subject, number in Counter(one.subject for one in self._stream(stream).messages(within)).items():
            yield subject, number

    async def newest(
        self, stream: str, subjects: str, is_wanted: Callable[[StoredMessage], bool]
    ) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, if its headers are wanted."""
        for message in {one.subject: one for one in self._stream(stream).messages(subjects)}.values():
            if is_wanted(message):
                yield message

    async def backwards(self, stream: StreamNow, subject: str) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages of a stream on a subject, newest first."""
        for message in reversed(list(self._stream(stream.name).messages(subject))):
            if message.sequence <= stream.last_sequence:
                yield message

    async def check_publish(self, subject: str) -> None:
        """Raise an error for what the test forbids."""
        if subject in self.forbidden:
            raise ForbiddenError(f"the user may not publish to {subject}")

    async def check_request(self, request: str) -> None:
        """Raise an error for what the test forbids."""
        await self.check_publish(request)

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes) -> Published | Refusal:
        """Store a message."""
        found = self._stream(stream)
        if len(block) > MAX_HEADERS_BYTES:
            return Refusal(400, 10097, "header size exceeds maximum allowed of 64k")
        return self._with_fault(lambda: _published(_stored(found, subject, block, body)))

    async def purge(self, stream: str, subject: str, through: int) -> None:
        """Delete what is stored on a subject up to a sequence."""
        found = self._stream(stream)
        self._with_fault(lambda: found.purge(subject, through))

    async def delete(self, stream: str, sequence: int) -> None:
        """Delete one message."""
        found = self._stream(stream)
        self._with_fault(lambda: found.delete(sequence))

    async def advise(self, subject: str, body: bytes, block: bytes) -> None:
        """Publish nothing: nobody listens."""

    async def wait(self, seconds: float) -> None:
        """Return at once."""
        self.waits.append(seconds)
        if self.waited_for:
            self.waited_for.popleft()()

    # -- what goes wrong -----------------------------------------------------------------------------------------

    def _with_fault(self, act: Callable[[], T]) -> T:
        if self.interruptions:
            self.interruptions.popleft()()
        fault = self.faults.popleft() if self.faults else None
        error = _ERRORS.get(fault) if fault is not None else None
        if error is not None and fault is not Fault.UNKNOWN_DONE:
            raise error()
        done = act()
        if error is not None:
            raise error()
        return done

    def _stream(self, name: str) -> MemoryStream:
        if name not in self.streams:
            raise StreamNotFoundError(f"stream {name} does not exist")
        return self.streams[name]


class MemorySchedules(ScheduleStore):
    """The schedules of streams in memory."""

    def __init__(self, now: Callable[[], int]) -> None:
        """Begin without streams; `now` returns the time (ns since the Unix epoch)."""
        self.wire = MemoryWire(now)
        super().__init__(self.wire, self.wire)
        self.recorded: list[Change] = []
        """The changes that were recorded."""

    async def record(self, changes: Sequence[Change]) -> None:
        """Keep what was done."""
        self.recorded += changes


_ERRORS: Mapping[Fault, Callable[[], SchedulerError]] = {
    Fault.REFUSED: lambda: RefusedError(500, 10023, "insufficient resources", "a request"),
    Fault.FORBIDDEN: lambda: ForbiddenError("the user may not publish there"),
    Fault.BEHIND: lambda: ConflictError("wrong last sequence"),
    Fault.NO_ANSWER: lambda: NoAnswerError("no answer"),
    Fault.UNKNOWN_DONE: lambda: UnknownOutcomeError("the answer is lost"),
    Fault.UNKNOWN_NOT_DONE: lambda: UnknownOutcomeError("the answer is lost"),
}


def _stored(stream: MemoryStream, subject: str, block: bytes, body: bytes) -> Outcome:
    """Store a message; as the server does, one without interest is acknowledged and not stored."""
    outcome = stream.publish(subject, block, body)
    is_wanted = any(consumer.receives(subject) for consumer in stream.consumers.values())
    if isinstance(outcome, Stored) and stream.config.get("retention") == "interest" and not is_wanted:
        stream.delete(outcome.sequence)
    return outcome


def _published(outcome: Outcome) -> Published | Refusal:
    if isinstance(outcome, Stored):
        return Published(outcome.sequence, outcome.duplicate)
    if isinstance(outcome, Refused):
        return Refusal(outcome.status, outcome.code, outcome.description)
    raise NoAnswerError(outcome.reason)
