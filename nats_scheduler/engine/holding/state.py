"""All that is known of one stream, as one record, and the only functions that change the stage of a schedule.

Each module of the engine gets this record, and calls what is in it by its name. What only one part needs is an object
of its own in it (`engine.holding`), which knows no other one.

The rules:

- `EngineState.enter` is the only function that changes a stage. Which stage may follow which is the table of
  `engine.firing.machine`.
- `EngineState.end` is the only function that stops holding a schedule and reports why; one that made the engine fail is
  held no longer without a question to it (`expel`).

Cost: two dictionary entries for each schedule in progress.
"""

from collections import deque
from collections.abc import Callable

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import (
    Ending,
    FireLostToReplacement,
    FiresDropped,
    FiresSkipped,
    ScheduleEnded,
    ScheduleLost,
)
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.holding.catch_up import CatchUp
from nats_scheduler.engine.holding.contents import ContentMemory, Contents
from nats_scheduler.engine.holding.deadlines import Deadlines
from nats_scheduler.engine.holding.expiry import Expiry
from nats_scheduler.engine.holding.flight import IN_PROGRESS, Flight, Stage
from nats_scheduler.engine.holding.guard import Guard
from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.in_flight import InFlight
from nats_scheduler.engine.holding.inactive import Inactive
from nats_scheduler.engine.holding.lifetimes import Lifetimes
from nats_scheduler.engine.holding.ownership import Ownership
from nats_scheduler.engine.holding.progress import Progress
from nats_scheduler.engine.holding.proposals import Proposals
from nats_scheduler.engine.holding.purges import Purges
from nats_scheduler.engine.holding.refusals import Refusals
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.engine.holding.stored_over import Moves, StoredOver
from nats_scheduler.engine.inputs import NOTHING_SETTLED, RemovalRequested, ServerLimits
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.reading import Generated
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_literal_subject, subject_matches


