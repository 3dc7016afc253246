"""Publish fires with a window: many in flight, and none is lost.

Every fire is concluded exactly once: stored, refused, or unknown.
The window is limited because the server silently drops messages when more than 10,000 are in flight to one stream. What
does not fit waits here, in order. So do large fires beyond `MAX_BYTES_IN_FLIGHT`, and small ones pass by them; a fire
that is larger than that goes alone.
How they are numbered, acknowledged and concluded is in `jetstream.acknowledgements`. Only an answer that can be the
stream's own concludes a fire; after the answer of another client the fire still waits.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import compress

from nats_scheduler.control.transport import NO_RESPONDERS
from nats_scheduler.engine.actions import PurgeSchedule, purge_after
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import (
    NO_STREAM,
    FiresStored,
    Outcome,
    PublishConcluded,
    Refused,
    Stored,
    Unknown,
)
from nats_scheduler.jetstream.acknowledgements import Sender, acknowledgements
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.message.publish_answers import ID_IN_PROCESS, Published, publish_answer
from nats_scheduler.message.rejection import NOT_PERMITTED
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS

MAX_BYTES_IN_FLIGHT = 4 * 1024 * 1024
"""Most bytes of large fires in flight: what is small, and comes later, is behind no more than these on the way."""

MIN_LARGE_BYTES = 16 * 1024
"""A fire with a larger body is large."""

MAX_LATE = 10_000
"""Fires that were concluded as late, and whose answers still count; the server drops what comes above as many."""

IN_PROCESS = Unknown(
    "the server is still storing this fire, or refused it within the duplicate window", in_process=True
)

NO_STREAM_LISTENS = Unknown(
    "no stream listens where the fire arrives: its stream has no leader, or the account maps the target elsewhere",
    may_be_stored=False,
    is_misplaced=True,
)

Concluded = Callable[[PublishConcluded | FiresStored], None]


class Publisher(Sender[Fire]):
    """The fires of one stream on one connection."""

    def __init__(
        self,
        connection: Connection,
        stream: str,
        concluded: Concluded,
        *,
        window: int,
        ack_timeout: float,
        acknowledged: Callable[[Sequence[int]], None] = lambda _sequences: None,
        purge: Callable[[Sequence[PurgeSchedule]], None] = lambda _requests: None,
    ) -> None:
        """Publish into a stream, or with "" into any of those that have the targets.

        `acknowledged` gets the sequences of newly stored fires, in stream order; `purge` begins what follows them.
        """
        silence = f"no acknowledgement within {ack_timeout} s"
        super().__init__(connection, connection.one(acknowledgements), stream, ack_timeout, silence)
        self._stream = stream
        self._concluded = concluded
        self._notify_stored = acknowledged
        self._purge = purge
        self._window = window
        self._waiting: deque[Fire] = deque()
        self._waiting_large: deque[Fire] = deque()
        self._large_in_flight = 0
        """Bytes of the large fires that are in flight."""
        self._stem = self._inbox.encode()
        self._others: dict[int, str] = {}
        """By the fires in flight, which other stream answered them."""
        self._late: set[bytes] = set()
        """The numbers of fires that were concluded as late, at most `MAX_LATE`."""

    def publish(self, fires: Sequence[Fire]) -> None:
        """Send the fires in this order: at once as far as the window allows, and the rest when it does."""
        if self._ended is not None:
            for fire in fires:
                self._fail(fire, "the connection has ended")
            return
        for fire in fires:
            (self._waiting_large if len(fire.body) > MIN_LARGE_BYTES else self._waiting).append(fire)
        self._fill()

    def awaits(self, reply: bytes) -> bool:
        """Return whether a reply subject is that of a fire in flight."""
        stem, _, token = reply.rpartition(b".")
        return token in self._in_flight and stem == self._stem

    def acknowledged_run(self, numbers: Sequence[bytes], sequences: Sequence[int]) -> None:
        """Do what `acknowledged` does; where a fire is stored is of use also if it was concluded as late before."""
        if self._late:
            known = [number in self._in_flight or number in self._late for number in numbers]
            self._late.difference_update(numbers)
        else:
            known = [number in self._in_flight for number in numbers]
        self._notify_stored(list(compress(sequences, known)))
        super().acknowledged_run(numbers, sequences)

    def conclude_late(self, now: float) -> None:
        """Conclude as failed what has a deadline at or before `now`; its answer may still come."""
        before = set(self._in_flight)
        super().conclude_late(now)
        late = before - self._in_flight.keys()
        self._late = late if len(self._late) + len(late) > MAX_LATE else self._late | late

    def _next_to_send(self) -> Sequence[Fire]:
        """Take what may be sent now, what is small first."""
        room = self._window - len(self._in_flight)
        fires = [self._waiting.popleft() for _ in range(min(len(self._waiting), room))]
        while self._waiting_large and len(fires) < room:
            size = len(self._waiting_large[0].body)
            if self._large_in_flight and self._large_in_flight + size > MAX_BYTES_IN_FLIGHT:
                break
            self._large_in_flight += size
            fires.append(self._waiting_large.popleft())
        return fires

    def _waits_for_room(self) -> bool:
        return bool(self._waiting or self._waiting_large)

    def _take_waiting(self) -> Sequence[Fire]:
        waiting = [*self._waiting, *self._waiting_large]
        self._waiting.clear()
        self._waiting_large.clear()
        return waiting

    def _frame(self, request: Fire, number: int) -> bytes:
        return frame(request.target, f"{self._inbox}.{number}", request.block, request.body)

    def _subject_of(self, request: Fire) -> str:
        return request.target

    def _conclude(self, request: Fire, block: bytes, body: bytes) -> bool:
        outcome = outcome_of(self._stream, block, body) if self._stream else outcome_elsewhere(block, body)
        if outcome is None:
            self._note_other(request, body)
            return False  # a subscriber to the target may have answered; wait for the server's own answer
        self._count_out(request)
        self._concluded(PublishConcluded(request, outcome))
        if isinstance(outcome, Stored) and not outcome.duplicate:
            self._notify_stored((outcome.sequence,))
        return True

    def _conclude_run(self, requests: Sequence[Fire], sequences: Sequence[int]) -> None:
        self._count_out(*requests)
        self._concluded(FiresStored(requests, sequences))
        if purges := [purge_after(fire) for fire in requests if fire.purge_through]:
            self._purge(purges)

    def _deny(self, request: Fire) -> None:
        self._count_out(request)
        outcome = Refused(NOT_PERMITTED, NOT_PERMITTED, "the sidecar's user may not publish to the target")
        self._concluded(PublishConcluded(request, outcome))

    def _fail(self, request: Fire, reason: str) -> None:
        other = self._others.get(id(request))
        self._count_out(request)
        outcome = Unknown(reason) if other is None else Unknown(f"{reason}; {other}", is_misplaced=True)
        self._concluded(PublishConcluded(request, outcome))

    def _note_other(self, request: Fire, body: bytes) -> None:
        """Note that another stream answered a fire: the account maps its target, or a subscriber to it answered."""
        other = (read_object(body) or {}).get("stream")
        if self._stream and isinstance(other, str) and other != self._stream:
            name = other[:MAX_SHOWN_CHARS]
            self._others[id(request)] = f"stream {name} answered, so a mapping of the account may have moved it there"

    def _count_out(self, *fires: Fire) -> None:
        """Count large fires as in flight no more; to be called before their bodies are dropped."""
        if self._others:
            for fire in fires:
                self._others.pop(id(fire), None)
        if self._large_in_flight:
            self._large_in_flight -= sum(len(fire.body) for fire in fires if len(fire.body) > MIN_LARGE_BYTES)


def outcome_of(stream: str, block: bytes, body: bytes) -> Outcome | None:
    """Return what the server says of a message published to `stream`; None if it is not the server that answers.

    No responders (503) may mean that the stream has no leader at the moment, so the outcome is unknown and not refused.
    It is also unknown while the server is storing a message with the same identity, and if a leader could not propose
    it to its replicas, because it leads no more: that error has no code of its own.
    """
    if block.startswith(NO_RESPONDERS):
        return NO_STREAM_LISTENS
    answer = publish_answer(stream, block, body)
    if isinstance(answer, Published):
        return Stored(answer.sequence, answer.is_duplicate)
    if answer is None:
        return None
    if answer.code == ID_IN_PROCESS:
        return IN_PROCESS
    if answer.code == 0:
        return Unknown(f"the leader could not propose it: {answer.description}")
    return Refused(answer.status, answer.code, answer.description)


def outcome_elsewhere(block: bytes, body: bytes) -> Outcome | None:
    """Return what the stream that has the target says; None if it is not a server that answers."""
    if block.startswith(NO_RESPONDERS):
        return NO_STREAM
    if block:
        return None
    stream = (read_object(body) or {}).get("stream")
    if not isinstance(stream, str):
        return None
    outcome = outcome_of(stream, block, body)
    return outcome._replace(stream=stream) if isinstance(outcome, Stored) else outcome
