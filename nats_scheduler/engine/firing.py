"""The flights of one stream's schedules: what follows from the outcome of a fire.

The rules:

- *Store first, advance second, purge last*: a schedule moves on only when its fire is known to be stored.
- What comes back about a schedule that is not held any more, or about an earlier flight, changes nothing.
- That the server has a fire already is believed when what lies there is that fire: anybody can write its identity.
  Else the fire takes another one, and is sent again.
- In a herd only what the next fires need is done at once; what was stored is told, and what is done removed, when no
  herd is in the way.

The stages are those of `engine.flight`. `StreamEngine` owns this object and calls it with facts; it answers in actions.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypeGuard

from nats_scheduler.engine.actions import Action, ReadDuplicate, Report
from nats_scheduler.engine.approach import Approach
from nats_scheduler.engine.assembly import ServerLimits, refusal_of, with_another_identity
from nats_scheduler.engine.doubt import fault_of_duplicate, fault_of_generated
from nats_scheduler.engine.events import (
    Ending,
    FireForged,
    FiresMissed,
    FireStored,
    FireUnsettled,
    SchedulesFailing,
    StillRefused,
)
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.flight import UNKNOWN_RETRY_LIMIT, Flight, Stage
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.inputs import DuplicateRead, DuplicateUnread, FiresStored, PublishConcluded, Stored, Unknown
from nats_scheduler.engine.overdue import OverdueRule
from nats_scheduler.engine.removing import LONGEST_HERD, RELEASED_AT_ONCE
from nats_scheduler.engine.roster import Roster
from nats_scheduler.engine.shards import shard_of
from nats_scheduler.message.genuine import is_too_early
from nats_scheduler.message.reading import Generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND

SENT_IN_SILENCE = 2
"""So often a fire is repeated where nothing can tell that it was stored; then it is taken for stored.

