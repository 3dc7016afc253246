"""The schedules of streams in memory: a `ScheduleStore` on which a test decides what goes wrong.

The rule: what is stored, and what is refused, is decided by `MemoryStream`, as a server would; a fault comes before or
after that. The contract suite (`tests/control/contract.py`) runs on it and on real servers.
Nothing fires here. Cost: a few microseconds a call. Limit: one server, and no permissions but those that a test takes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from nats_scheduler.control.changes import Change
from nats_scheduler.control.current import read_current
from nats_scheduler.control.errors import (
    ConflictError,
    ForbiddenError,
    NoAnswerError,
    NotFoundError,
    NotServedError,
    RefusedError,
    ScheduleError,
    StreamNotFoundError,
    UnknownOutcomeError,
)
from nats_scheduler.control.port import Kept, Published, Served, StoredFires, known_from, stored_fires
from nats_scheduler.engine.inputs import Outcome, Refused, Stored
from nats_scheduler.message.capabilities import capabilities_of
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.fires import PastFires, StoredSchedule
from nats_scheduler.message.generated import WRONG_LAST_SEQUENCE
from nats_scheduler.message.headers import with_effective_headers, without_headers
from nats_scheduler.message.reading import has_schedule_header, read_paused
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import FLAG
from nats_scheduler.message.subjects import is_covered, subject_matches
from nats_scheduler.testing.memory_stream import MemoryStream

T = TypeVar("T")

MAX_HEADERS_BYTES = 65_535


class Fault(Enum):
    """What becomes of one publish or delete."""

    REFUSED = "the server refuses it"
    FORBIDDEN = "the user lacks the permission"
    BEHIND = "a leader that is behind refuses its condition, and nobody has changed anything"
    NO_ANSWER = "the server does not answer, and nothing is stored"
    UNKNOWN_DONE = "it is done, and the answer is lost"
    UNKNOWN_NOT_DONE = "it is lost on the way"


class MemorySchedules:
    """Streams in memory."""

    def __init__(self, now: Callable[[], int]) -> None:
        """Begin without streams; `now` returns the time (ns since the Unix epoch)."""
        self._now = now
        self.streams: dict[str, MemoryStream] = {}
        self._native: set[str] = set()
        self.recorded: list[Change] = []
        """The changes that were recorded."""
        self.faults: deque[Fault | None] = deque()
        """What becomes of the next publishes and deletes, in their order; None is no fault."""
        self.read_faults: deque[Fault | None] = deque()
        """What becomes of the next reads of last messages."""
        self.interruptions: deque[Callable[[], object]] = deque()
        """What other clients do right before the next publishes and deletes, one for each."""

    def add_stream(self, config: Mapping[str, Any], *, guard: bool = True, is_native: bool = False) -> MemoryStream:
        """Create a stream; `guard=False` is a server of 2.10.

        With the flag in its configuration it has schedules, which a sidecar fires, or a server if it `is_native`.
        """
        stream = MemoryStream(config, self._now, guard=guard)
        self.streams[str(config["name"])] = stream
        if is_native:
            self._native.add(str(config["name"]))
        return stream

    # -- the port ------------------------------------------------------------------------------------------------

    async def served(self, stream: str) -> Served:
        """Return how a stream is served."""
        found = self._stream(stream)
        if not found.config.get(FLAG):
            raise NotServedError(f"stream {stream} does not carry schedules: set {FLAG}")
        is_native = stream in self._native
        version = "2.14.0" if is_native else "2.11.0" if found.guard else "2.10.0"
        return Served(found.rules, (ADR51, PORTABLE), is_native, capabilities_of(version))

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject."""
        fault = self.read_faults.popleft() if self.read_faults else None
        if fault is not None:
            raise _ERRORS[fault]()
        return self._stream(stream).last(subject)

    async def schedules(self, stream: str, subjects: str) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, if it has headers of a schedule."""
        found = self._stream(stream)
        for subject in {message.subject: None for message in found.messages()}:
            message = found.last(subject)
            if message is not None and subject_matches(subject, subjects) and _is_schedule(message, found):
                yield message

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes, *, expected: int | None) -> Published:
        """Store a message in place of the one with the sequence `expected`."""
        found = self._stream(stream)
        if expected is not None:
            conditions = [(b"Nats-Expected-Stream", stream.encode())]
            conditions.append((b"Nats-Expected-Last-Subject-Sequence", b"%d" % expected))
            bare = without_headers(block, prefixes=(b"Nats-Expected-",))
            block = with_effective_headers(bare, conditions) or b""
        if len(block) > MAX_HEADERS_BYTES:
            raise RefusedError("header size exceeds maximum allowed of 64k", 10097)
        return self._with_fault(lambda: _published(_stored(found, subject, block, body)))

    async def delete(self, stream: str, message: StoredMessage) -> None:
        """Delete a message and the older ones on its subject, if it is still the last one there."""
        found = self._stream(stream)

        def delete() -> None:
            last = found.last(message.subject)
            if last is None:
                raise NotFoundError(f"{message.subject}: nothing is stored there any more")
            is_there = found.message(message.sequence) is not None
            if last.sequence != message.sequence:
                if is_there:
                    found.purge(message.subject, message.sequence)
                raise ConflictError(f"{message.subject}: another client changed it", last.sequence)
            found.purge(message.subject, message.sequence)

        self._with_fault(delete)

    async def fires(self, stream: str, schedule: StoredMessage, since: int, until: int) -> StoredFires:
        """Return which fires of a schedule are stored."""
        served = await self.served(stream)
        found = read_current(schedule, served)
        definition = None if found is None else found.definition
        if found is None or definition is None:
            return StoredFires(frozenset(), None, None)
        target = definition.terms.policies.target_elsewhere or definition.terms.target
        held = self.streams[await self.stream_of(target)]
        active = None
        if not found.is_paused:
            active = StoredSchedule(found.sequence, found.timetable(), definition.terms)
        past = PastFires(found.subject, is_native=found.is_fired_by_server, stored=active)
        messages = [one for one in held.messages() if one.subject == target]
        fires = [fire for message in reversed(messages) for fire in past.read(message)]
        fires += past.rest(is_all=True)
        first = next(iter(held.messages()), schedule)
        on_target = (len(messages), messages[0].stored_at) if messages else (0, 0)
        kept = Kept(first.sequence, first.stored_at, *on_target)
        shown = known_from(held.config, definition.terms, kept, self._now())
        return stored_fires(fires, found.sequence, since, until, shown)

    async def stream_of(self, subject: str) -> str:
        """Return the name of the stream that has a subject."""
        for name, stream in self.streams.items():
            if is_covered(subject, stream.rules.subjects):
                return name
        raise StreamNotFoundError(f"no stream has the subject {subject}")

    async def record(self, changes: Sequence[Change]) -> None:
        """Keep what was done."""
        self.recorded += changes

    def now(self) -> int:
        """Return the time (ns)."""
        return self._now()

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


_ERRORS: Mapping[Fault, Callable[[], ScheduleError]] = {
    Fault.REFUSED: lambda: RefusedError("insufficient resources", 10023),
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


def _published(outcome: Outcome) -> Published:
    if isinstance(outcome, Stored):
        return Published(outcome.sequence, outcome.duplicate)
    if isinstance(outcome, Refused):
        if outcome.code in WRONG_LAST_SEQUENCE:
            raise ConflictError(outcome.description)
        raise RefusedError(outcome.description, outcome.code)
    raise NoAnswerError(outcome.reason)


def _is_schedule(message: StoredMessage, stream: MemoryStream) -> bool:
    dialects = (ADR51, PORTABLE)
    if has_schedule_header(message.block, dialects):
        return True
    return read_paused(message.block, message.subject, stream.rules, dialects, message.stored_at) is not None
