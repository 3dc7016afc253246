"""Publish fires with a window: many in flight, and none is lost.

Every fire is concluded exactly once: stored, refused, or unknown.
The window is limited because the server silently drops messages when more than 10,000 are in flight to one stream. What
does not fit waits here, in order. So do large fires beyond `MAX_BYTES_IN_FLIGHT`, and small ones pass by them; a fire
that is larger than that goes alone.
Acknowledgements come to one inbox for all streams of a connection (`jetstream.acknowledgements`); the last token is the
fire's number.

Only an answer that can be the stream's own concludes a fire; after the answer of another client the fire still waits.

A fire that the sidecar's user may not publish is not acknowledged at all. The server's `-ERR` names the target; since
the server denies in the order of sending, it means the oldest fire in flight to that target.

Cost: one frame and one dictionary entry a fire, and an answer that is parsed together with its neighbours
(`jetstream.wire`); all frames of a batch leave in one write.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Sequence
from itertools import takewhile

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import NOT_PERMITTED, FiresStored, Outcome, PublishConcluded, Refused, Stored, Unknown
from nats_scheduler.jetstream.acknowledgements import Acknowledgements
from nats_scheduler.jetstream.api import TEMPORARY_STATUS
from nats_scheduler.jetstream.connection import NO_RESPONDERS, Connection, frame
from nats_scheduler.jetstream.foreign_json import Object, inner, integer, read_object

MAX_BYTES_IN_FLIGHT = 4 * 1024 * 1024
"""Most bytes of large fires in flight: what is small, and comes later, is behind no more than these on the way."""

MIN_LARGE_BYTES = 16 * 1024
"""A fire with a larger body is large."""

ID_IN_PROCESS = 10158
"""The server's code for an identity that it knows, but not whether its message is stored.

