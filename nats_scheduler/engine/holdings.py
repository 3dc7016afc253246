"""What this instance holds of a stream: its shards, and what earlier holders of them had settled.

Every instance reads the whole stream and keeps all of its schedules, so that a shard changes hands without reading.
Schedules of other shards only wait: they advance with the generated messages that are read back, and fire nothing.

The rules:

- A shard that is lost stops at once: no fire of it begins, and what is in flight is concluded and not repeated.
- A shard that is gained continues where the stream and the checkpoint of its last holder say; what is overdue fires at
  once. Two holders at the same time do the same work twice, and the server keeps one of each fire.
- A checkpoint covers the shards that its writer held. Refused fires for which it has no room bound its instant: they
  would be lost otherwise.
- A checkpoint counts in send times: each fire that was to be sent by its instant is settled. A fire between its fire
  time and its send time is therefore not, and it holds back none of the others. Every instance that reads the
  checkpoint computes the same send times.

A schedule that only waits is woken at the same instant whichever instance holds it, and its holder is checked then.
So a change of hands concerns only schedules whose time has come, and is done a slice at a time.

Cost: one check of each schedule in progress when shards change hands, and some microseconds for each that does.
"""

from collections import deque
from collections.abc import Iterable
from heapq import nsmallest
from itertools import chain, islice

from nats_scheduler.engine.course import Course
from nats_scheduler.engine.flight import Stage
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.inputs import CheckpointLoaded
from nats_scheduler.engine.lifecycle import Lifecycle
from nats_scheduler.engine.outcomes import Outcomes
from nats_scheduler.engine.purges import Purges
from nats_scheduler.engine.shards import SHARDS
from nats_scheduler.message.stored import StoredMessage

MAX_UNSETTLED_PER_SHARD = 32
"""Most exceptions that a checkpoint names for each shard held, so that those of all holders fit into one value.

Refused fires come first, by their times. Schedules that were rejected when they were due follow; those for which there
is no room count as settled.
"""

MAX_HANDOVERS_PER_STEP = 1_024
"""Schedules in progress that change hands in one step."""

NOTHING_SETTLED = CheckpointLoaded(through=-1, sequence=0)


class Holdings:
    """The shards held on one stream, and the checkpoints at which their schedules begin."""

    def __init__(self, lifecycle: Lifecycle, course: Course, outcomes: Outcomes, purges: Purges) -> None:
        self._lifecycle = lifecycle
        self._roster = lifecycle.roster
        self._ownership = lifecycle.ownership
        self._course = course
        self._outcomes = outcomes
        self._purges = purges
        self._settled = [NOTHING_SETTLED] * SHARDS
        self._settled_through = NOTHING_SETTLED.through
        """No fire that is sent after this instant (ns) is settled."""
        self._changing: deque[Held] = deque()
        """Schedules in progress whose shards have changed hands."""
        self._earliest_changing: int | None = None
        """The earliest send time (ns) of the schedules in `_changing`."""

    def load(self, checkpoint: CheckpointLoaded) -> None:
        """Note what an earlier holder settled of some shards."""
        for shard in checkpoint.shards:
            self._settled[shard] = checkpoint
        self._settled_through = max(settled.through for settled in self._settled)

    def begin(self, held: Held) -> None:
        """Skip the fires that an earlier holder has settled, then wait for the next one."""
        if held.fire_time > self._settled_through or not self.pass_over(held):
            self._course.await_due(held)

    def pass_over(self, held: Held) -> bool:
        """Advance past the fires that an earlier holder has settled; returns whether there were any."""
        settled = self._settled[held.shard]
        if held.fire_time > settled.through or held.send_time > settled.through:
            return False
        if not _had_read(settled, held) or held.sequence in settled.unsettled:
            return False
        if not held.repeats:
            self._purges.purge(held)
        else:
            self._outcomes.advance(held, held.next_to_send(settled.through))
        return True

    def unreported(self, subject: str, sequence: int) -> Held | None:
        """Return a schedule if it is still held and no earlier holder of its shard had read it."""
        held = self._roster.exactly(subject, sequence)
        return None if held is None or _had_read(self._settled[held.shard], held) else held

    def hold(self, shards: frozenset[int], now: int) -> frozenset[int]:
        """Fire for these shards and no others from now on; returns the new ones."""
        before, self._ownership.shards = self._ownership.shards, shards
        self._outcomes.overdue.gained(shards - before, now)
        changed = before ^ shards
        self._changing.extend(held for held in self._lifecycle.all_not_waiting() if held.shard in changed)
        self._earliest_changing = min((held.send_time for held in self._changing), default=None)
        return shards - before

    def change_hands(self) -> bool:
        """Take over or hand over some schedules whose shards have changed hands; returns whether more are left."""
        if not self._changing:
            return False
        for _ in range(min(len(self._changing), MAX_HANDOVERS_PER_STEP)):
            held = self._changing.popleft()
            if self._roster.on(held.subject) is not held:
                continue
            if self._ownership.is_ours(held):
                self._take_over(held)
            else:
                self._course.hand_over(held)
        if not self._changing:
            self._earliest_changing = None
        return bool(self._changing)

    def checkpoint(
        self, now: int, last_read: int, rejected: Iterable[int], last: StoredMessage | None
    ) -> CheckpointLoaded:
        """Return how far the shards held are settled; the sequences of `rejected` schedules are exceptions.

        A checkpoint counts in send times. No schedule that waits is woken after its send time, so the next wake bounds
        the send times of all that wait.
        `last` is the message with the highest sequence that was read: no held schedule has a higher one.
        """
        shards = self._ownership.shards
        room = MAX_UNSETTLED_PER_SHARD * len(shards)
        failing = nsmallest(room + 1, self._lifecycle.failing(), key=lambda held: held.send_time)
        unnamed = failing[room].send_time if len(failing) > room else None
        bounds = (self._lifecycle.earliest_unsettled(), self._roster.next_wake(), unnamed, self._earliest_changing)
        through = min([now, *(instant - 1 for instant in bounds if instant is not None)])
        unsettled = islice(chain((held.sequence for held in failing), rejected), room)
        return CheckpointLoaded(through, last_read, frozenset(unsettled), shards, 0 if last is None else last.stored_at)

    def _take_over(self, held: Held) -> None:
        flight = held.flight
        if flight is not None and flight.stage in (Stage.DONE_ELSEWHERE, Stage.UNPURGEABLE):
            self._purges.purge(held, flight.ending)
            return
        self._course.hand_over(held)  # discards what was built before another instance held it
        if held.flight is None or held.flight.stage is Stage.READING:
            self.pass_over(held)


def _had_read(settled: CheckpointLoaded, held: Held) -> bool:
    """Return whether the writer of a checkpoint had read this schedule, not one of an earlier stream of that name."""
    is_later = settled.stored_by is not None and held.stored_at > settled.stored_by
    return held.sequence <= settled.sequence and not is_later
