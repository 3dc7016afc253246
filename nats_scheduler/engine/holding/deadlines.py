"""The policy `X-Done-Within`: a fire that is unfinished so long after it was stored is reported, once.

Each stored fire of such a schedule is watched, apart from its schedule: an `@at` is purged when it has fired, and its
fire is what its publisher waits for. When its time is over it is asked whether the fire is finished (`engine.fire`).

The rules:

- Nothing is reported without an answer. A question without one is asked again, after longer and longer waits; the
  third failure in a row, or a denial, is reported instead.
- A fire says in its own headers within which time it is to be done, and by which consumer. So every instance that
  reads it watches it, and one that starts knows the fires that are stored, also those whose schedules are gone.
- The owner of the stream asks. A standby keeps the fire for `KEPT_BY_STANDBYS_NS`, in case the owner ends before it
  has asked.
- What was over for `SETTLED_NS` at the time of a checkpoint is taken for asked: an instance that starts does not report
  again what the one before it has reported.
- Questions are asked `QUESTION_SPACING_NS` apart, and none during a burst.
- `MAX_WATCHED` fires are watched at most. What comes beyond that is reported as unknown; of what is stored when an
  instance starts, those count that have the most time left.

Cost: nothing for a fire of this instance without the policy; a search in the header block of one that is read and whose
schedule is gone. For each that is watched some 5 µs, an entry of some 400 bytes, and one question.
Limit: as many fires a second of one stream as there may be questions.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import FinishUnknown, FireNotDone
from nats_scheduler.engine.fire import CheckFinished
from nats_scheduler.engine.holding.flight import wait_after
from nats_scheduler.engine.holding.ownership import Ownership
from nats_scheduler.engine.holding.progress import Progress
from nats_scheduler.engine.holding.stored_over import StoredOver
from nats_scheduler.engine.inputs import FinishAnswer, Unanswered
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.headers import Header, decoded, encoded, header_value
from nats_scheduler.message.policies import Policies, policy_header, read_consumer
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE
from nats_scheduler.schedule.invalid import FaultError, Invalid

MAX_WATCHED = 100_000
"""Most fires of one stream that are watched."""

MAX_LOOKED_AT_PER_STEP = 256
"""Most fires that one step looks at whose time is over."""

SETTLED_NS = 1 * MINUTE
"""A fire whose time was over for longer than this when the owner wrote its last checkpoint was asked about."""

KEPT_BY_STANDBYS_NS = 2 * SETTLED_NS
"""A standby keeps a fire for this time (ns) after its own time was over, or the start of this instance."""

LONGEST_WAIT_NS = 5 * MINUTE
"""Longest wait before a question without an answer is asked again."""

QUESTION_SPACING_NS = 5 * MILLISECOND
"""Shortest time between two questions of a stream about fires that were unfinished: 200 a second."""

MAX_SILENT_FAILURES = 3
"""After this number of failed questions in a row it is reported that nothing answers."""

DONE_WITHIN, CONSUMER = (policy_header(name, PORTABLE) for name in ("X-Done-Within", "X-Consumer"))


def deadline_headers(policies: Policies) -> list[Header]:
    """Return the headers by which a fire says within which time it is to be done, and by which consumer."""
    if policies.done_within is None:
        return []
    named = ((policy_header(name, PORTABLE), value) for name, value in policies.written)
    return [(name, encoded(value)) for name, value in named if name in (DONE_WITHIN, CONSUMER)]


def _deadline_of(block: bytes) -> tuple[int, str | None] | None:
    """Return within which time (ns) a fire is to be done, and by which consumer; None if it does not say that.

    Anybody can write these headers, so their values are checked as those of a schedule are.
    """
    within, consumer = parse_duration(decoded(header_value(block, DONE_WITHIN) or b"")), header_value(block, CONSUMER)
    if isinstance(within, Invalid):
        return None
    try:
        return within, None if consumer is None else read_consumer(decoded(consumer))
    except FaultError:
        return None


@dataclass(slots=True)
class Watched:
    """A stored fire that is to be finished within a time."""

    schedule: str
    sequence: int
    """That of the schedule."""
    fire_time: int
    target: str
    stored_as: int
    stored_at: int
    """The instant (ns) at which it was stored; if this instance sent it, that of its acknowledgement."""
    deadline: int
    """The instant (ns) at which its time is over."""
    consumer: str | None
    question: CheckFinished | None = None
    """The question that was asked and is not answered."""
    failures: int = 0
    """The number of questions in a row without an answer."""


class Deadlines:
    """The fires of one stream that are to be finished within a time."""

    def __init__(
        self,
        rules: StreamRules,
        ownership: Ownership,
        progress: Progress,
        stored_over: StoredOver,
        emit: Callable[[Action], object],
    ) -> None:
        """Ask about the fires of a stream with these rules; `emit` has a question asked, or something reported."""
        self._rules = rules
        self._ownership = ownership
        self._progress = progress
        self._stored_over = stored_over
        self._emit = emit
        self._watched: dict[int, Watched] = {}
        """By stream sequence."""
        self._queue: list[tuple[int, int]] = []
        """When (ns) each that is not asked about is to be looked at, and its sequence: a heap."""
        self._passed_by: deque[tuple[int, int]] = deque()
        """When (ns) those were to be asked about that were left to the owner, in order, and their sequences."""
        self._next_turn = 0
        """The instant (ns) from which on the next question may be asked."""

    @property
    def sequences(self) -> list[int]:
        """The stream sequences of the fires that are watched."""
        return list(self._watched)

    def watch(
        self, schedule: str, sequence: int, fire_time: int, target: str, stored_as: int, stored_at: int, block: bytes
    ) -> None:
        """Watch a fire that is stored, if its headers say so; nothing changes if it is watched already."""
        if stored_as in self._watched or (found := _deadline_of(block)) is None:
            return
        if len(self._watched) >= MAX_WATCHED:
            if self._progress.is_live or not self._queue:
                if self._ownership.is_owner:
                    reason = f"{MAX_WATCHED:,} fires of the stream are watched already"
                    self._emit(Report(FinishUnknown(schedule, sequence, fire_time, reason)))
                return
            del self._watched[heappop(self._queue)[1]]
        within, consumer = found
        fire = Watched(schedule, sequence, fire_time, target, stored_as, stored_at, stored_at + within, consumer)
        self._watched[stored_as] = fire
        heappush(self._queue, (fire.deadline, stored_as))

    def owner_changed(self) -> None:
        """Look anew at the fires whose time is over: the stream has another owner."""
        self._queue = [*self._queue, *self._passed_by]
        heapify(self._queue)
        self._passed_by.clear()

    def next_look(self) -> int | None:
        """Return when (ns) the next fire is to be looked at, None if none is."""
        return max(self._queue[0][0], self._next_turn) if self._queue else None

    def work(self, now: int, settled: int) -> None:
        """Look at fires whose time is over, and ask about one of them if its turn has come.

        What was over for long at the instant `settled` (ns), that of the last checkpoint, was asked about before.
        """
        while self._passed_by and now >= self._passed_by[0][0] + KEPT_BY_STANDBYS_NS:
            del self._watched[self._passed_by.popleft()[1]]
        for _ in range(MAX_LOOKED_AT_PER_STEP):
            if now < self._next_turn or not self._queue or now < self._queue[0][0]:
                return
            fire = self._watched[heappop(self._queue)[1]]
            if self._ownership.is_owner:
                if fire.deadline + SETTLED_NS <= settled:
                    del self._watched[fire.stored_as]
                else:
                    self._ask(fire)
                    self._next_turn = now + QUESTION_SPACING_NS
            else:
                self._passed_by.append((now, fire.stored_as))

    def _ask(self, fire: Watched) -> None:
        target, last = ">" if self._stored_over.moves.moves(fire.target) else fire.target, fire.stored_as
        consumer = fire.consumer if self._rules.keeps_acknowledged else None
        fire.question = CheckFinished(fire.schedule, fire.sequence, target, last - 1, last, consumer)
        self._emit(fire.question)

    def answered(self, request: CheckFinished, answer: FinishAnswer, now: int) -> bool:
        """Act on what was found out about a fire; returns False if nothing is asked about it here."""
        fire = self._watched.get(request.through)
        if fire is None or fire.question != request:
            return False
        fire.question = None
        if not isinstance(answer, Unanswered):
            del self._watched[fire.stored_as]
            if answer.unfinished:
                times = fire.fire_time, fire.stored_at, fire.deadline - fire.stored_at
                stored = fire.target, fire.stored_as
                self._emit(Report(FireNotDone(fire.schedule, fire.sequence, *stored, *times, answer.fault)))
            return True
        before, fire.failures = fire.failures, fire.failures + 1
        if answer.denied:
            fire.failures = max(fire.failures, MAX_SILENT_FAILURES)
        if before < MAX_SILENT_FAILURES <= fire.failures:
            self._emit(Report(FinishUnknown(fire.schedule, fire.sequence, fire.fire_time, answer.reason)))
        heappush(self._queue, (now + wait_after(fire.failures, LONGEST_WAIT_NS), fire.stored_as))
        return True

    def clock_stepped_back(self, by: int) -> None:
        """Keep the turns where they were, and what was not answered, although the wall clock shows `by` ns less."""
        self._next_turn -= by
        self._queue = [(at - by if self._watched[one].failures else at, one) for at, one in self._queue]
        heapify(self._queue)