In a cluster the replicas may still be agreeing on the first attempt. An attempt that was refused leaves its identity in
this state until the duplicate window is over. A server of 2.10 calls it a duplicate of sequence 0.
"""

IN_PROCESS = Unknown(
    "the server is still storing this fire, or refused it within the duplicate window", in_process=True
)

Concluded = Callable[[PublishConcluded | FiresStored], None]


class Publisher:
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
    ) -> None:
        """Publish into a stream; `acknowledged` gets the sequences of newly stored fires, in stream order."""
        self._connection = connection
        self._stream = stream
        self._concluded = concluded
        self._notify_stored = acknowledged
        self._window = window
        self._ack_timeout = ack_timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Fire] = deque()
        self._waiting_large: deque[Fire] = deque()
        self._large_in_flight = 0
        """Bytes of the large fires that are in flight."""
        self._in_flight: dict[bytes, Fire] = {}
        """By number, in the order in which they were sent."""
        self._deadlines: deque[tuple[float, int]] = deque()
        """By when (of the loop's clock) the fires up to a number have to be acknowledged."""
        self._number = 0
        self._acknowledgements = connection.one(Acknowledgements)
        self._inbox, self._key = self._acknowledgements.join(self, stream)
        self._stem = self._inbox.encode()
        self._is_to_fill = False
        """Whether `_fill_up` will be called after this chunk."""
        self._ended = False

    def publish(self, fires: Sequence[Fire]) -> None:
        """Send the fires in this order: at once as far as the window allows, and the rest when it does."""
        if self._ended:
            for fire in fires:
                self._concluded(PublishConcluded(fire, Unknown("the connection has ended")))
            return
        for fire in fires:
            (self._waiting_large if len(fire.body) > MIN_LARGE_BYTES else self._waiting).append(fire)
        self._fill()

    @property
    def in_flight(self) -> int:
        """The number of fires that were sent and are not concluded."""
        return len(self._in_flight)

    def awaits(self, reply: bytes) -> bool:
        """Return whether a reply subject is that of a fire in flight."""
        stem, _, token = reply.rpartition(b".")
        return token in self._in_flight and stem == self._stem

    def end(self, reason: str) -> None:
        """Conclude everything as unknown, also what was not sent yet: to send a fire again is harmless."""
        if self._ended:
            return
        self._ended = True
        self._acknowledgements.leave(self._key)
        in_flight, self._in_flight = self._in_flight, {}
        waiting = [*self._waiting, *self._waiting_large]
        self._waiting.clear()
        self._waiting_large.clear()
        for fire in (*in_flight.values(), *waiting):
            self._concluded(PublishConcluded(fire, Unknown(reason)))

    def _fill(self) -> None:
        fires = self._next_to_send()
        if not fires:
            return
        if not self._in_flight:
            self._deadlines.clear()
        frames: list[bytes] = []
        for number, fire in enumerate(fires, self._number + 1):
            self._in_flight[b"%d" % number] = fire
            frames.append(frame(fire.target, f"{self._inbox}.{number}", fire.block, fire.body))
        self._number += len(fires)
        self._connection.write(b"".join(frames))
        self._deadlines.append((self._loop.time() + self._ack_timeout, self._number))
        self._acknowledgements.expect(self._key)

    def _next_to_send(self) -> list[Fire]:
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

    def _count_out(self, *fires: Fire) -> None:
        """Count large fires as in flight no more; to be called before their bodies are dropped."""
        if self._large_in_flight:
            self._large_in_flight -= sum(len(fire.body) for fire in fires if len(fire.body) > MIN_LARGE_BYTES)

    def acknowledged(self, number: bytes, block: bytes, body: bytes) -> None:
        """Conclude one fire."""
        if number not in self._in_flight:
            return
        outcome = self.outcome(block, body)
        if outcome is None:
            return  # a subscriber to the target may have answered; wait for the server's own answer
        fire = self._in_flight.pop(number)
        self._count_out(fire)
        self._concluded(PublishConcluded(fire, outcome))
        if isinstance(outcome, Stored) and not outcome.duplicate:
            self._notify_stored((outcome.sequence,))
        self._fill_soon()

    def outcome(self, block: bytes, body: bytes) -> Outcome | None:
        """Return what the server says of a fire; None if it is not the server that answers."""
        return outcome_of(self._stream, block, body)

    def acknowledged_run(self, numbers: Sequence[bytes], sequences: Sequence[int]) -> None:
        """Do what `acknowledged` does, for acknowledgements that each say that something was stored anew."""
        popped = [self._in_flight.pop(number, None) for number in numbers]
        fires = [fire for fire in popped if fire is not None]
        self._count_out(*fires)
        self._notify_stored(sequences)
        if len(fires) != len(popped):  # some came too late
            sequences = [sequence for fire, sequence in zip(popped, sequences, strict=True) if fire is not None]
        self._concluded(FiresStored(fires, sequences))
        self._fill_soon()

    def _fill_soon(self) -> None:
        """Send what waits, after all acknowledgements of this chunk."""
        if (self._waiting or self._waiting_large) and not self._is_to_fill:
            self._is_to_fill = True
            self._connection.after_this_chunk(self._fill_up)

    def _fill_up(self) -> None:
        self._is_to_fill = False
        if not self._ended:
            self._fill()

    def conclude_denied(self, denials: Counter[str]) -> None:
        """Conclude the oldest fires to each denied target, in one pass for all denials of a chunk."""
        for token, fire in list(self._in_flight.items()):
            if denials[fire.target] > 0:
                denials[fire.target] -= 1
                del self._in_flight[token]
                self._count_out(fire)
                outcome = Refused(NOT_PERMITTED, NOT_PERMITTED, "the sidecar's user may not publish to the target")
                self._concluded(PublishConcluded(fire, outcome))
        self._fill()

    def conclude_late(self, now: float) -> None:
        """Conclude as unknown what has a deadline at or before `now`, by the loop's clock."""
        late_through = 0
        while self._deadlines and self._deadlines[0][0] <= now:
            _deadline, late_through = self._deadlines.popleft()
        for token in list(takewhile(lambda token: int(token) <= late_through, self._in_flight)):
            fire = self._in_flight.pop(token)
            self._count_out(fire)
            self._concluded(PublishConcluded(fire, Unknown(f"no acknowledgement within {self._ack_timeout} s")))
        self._fill()


def outcome_of(stream: str, block: bytes, body: bytes) -> Outcome | None:
    """Return what the server says of a message published to `stream`; None if it is not the server that answers.

    A fire is a publish with a reply subject, and core subscribers receive it: one of them may answer before the server.
    Each answer of a server names the stream, refusals too, and gives a sequence or an error with its two codes
    (`test_every_answer_of_a_server_names_the_stream`).
    No responders (503) may mean that the stream has no leader at the moment, so the outcome is unknown and not refused.
    It is also unknown while the server is storing a message with the same identity, and if a leader could not propose
    it to its replicas, because it leads no more: that error has no code of its own.
    """
    if block.startswith(NO_RESPONDERS):
        return Unknown("no stream listens on the target, or it has no leader", may_be_stored=False)
    answer = read_object(body) or {}
    if answer.get("stream") != stream:
        return None
    if answer.get("error") is not None:
        return _refusal(inner(answer["error"]))
    sequence, is_duplicate = integer(answer.get("seq"), -1), answer.get("duplicate") is True
    if sequence > 0:
        return Stored(sequence, is_duplicate)
    return IN_PROCESS if is_duplicate and sequence == 0 else None


def _refusal(error: Object) -> Refused | Unknown | None:
    status, code = integer(error.get("code")), integer(error.get("err_code"))
    if code == ID_IN_PROCESS:
        return IN_PROCESS
    if status == TEMPORARY_STATUS and code == 0:
        return Unknown(f"the leader could not propose it: {error.get('description', '')}")
    return Refused(status, code, str(error.get("description", ""))) if status > 0 and code > 0 else None
