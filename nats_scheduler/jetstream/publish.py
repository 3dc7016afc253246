"""Publish fires with a window: many in flight, each counted, none forgotten.

Every fire handed in is concluded exactly once: stored, refused, or unknown.
The window is bounded because the server drops messages without a word when more than 10,000 are in flight to one
stream; what does not fit waits here, in order.
Acknowledgements come to one inbox, the last token of which is the fire's number, so that one subscription serves all.

A fire that our user may not publish is not acknowledged at all: the server's `-ERR` names the target, and as it denies
in the order of sending, the oldest fire in flight to that target is meant.

Cost: one frame and one dictionary entry a fire, and an answer that is cut out together with its neighbours
(`jetstream.frames`); all frames of a batch leave in one write.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import Outcome, PublishConcluded, Refused, Stored, Unknown
from nats_scheduler.jetstream.connection import NO_RESPONDERS, Connection, frame
from nats_scheduler.jetstream.denied import Denial
from nats_scheduler.jetstream.foreign_json import inner, integer, read_object
from nats_scheduler.jetstream.frames import AcknowledgementFrames

SWEEP_SECONDS = 0.25
"""How often the fires in flight are checked against their deadline."""

MAX_BATCH_BYTES = 512 * 1024
"""Frames are joined up to this size before they are given to the socket."""

NOT_PERMITTED = 403
"""Stands for the server's code where the account refuses a publish before JetStream sees it; no other is so small."""

Concluded = Callable[[PublishConcluded], None]


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
        """Publish into a stream; `acknowledged` is told where what is new was stored, in the order of the stream."""
        self._connection = connection
        self._stream = stream
        self._concluded = concluded
        self._tell_acknowledged = acknowledged
        self._window = window
        self._ack_timeout = ack_timeout
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Fire] = deque()
        self._flying: dict[bytes, tuple[Fire, float]] = {}
        self._number = 0
        self._inbox = connection.inbox(f"a.{stream}")
        self._sid = connection.subscribe(f"{self._inbox}.*", self._acknowledged)
        self._frames = AcknowledgementFrames(self._inbox)
        self._stop_reading = connection.read_runs(self._acknowledged_run)
        self._stop_listening = connection.after_chunk(self._chunk_ended)
        self._denials: Counter[str] = Counter()
        self._stop_hearing = connection.when_denied(self._denied)
        self._sweeper: asyncio.TimerHandle | None = None
        self._ended = False

    def publish(self, fires: Sequence[Fire]) -> None:
        """Send the fires in this order, as far as the window allows at once and the rest when it does."""
        if self._ended:
            for fire in fires:
                self._concluded(PublishConcluded(fire, Unknown("the connection has ended")))
            return
        self._waiting.extend(fires)
        self._fill()

    @property
    def in_flight(self) -> int:
        """How many fires were sent and are not concluded."""
        return len(self._flying)

    def end(self, reason: str) -> None:
        """Conclude everything as unknown, also what waits unsent: to send it again is harmless."""
        if self._ended:
            return
        self._ended = True
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._stop_listening()
        self._stop_reading()
        self._stop_hearing()
        self._connection.unsubscribe(self._sid)
        flying, self._flying = self._flying, {}
        waiting, self._waiting = self._waiting, deque()
        for fire, _deadline in flying.values():
            self._concluded(PublishConcluded(fire, Unknown(reason)))
        for fire in waiting:
            self._concluded(PublishConcluded(fire, Unknown(reason)))

    def _fill(self) -> None:
        frames: list[bytes] = []
        size = 0
        deadline = self._loop.time() + self._ack_timeout
        while self._waiting and len(self._flying) < self._window:
            fire = self._waiting.popleft()
            self._number += 1
            self._flying[b"%d" % self._number] = (fire, deadline)
            frames.append(frame(fire.target, f"{self._inbox}.{self._number}", fire.block, fire.body))
            size += len(frames[-1])
            if size >= MAX_BATCH_BYTES:
                self._connection.write(b"".join(frames))
                frames, size = [], 0
        if frames:
            self._connection.write(b"".join(frames))
        if self._flying and self._sweeper is None:
            self._sweeper = self._loop.call_later(SWEEP_SECONDS, self._sweep)

    def _acknowledged(self, subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        flying = self._flying.pop(subject[subject.rfind(b".") + 1 :], None)
        if flying is not None:
            outcome = outcome_of(block, body)
            self._concluded(PublishConcluded(flying[0], outcome))
            self._note_where([outcome])

    def _acknowledged_run(self, buffer: bytes, position: int) -> int:
        """Do what `_acknowledged` does with acknowledgements that are nothing special, and follow each other."""
        acknowledged, position = self._frames.read(buffer, position)
        for token, outcome in acknowledged:
            flying = self._flying.pop(token, None)
            if flying is not None:
                self._concluded(PublishConcluded(flying[0], outcome))
        self._note_where(outcome for _token, outcome in acknowledged)
        return position

    def _note_where(self, outcomes: Iterable[Outcome]) -> None:
        stored = [outcome.sequence for outcome in outcomes if isinstance(outcome, Stored) and not outcome.duplicate]
        if stored:
            self._tell_acknowledged(stored)

    def _denied(self, denial: Denial) -> None:
        if denial.publishes and self._flying:
            self._denials[denial.subject] += 1

    def _chunk_ended(self) -> None:
        if self._denials:
            self._conclude_denied()
        self._fill()

    def _conclude_denied(self) -> None:
        """Conclude the oldest fires to each denied target, in one pass for all that came together."""
        denials, self._denials = self._denials, Counter()
        for token, (fire, _deadline) in list(self._flying.items()):
            if denials[fire.target] > 0:
                denials[fire.target] -= 1
                del self._flying[token]
                outcome = Refused(NOT_PERMITTED, NOT_PERMITTED, "our user may not publish to the target")
                self._concluded(PublishConcluded(fire, outcome))

    def _sweep(self) -> None:
        self._sweeper = None
        now = self._loop.time()
        late = [token for token, (_fire, deadline) in self._flying.items() if deadline <= now]
        for token in late:
            fire, _deadline = self._flying.pop(token)
            self._concluded(PublishConcluded(fire, Unknown(f"no acknowledgement within {self._ack_timeout} s")))
        self._fill()


def outcome_of(block: bytes, body: bytes) -> Outcome:
    """Return what an acknowledgement says.

    Nobody listening (503) may mean that the stream has no leader at this moment, so it is unknown and not refused.
    """
    if block.startswith(NO_RESPONDERS):
        return Unknown("no stream listens on the target, or it has no leader")
    answer = read_object(body) or {}
    error, sequence = inner(answer.get("error")), integer(answer.get("seq"), -1)
    if error:
        code = integer(error.get("err_code"))
        return Refused(integer(error.get("code")), code, str(error.get("description", "")))
    if sequence < 0 or answer.get("error") is not None:
        return Unknown(f"the acknowledgement cannot be read: {body[:80]!r}")
    return Stored(sequence, answer.get("duplicate") is True)