To go on would be to store it again, once the duplicate window is over.
"""

KEEP_CONTENT_FOR = 10 * SECOND
"""A schedule that fires again within this time (ns) keeps its content in memory, where the guard watches over it."""

SOON = 2 * LONGEST_HERD
"""A schedule that fires again within this time (ns) moves on at once: no herd that it is part of may keep it."""


class Firing(Approach):
    """The flights of one stream's schedules."""

    def __init__(
        self,
        roster: Roster,
        limits: ServerLimits,
        emit: Callable[[Action], None],
        await_sight: Callable[[Sequence[Fire]], None],
        *,
        moved: bool = False,
    ) -> None:
        """Hold what the stream's schedules do; `await_sight` is told which fires were stored.

        Where the stream stores fires elsewhere than on their targets they are `moved`.
        """
        super().__init__(roster, limits, emit)
        self._await_sight = await_sight
        self.overdue = OverdueRule()
        self._moved = moved
        self._stored: deque[Fire] = deque()
        """What is to be told, and moved on behind."""
        self.stored = 0
        """Fires that were acknowledged as stored."""
        self.running_since: int | None = None
        """When (ns) everything stored had been read for the first time."""
        self._told_failing = 0

    def concluded(self, conclusion: PublishConcluded, now: int) -> None:
        """Act on the outcome of a fire."""
        fire, outcome = conclusion.fire, conclusion.outcome
        if isinstance(outcome, Stored):
            if outcome.duplicate and self._awaiting(fire) is not None:
                self._emit(ReadDuplicate(fire, outcome.sequence))  # until then it is on its way
            else:
                self._is_stored(fire, outcome, now)
            return
        self.under_way -= 1
        self._flying -= 1
        held = self._active.get(fire.sequence)
        if held is None or not _awaits(held.flight, fire):
            return
        if isinstance(outcome, Unknown) and self._limits.silent and held.flight.attempts >= SENT_IN_SILENCE:
            self.advance(held, fire.next_fire)
        elif not self.is_ours(held):
            self._leave_alone(held, now)
        elif isinstance(outcome, Unknown):
            wait = self._back_off(held, held.flight, now, UNKNOWN_RETRY_LIMIT)
            self._emit(Report(FireUnsettled(fire, outcome.reason, wait)))
        else:
            self._refused(held, held.flight, fire, outcome, now)

    def duplicate_read(self, read: DuplicateRead, now: int) -> None:
        """Act on what lies where the server says that a fire is stored already."""
        fire, held = read.fire, self._awaiting(read.fire)
        fault = "" if held is None else fault_of_duplicate(held, read, moved=self._moved)
        if held is None or held.flight is None or not fault:
            self._is_stored(fire, Stored(read.sequence, duplicate=True), now)
            return
        self.under_way -= 1
        self._flying -= 1
        subject = "" if read.message is None else read.message.subject
        self._emit(Report(FireForged(fire.schedule, fire.sequence, fire.fire_time, subject, read.sequence, fault)))
        if not self.is_ours(held):
            self._leave_alone(held, now)
            return
        again = held.flight.fire = with_another_identity(fire, read.sequence)
        held.flight.refusal = refusal_of(again, self._limits)
        self._repeat(held, held.flight, again, now)

    def duplicate_unread(self, unread: DuplicateUnread, now: int) -> None:
        """Send the fire again later, as one of unknown outcome."""
        self.concluded(PublishConcluded(unread.fire, Unknown(unread.reason)), now)

    def were_stored(self, stored: FiresStored, now: int) -> None:
        """Move on behind fires that are stored."""
        fires, count = stored.fires, len(stored.fires)
        self.under_way -= count
        self._flying -= count
        self.stored += count
        self._stored.extend(fires)
        if self._stuck:
            self._let_others_try(fires, now)
        for fire, sequence in zip(fires, stored.sequences, strict=True):
            fire.stored_as, fire.stored_at = sequence, now
            if fire.next_fire is not None and fire.next_fire < now + SOON:
                self._advance_behind(fire)
        self._await_sight(fires)
        for fire in fires:
            fire.block = fire.body = b""  # never sent again, and it may wait to be told and seen

    def contact_regained(self, now: int) -> None:
        """Go on, and note when that was for the first time."""
        if self.running_since is None:
            self.running_since = now
        super().contact_regained(now)

    def release(self, now: int) -> bool:
        """Tell what was stored while a herd was in the way, and move on behind it; then remove what is done."""
        self._tell_of_refusals(now)
        if not self.is_herd_in_the_way(len(self._stored), now):
            for _ in range(min(RELEASED_AT_ONCE, len(self._stored))):
                fire = self._stored.popleft()
                self._emit(Report(FireStored(fire, fire.stored_as, fire.was_stored_before)))
                self._advance_behind(fire)
        return super().release(now) or bool(self._stored)

    def _tell_of_refusals(self, now: int) -> None:
        """Tell how many schedules are failing where that has changed, and now and then that they still are."""
        if len(self._stuck) != self._told_failing:
            self._told_failing = len(self._stuck)
            self._emit(Report(SchedulesFailing(self._told_failing)))
        for held, count in self._refusals.reminders(now) if self._stuck else ():
            assert held.flight is not None, "what is refused is under way"
            assert held.flight.failing is not None, "and known to be refused"
            code, description, since = held.flight.failing
            self._emit(Report(StillRefused(held.subject, held.sequence, code, description, since, count)))

    def _let_others_try(self, fires: Sequence[Fire], now: int) -> None:
        """Let others try that were refused for the same reason as one that is stored now."""
        for fire in fires:
            if fire.sequence in self._stuck:
                self._refusals.stored(fire.sequence, now)

    @property
    def is_failing(self) -> bool:
        """Whether the server refuses a fire for the time being."""
        return bool(self._stuck)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, nor waits to be told."""
        return super().is_idle and not self._stored

    def _is_stored(self, fire: Fire, outcome: Stored, now: int) -> None:
        fire.was_stored_before = outcome.duplicate
        self.were_stored(FiresStored((fire,), (outcome.sequence,)), now)

    def _awaiting(self, fire: Fire) -> Held | None:
        """Return the schedule that awaits the outcome of this fire."""
        held = self._active.get(fire.sequence)
        return held if held is not None and _awaits(held.flight, fire) else None

    def _advance_behind(self, fire: Fire) -> None:
        """Move on behind a fire that is stored, where its schedule still waits for that."""
        held = self._awaiting(fire)
        if held is not None:
            self.advance(held, fire.next_fire)

    def read_back(self, generated: Generated, message: StoredMessage, is_live: bool, is_acknowledged: bool) -> bool:
        """Take a message that claims to be a fire of ours for it; returns whether it can be.

        One that `is_acknowledged` is ours. One that changes nothing is let pass.
        """
        held = self._roster.exactly(generated.schedule, generated.sequence)
        is_told = is_live and shard_of(generated.schedule) in self.shards
        is_news = held is not None and generated.fire_time >= held.due and not is_acknowledged
        fault = fault_of_generated(held, generated, message, moved=self._moved) if is_news and held is not None else ""
        if fault:
            if is_told:
                claimed = generated.schedule, generated.sequence, generated.fire_time
                self._emit(Report(FireForged(*claimed, message.subject, message.sequence, fault)))
            return False
        if is_told and (is_acknowledged or not is_too_early(message.stored_at, generated.fire_time)):
            self._emit(Report(self.overdue.seen(generated, held, message)))
        if held is not None:
            self.seen(held, generated.fire_time)
        return True

    def seen(self, held: Held, fire_time: int) -> None:
        """Learn from the stream that a fire of the schedule is stored, whether or not it was acknowledged to us."""
        if fire_time < held.due or (held.flight is not None and held.flight.stage in (Stage.PURGING, Stage.SPENT)):
            return
        self.last_fired[held.shard] = fire_time
        self.advance(held, self._after(held, fire_time))

    def advance(self, held: Held, next_fire: int | None) -> None:
        """Move on behind a stored fire: to the next one, or to the removal of a schedule that is done."""
        flight = held.flight
        if flight is not None and flight.missed_since is not None:
            first = flight.missed_since
            was_running = self.running_since is not None and first >= self.running_since
            self._emit(Report(FiresMissed(held.subject, held.sequence, first, held.due, was_running)))
        if not held.pattern.repeats:
            self.purge(held)
        elif next_fire is None:
            self.end(held, Ending.EXHAUSTED)
        else:
            kept = held.flight.content if held.flight is not None else None
            pause = next_fire - held.due
            self.settle(held)
            held.due, held.flight = next_fire, None
            is_watched = self._limits.guard and held.terms.source is None and self.is_ours(held)
            if kept is not None and pause <= KEEP_CONTENT_FOR and is_watched:
                self._keep_ready(held, kept, pause)
            else:
                self.await_due(held)

    def join_late(self, held: Held, now: int) -> bool:
        """Begin with a schedule that had to wait for a place: what came due meanwhile is not made up.

        It is looked at first: what was removed while it waited was noticed by nobody.
        Returns False where nothing of it is to come.
        """
        if held.due <= now:
            following = self._after(held, now) if held.pattern.repeats else None
            if following is None:
                self.purge(held, Ending.MISSED_ITS_TIME)
                return False
            held.due = following
        self.await_due(held)
        self.look_whether_there(held)
        return True

    def _keep_ready(self, held: Held, content: StoredMessage, pause: int) -> None:
        """Keep the content for the next fire, which is built in the middle of the pause: not while a herd fires."""
        held.flight = Flight(Stage.READY, content=content)
        self._active[held.sequence] = held
        self._roster.wake(held, held.due - pause // 2)


def _awaits(flight: Flight | None, fire: Fire) -> TypeGuard[Flight]:
    """Tell whether a flight awaits the outcome of this fire."""
    return flight is not None and flight.fire is fire and flight.stage is Stage.FLYING


def is_stuck(held: Held) -> bool:
    """Tell whether the server refuses the fires of a schedule for the time being."""
    return held.flight is not None and held.flight.failing is not None


def has_ended(held: Held, now: int) -> bool:
    """Tell whether a schedule's TTL has run out, and no fire that came due before is still to be sent.

    One that the server refuses is given up then, as where the server itself removes the schedule.
    """
    if held.expires > now:
        return False
    return held.only_expires if held.flight is None else is_stuck(held)