class EngineState:
    """What is known of one stream and its schedules."""

    def __init__(
        self,
        rules: StreamRules,
        limits: ServerLimits,
        dialects: tuple[Dialect, ...],
        schedules: Schedules,
        *,
        removes_expired: bool,
        reads_all: bool,
        memory: ContentMemory,
        catch_up_rate: int,
        reject: Callable[[object, str, int, Exception], None],
    ) -> None:
        """Begin with nothing; `reject` is called for a schedule that makes the engine fail (`engine.holding.guard`).

        `removes_expired`, `reads_all` and `catch_up_rate` are those of `engine.stream.StreamEngine`.
        """
        self.rules = rules
        self.limits = limits
        self.dialects = dialects
        self.max_payload = limits.max_payload
        """Bytes of headers and body that the server takes at the moment."""
        self.longest_ahead = limits.longest_ahead
        """The longest time (ns) before its send time at which a schedule is fetched."""
        self.now = 0
        """The time (ns) of the step."""
        self.running_since: int | None = None
        """The instant (ns) at which everything stored had been read for the first time."""
        self.settled = NOTHING_SETTLED
        """What the owner before settled."""
        self.actions: list[Action] = []
        """What is to be done after the step."""
        self.emit = self.actions.append
        """Has something done after the step, or reports it."""

        self.schedules = schedules
        self.ownership = Ownership(limits.longest_ahead, reads_all=reads_all)
        """Whether this instance fires for the stream."""
        self.lifetimes = Lifetimes(rules, removes_expired=removes_expired, keeps_all=reads_all)
        """The ends of schedules that the stream removes by itself."""
        moves = Moves(moves_all=rules.moves_subjects)
        self.stored_over = StoredOver(schedules, rules.subjects, moves)
        """The messages that were stored over schedules; discarded with their schedules."""
        self.progress = Progress(reads_all=reads_all, moves=moves)
        """The progress in reading the stream."""
        self.contents = Contents(memory)
        """The bytes of what was fetched for fires, and what waits for room."""
        self.in_flight = InFlight()
        self.refusals = Refusals(schedules, self.emit)
        """The schedules whose fires the server refuses."""
        self.catch_up = CatchUp(catch_up_rate)
        """The schedules whose missed fires wait for their turn (`engine.firing.catching_up`)."""
        self.proposals = Proposals(schedules, self.emit, is_replicated=limits.replicated)
        """The proposals that may be in flight at the leader."""
        self.purges = Purges()
        """The purges that wait, or are not concluded."""
        self.inactive = Inactive(self.progress, self.ownership, self.emit)
        """What is rejected or paused."""
        self.expiry = Expiry(dialects, self.ownership, self.emit) if removes_expired else None
        """The messages that the sidecar removes, None if the server does it."""
        self.deadlines: Deadlines | None = None
        """The fires that are to be finished within a time, None until there was one."""
        self.guard = Guard(reject)
        """Runs what concerns one schedule."""

        self.active: dict[int, Held] = {}
        """The schedules whose next fire is in progress, by sequence."""
        self.unready: dict[int, Held] = {}
        """Those of them that are not ready, as most are: for instance fetching, in flight, or backing off."""
        self.blocked: dict[int, Held] = {}
        """Those that are due and wait until their fire before is finished, by sequence (`engine.firing.blocking`)."""
        self.later: dict[int, Held] = {}
        """Those that are due and left to the owner, and those that are done and could not be purged, by sequence."""
        self.owed_before: dict[int, tuple[int, int]] = {}
        """By sequence, versions that owed a fire to an earlier engine and are to be read: the fire time, and when what
        replaced them was stored (ns)."""
        self.no_longer_owed: list[Held] = []
        """Versions that were replaced, of which nothing is owed any more: they are to be purged."""
        self.handed_out: list[Fire] = []
        """The fires that this step publishes."""
        self.unreported: deque[Fire] = deque()
        """The fires that were stored and are to be reported."""
        self.stored_count = 0
        """The number of fires that were acknowledged as stored."""
        self.oversized_count = 0
        """The number of attempts that were not sent, because the fire is larger than what the server takes."""
        self.next_question_at = 0
        """The instant (ns) from which on it may be asked again whether a fire that was unfinished is finished."""
        self.read_at_start: int | None = None
        """The last sequence that was stored when everything had been read for the first time."""

    # -- changes -------------------------------------------------------------------------------------------------

    def enter(self, held: Held, stage: Stage) -> None:
        """Have a schedule in another stage, or in the same one again.

        A flight begins when it stops to wait, or keeps its content for the next fire, and another one when it is done.
        """
        flight, sequence = held.flight, held.sequence
        self.schedules.changed(held)
        self.catch_up.waiting.pop(sequence, None)
        if stage is Stage.KEPT:
            self._clear(held)
            if self.ownership.unfired:
                self.ownership.excuse(held)
            flight = None
        if stage in IN_PROGRESS:
            if flight is None:
                held.flight = Flight(stage)
                self.active[sequence] = held
            else:
                flight.stage = stage
            if stage is Stage.READY:
                self.unready.pop(sequence, None)
            else:
                self.unready[sequence] = held
        elif stage is Stage.UNPURGEABLE:
            assert flight is not None, "it was purging before"
            flight.stage = stage
        else:
            self._clear(held)
            if self.ownership.unfired:
                self.ownership.excuse(held)
            held.flight = None if stage is Stage.WAITING else Flight(stage)

    def look_later(self, held: Held, until: int | None) -> None:
        """Look at a schedule again at `until` (ns), or never: it is left to the owner, or done and not purged."""
        self.later[held.sequence] = held
        if until is not None:
            self.schedules.wake(held, until - self.ownership.lag)

    def end(self, held: Held, ending: Ending) -> None:
        """Hold a schedule no longer, and report why; nothing is owed of its earlier versions any more either.

        Of a version that was replaced nothing is reported: it has ended before.
        """
        self.discard(held)
        self._remove(held)
        if held.replaced_at is None and self.ownership.is_owner:
            self.emit(Report(ScheduleEnded(held.subject, held.sequence, ending)))
            if is_lost(held, ending):
                self.emit(Report(ScheduleLost(held.subject, held.sequence, held.fire_time, ending)))
        held.flight = Flight(Stage.ENDED)
        if held.replaced_at is None:
            for owed in self.schedules.owed_on(held.subject):
                self.end(owed, ending)

    def knows_settled(self, at: int) -> bool:
        """Return whether it is known what was settled at an instant (ns): by a checkpoint, or as all was read then."""
        return self.settled.through >= 0 or (self.running_since is not None and at >= self.running_since)

    def report_lost(self, held: Held, reason: str) -> None:
        """Report that the fire of a version that was due when it was replaced is lost."""
        if self.ownership.is_owner and self.progress.is_live:
            self.emit(Report(FireLostToReplacement(held.subject, held.sequence, held.fire_time, reason)))

    def lose(self, held: Held, reason: str) -> None:
        """Hold a version that was replaced no longer, and report that its fire is lost."""
        self.report_lost(held, reason)
        self.end(held, Ending.REPLACED)

    def discard(self, held: Held) -> None:
        """Discard what is in progress for a schedule that ends or is replaced, and report the fire that is lost."""
        flight = held.flight
        self._clear(held)
        self.stored_over.forget(held)
        self.contents.forget(held.sequence)
        if flight is not None and flight.failing is not None and self.ownership.is_owner:
            code, description, _since = flight.failing
            first = held.fire_time if flight.missed_since is None else flight.missed_since
            self.emit(Report(FiresDropped(held.subject, held.sequence, first, code, description)))
        elif flight is not None and flight.before is not None and self._is_lost_waiting(held, flight):
            count = max(held.count(held.fire_time - 1, flight.before.asked_at), 1)
            overlap = held.terms.policies.overlap
            self.emit(Report(FiresSkipped(held.subject, held.sequence, held.fire_time, count, overlap)))
        self.ownership.excuse(held)

    def expel(self, held: Held) -> None:
        """Hold a schedule no longer that failed: whatever is half changed, and without asking it anything."""
        self._clear(held)
        self.stored_over.forget(held)
        self.contents.forget(held.sequence)
        self.ownership.unfired = 0
        self._remove(held)
        held.flight = Flight(Stage.ENDED)

    def _remove(self, held: Held) -> None:
        if held.replaced_at is None:
            self.schedules.remove(held.subject)
        else:
            self.schedules.remove_owed(held)
            self.no_longer_owed.append(held)

    def _is_lost_waiting(self, held: Held, flight: Flight) -> bool:
        """Return whether a fire that waited for the one before is not sent any more."""
        waited = flight.before is not None and flight.before.waited and flight.stage in IN_PROGRESS
        return waited and flight.stage is not Stage.IN_FLIGHT and self.ownership.is_owner

    def _clear(self, held: Held) -> None:
        sequence, flight = held.sequence, held.flight
        if flight is not None:
            flight.waits_for_room = False
            if flight.content_size:
                self.contents.use(flight, 0)
        self.active.pop(sequence, None)
        self.unready.pop(sequence, None)
        if sequence in self.refusals.held:
            self.refusals.discard(sequence)
        self.blocked.pop(sequence, None)
        self.catch_up.waiting.pop(sequence, None)
        self.later.pop(sequence, None)

    def watch(self, fire: Fire | Generated, target: str, sequence: int, stored_at: int, block: bytes) -> None:
        """Watch a fire that is stored under a sequence, if its headers say within which time it is to be done."""
        if self.deadlines is None:
            self.deadlines = Deadlines(self.rules, self.ownership, self.progress, self.stored_over, self.emit)
        self.deadlines.watch(fire.schedule, fire.sequence, fire.fire_time, target, sequence, stored_at, block)

    # -- questions -----------------------------------------------------------------------------------------------

    @property
    def outstanding(self) -> int:
        """Fires and purges that are not concluded."""
        return len(self.in_flight.fires) + self.purges.outstanding

    @property
    def may_publish(self) -> bool:
        """True if a fire may begin now."""
        return self.progress.is_open and self.in_flight.room > 0

    def is_guarded(self, held: Held) -> bool:
        """Return whether the server refuses a fire of a schedule that is not stored any more."""
        return self.limits.guard and not held.is_to_other_stream and not self.stored_over.is_over(held)

    def in_stage(self, subject: str, sequence: int, stage: Stage) -> Held | None:
        """Return a schedule if it is still held and in this stage."""
        held = self.schedules.exactly(subject, sequence)
        return held if held is not None and held.flight is not None and held.flight.stage is stage else None

    def awaiting(self, fire: Fire) -> Held | None:
        """Return the schedule that waits for the outcome of this very fire."""
        held = self.active.get(fire.sequence)
        if held is None or held.flight is None or held.flight.fire is not fire:
            return None
        return held if held.flight.stage is Stage.IN_FLIGHT else None

    def all_not_waiting(self) -> list[Held]:
        """Return the schedules that do more than wait for their time, those that are left to the owner first."""
        return list({**self.later, **self.catch_up.waiting, **self.active}.values())

    def earliest_to_send(self) -> int | None:
        """Return the earliest send time (ns) in progress, by whichever instance, of what is not blocked."""
        return min(
            (held.send_time for held in self.all_not_waiting() if held.sequence not in self.blocked), default=None
        )

    def active_in(self, request: RemovalRequested) -> list[Held]:
        """Return the schedules in progress whose messages a request may remove."""
        if request.sequence is not None:
            found = [self.active.get(request.sequence)]
        elif request.filter is None:
            found = [*self.active.values()]
        elif is_literal_subject(request.filter):
            found = [self.schedules.on(request.filter), *self.schedules.owed_on(request.filter)]
        else:
            return [held for held in self.active.values() if subject_matches(held.subject, request.filter)]
        return [held for held in found if held is not None]

    def earliest_unsettled(self) -> int | None:
        """Return the send time (ns) of the earliest fire in progress that is not stored, refused or blocked.

        Those that are ready are left out: each is woken at its send time (`Schedules.next_wake`).
        """
        refused, blocked = self.refusals.held, self.blocked
        # Asked once a second, in a burst of everything in its look-ahead: no call for each.
        send_times = [
            held.send_time if held.jitters else held.fire_time
            for held in self.unready.values()
            if held.sequence not in refused
            and held.sequence not in blocked
            and (held.flight is None or held.flight.fire is None or not held.flight.fire.stored_as)
        ]
        return min(send_times, default=None)

    def clock_stepped_back(self, by: int) -> None:
        """Keep all waits as long as they were although the wall clock shows `by` ns less than before."""
        for held in self.all_not_waiting():
            waits = held.flight is not None and held.flight.stage in (Stage.BACKING_OFF, Stage.BLOCKED, Stage.PURGING)
            if waits and held.wake != NO_WAKE:
                self.schedules.wake(held, held.wake - by)
        self.refusals.clock_stepped_back(by)
        self.next_question_at -= by
        self.purges.clock_stepped_back(by)
        self.in_flight.clock_stepped_back(by)
        self.catch_up.clock_stepped_back(by)
        for part in (self.expiry, self.deadlines):
            if part is not None:
                part.clock_stepped_back(by)


def is_lost(held: Held, ending: Ending) -> bool:
    """Return whether a schedule ended before a fire that its publisher expects.

    A TTL of its own that ends a schedule which has fired before was given to do that.
    """
    if ending is Ending.EXPIRED:
        return held.fire_time == held.first_fire()
    return ending in (Ending.MAX_AGE, Ending.LIMITS)


def has_ended(held: Held, now: int) -> bool:
    """Return whether a schedule's TTL has run out, and no fire that was due before is still to be sent.

    One that the server refuses, or that waits for the fire before, is given up then, as if the server itself removed
    the schedule.
    """
    if held.expires > now:
        return False
    flight = held.flight
    return held.only_expires if flight is None else flight.failing is not None or flight.is_blocked
