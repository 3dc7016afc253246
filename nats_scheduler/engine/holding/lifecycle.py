"""The schedules for which something is in progress: whose they are, their stages, their refusals, and their ends.

The rules:

- `Lifecycle.move` is the only function that changes a stage, and it raises `IllegalMoveError` for what the table of
  `engine.holding.flight` does not have.
- `Lifecycle.end` is the only function that stops holding a schedule, and it reports why.
- `Ownership` alone knows whether the stream is ours, `InFlight` how many fires are in flight, `Refusals` which are
  refused.

Cost: two dictionary entries for each schedule in progress.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import (
    Ending,
    FiresDropped,
    FiresSkipped,
    ScheduleEnded,
    ScheduleLost,
    SchedulesFailing,
    StillRefused,
)
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.firing.contents import Contents
from nats_scheduler.engine.holding.flight import (
    FIRST_BACK_OFF_NS,
    IN_PROGRESS,
    REFUSED_BACK_OFF_LIMIT_NS,
    Failing,
    Flight,
    Stage,
    Turn,
    wait_after,
)
from nats_scheduler.engine.holding.guard import Guard
from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.lifetimes import Lifetimes
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.engine.reading.landed import Landed
from nats_scheduler.engine.reading.progress import Progress
from nats_scheduler.message.subjects import is_literal_subject, subject_matches
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

# Whether this instance owns its stream, and what is noticed about the owner if it stands by.
#
# An owner may be alive and unable to fire. So it is noted here when a schedule came due and no fire of it was read
# back, and when our own user was denied what an owner has to do; `engine.ownership.owners` decides what follows.

UNFIRED_LIMIT_NS = 3 * SECOND
"""A standby looks at a schedule if its fire is not read back within this time (ns) after its send time."""


class Denied(NamedTuple):
    """The last thing that an owner has to do and that our user may not."""

    at: int
    reason: str


class Ownership:
    """Whether this instance fires for its stream."""

    def __init__(self, look_ahead: int, *, reads_all: bool) -> None:
        """Begin as the only owner; `reads_all` is False if the fires of other owners cannot be read back.

        A schedule is read at most `look_ahead` (ns) before its fire.
        """
        self.reads_all = reads_all
        self.is_owner = True
        """True if the schedules of the stream are ours to fire; set by `engine.ownership.takeover`."""
        self._standby_lag = look_ahead + UNFIRED_LIMIT_NS
        self.denied: Denied | None = None
        """The last denial to our user of something that an owner has to do."""
        self.unfired = 0
        """While standing by, the send time (ns) of a schedule that came due, is still stored, and of which no fire was
        read back; 0 if there is none."""
        self._unfired_sequence = 0
        """The sequence of that schedule: others may have the same send time."""
        self.last_fired = 0
        """The last send time (ns) of which a fire was read back."""
        self.able_since = 0
        """Since when (ns) this instance can fire: it owns the stream and has read all that is stored."""

    @property
    def lag(self) -> int:
        """How much later (ns) than the owner this instance looks at a schedule: a standby after the fire was read back.

        What it has not looked at yet comes first as soon as it is the owner.
        """
        return 0 if self.is_owner else self._standby_lag

    def may_be_stored(self, held: Held) -> bool:
        """Return whether another instance may have stored the next fire: it was due before this one could fire it."""
        return max(held.send_time, held.stored_at) <= self.able_since

    def deny(self, reason: str, now: int) -> None:
        """Note that our user may not do what the owner has to do."""
        if self.is_owner:
            self.denied = Denied(now, reason)

    def blame(self, held: Held) -> None:
        """Note that the owner has not fired a schedule that came due."""
        self.unfired, self._unfired_sequence = held.send_time, held.sequence

    def excuse(self, held: Held) -> None:
        """Discard the note that a schedule was not fired: it has advanced, or is not held any more."""
        if self._unfired_sequence == held.sequence:
            self.unfired = 0


# The schedules whose fires the server refuses at the moment, by reason, and which of them retries next.
#
# The rules:
#
# - Refusals with the same code are assumed to have the same reason and to end together: a stream that was full, a
#   missing permission. So for each reason one schedule, the *probe*, retries soon, and the others rest.
# - A refused fire that is stored in the end starts two others, so that all are back after some round trips; if the
#   reason persists for others, it costs no more attempts than that.
# - A probe that is refused again passes its turn on: one schedule with a mistake of its own delays no other.
# - A schedule that rests is retried now and then anyway, at most `MAX_RESTING_RETRIES_PER_SECOND` for each reason.
# - A refusal that concerns one subject at one moment (`OF_A_MOMENT`) is no reason that others share. Each such fire
#   is retried on its own, within `OWN_BACK_OFF_LIMIT_NS` unless there are very many.
#
# - How many schedules are failing is reported when that has changed, and each reason that persists now and then.
#
# Cost: two dictionary entries for each refused schedule, one attempt a second for each reason that persists.

PROBE_BACK_OFF_LIMIT_NS = 1 * SECOND
"""Longest back-off (ns) of the probe: *Live* promises that fires resume within 3 s."""

MAX_RESTING_RETRIES_PER_SECOND = 100
"""Most resting schedules that are retried in a second, for each reason."""

OF_A_MOMENT = frozenset({10063, 10071, 10163, 10164})
"""The server's codes for conditions of one subject, or of one message, that end within moments.

Another message is the last one on the subject (10071), as also a leader finds that is behind the node from which the
schedule was read; or is being stored there (10164), as the fire before is on a leader that has not applied it; or that
cannot be found out yet (10163). The leader has numbered the message as one before it led (10063).
All others last until an operator acts, and are the stream's or the account's: no room (10002, 10023, 10047, 10077), no
permission (403), an option that is off (10109, 10111, 10166); or they are the schedule's own for ever (400, 10054,
10097, 10165, 10190). That an identity is in process (10158) is no refusal: its outcome is unknown.
"""

OWN_BACK_OFF_LIMIT_NS = 500 * MILLISECOND
"""Longest back-off (ns) after a refusal of a moment."""

MAX_OWN_RETRIES_PER_SECOND = 500
"""Most schedules that are retried in a second after refusals of a moment, for each code."""

RETRIES_PER_STORED = 2
"""Schedules that retry for each fire that is stored: the number doubles, so 100,000 are back after 17 round trips."""

REMINDER_INTERVAL_NS = 300 * SECOND
"""A reason that persists is reported again after this time (ns)."""


@dataclass(slots=True)
class _Reason:
    """The schedules that are refused with one code."""

    reported_at: int
    is_shared: bool
    """True if one schedule retries for all; else each retries on its own."""
    members: dict[int, Held] = field(default_factory=dict)
    """By sequence; the one that waits longest is first."""
    probe: int = 0
    """The sequence of the schedule that retries for all."""
    tries_at: int = 0
    """The instant (ns) at which the probe retries, or did."""
    attempts: int = 0


class Refusals:
    """The refused schedules of one stream."""

    def __init__(self, roster: Roster, emit: Callable[[Action], None]) -> None:
        self._roster = roster
        self._emit = emit
        self._reported = 0
        """The number of failing schedules that was reported last."""
        self.held: dict[int, Held] = {}
        """The schedules whose fires are refused, by sequence."""
        self._codes: dict[int, int] = {}
        self._reasons: dict[int, _Reason] = {}

    def refused(self, held: Held, code: int, attempts: int, now: int) -> int:
        """Schedule the retry of a fire that was refused at each of its `attempts`; returns the longest wait (ns)."""
        sequence = held.sequence
        if self._codes.get(sequence, code) != code:
            self.discard(sequence)
        reason = self._reasons.get(code)
        if reason is None:
            reason = self._reasons[code] = _Reason(now, code not in OF_A_MOMENT)
        self.held[sequence], self._codes[sequence] = held, code
        reason.members.pop(sequence, None)
        reason.members[sequence] = held
        if not reason.is_shared:
            reason.probe = reason.probe or sequence
            wait = wait_after(attempts, OWN_BACK_OFF_LIMIT_NS)
            wait = max(wait, len(reason.members) * SECOND // MAX_OWN_RETRIES_PER_SECOND)
            self._roster.wake(held, now + wait)
            return wait
        rest = max(REFUSED_BACK_OFF_LIMIT_NS, len(reason.members) * SECOND // MAX_RESTING_RETRIES_PER_SECOND)
        self._roster.wake(held, now + rest)
        if reason.probe in (0, sequence):
            reason.attempts += 1
            wait = wait_after(reason.attempts, PROBE_BACK_OFF_LIMIT_NS)
            self._probe(reason, now + wait)
        return reason.tries_at - now if reason.probe == sequence else rest

    def stored(self, sequence: int, now: int) -> None:
        """Let others retry, since a fire that was refused is stored."""
        reason = self._reasons[self._codes[sequence]]
        self.discard(sequence)
        reason.attempts = 0
        for other in list(islice(reason.members, RETRIES_PER_STORED if reason.is_shared else 0)):
            reason.members[other] = held = reason.members.pop(other)
            self._roster.wake(held, now)

    def retry_soon(self, now: int) -> None:
        """Let the probe of each reason retry soon: the reason may have ended."""
        at = now + FIRST_BACK_OFF_NS  # a request for a change is seen before the change is made, and may come often
        for reason in self._reasons.values():
            reason.attempts = 0
            if reason.is_shared and reason.tries_at > at:
                reason.tries_at = at
                self._roster.wake(reason.members[reason.probe], at)

    def discard(self, sequence: int) -> None:
        """Discard a schedule; if it was the probe, the next one is."""
        del self.held[sequence]
        code = self._codes.pop(sequence)
        reason = self._reasons[code]
        del reason.members[sequence]
        if not reason.members:
            del self._reasons[code]
        elif reason.probe == sequence:
            self._probe(reason, reason.tries_at)

    def clock_stepped_back(self, by: int) -> None:
        """Keep the waits as long as they were although the wall clock shows `by` ns less than before."""
        for reason in self._reasons.values():
            reason.reported_at -= by
            reason.tries_at -= by

    def report(self, now: int) -> None:
        """Report what has changed by `now` (ns), and what lasts."""
        if len(self.held) != self._reported:
            self._reported = len(self.held)
            self._emit(Report(SchedulesFailing(self._reported)))
        for reason in self._reasons.values():
            if now - reason.reported_at >= REMINDER_INTERVAL_NS:
                reason.reported_at = now
                held = reason.members[reason.probe]
                assert held.flight is not None, "what is refused is in progress"
                assert held.flight.failing is not None, "and known to be refused"
                told = (*held.flight.failing, len(reason.members))
                self._emit(Report(StillRefused(held.subject, held.sequence, *told)))

    def reasons(self, most: int) -> list[tuple[int, Failing]]:
        """Return at most `most` schedules by sequence, those that are refused longest first, and why."""
        flights = ((sequence, held.flight) for sequence, held in islice(self.held.items(), most))
        return [(sequence, flight.failing) for sequence, flight in flights if flight is not None and flight.failing]

    def _probe(self, reason: _Reason, at: int) -> None:
        """Make the schedule that waits longest the probe, which retries at an instant (ns) if the reason is shared."""
        reason.probe, reason.tries_at = next(iter(reason.members)), at
        if reason.is_shared:
            self._roster.wake(reason.members[reason.probe], at)


# The number of fires in flight, the number that may follow, and whether there is a burst.
#
# The rule: no fire is published beyond the cap, whatever made it due: its time, an answer that arrived late, a retry.
# While a burst lasts, what can wait does: reports of what was stored, purges, removals.
#
# Cost: an entry for each fire; to conclude one a second time changes nothing.

MAX_IN_FLIGHT = 256
"""Most fires in flight at once: enough that server and sidecar need not wait for each other.

A cancel cannot stop a fire that is in flight: of 3,000 cancelled when they were due, 600 were stored after their
cancels, and with twice as many in flight 1,500; a burst takes hardly less time.
"""

BURST_IN_FLIGHT = 64
"""More fires in flight than this are a burst."""

BURST_LIMIT_NS = 30 * SECOND
"""A burst that lasts longer than this (ns) is the usual load: fires to a distant server, many each second."""

MAX_WAITING_IN_BURST = 200_000
"""If more than this waits, some of it is done although a burst lasts."""


class InFlight:
    """The fires of one stream that are in flight."""

    def __init__(self) -> None:
        self._fires: set[Fire] = set()
        self._burst_since: int | None = None

    @property
    def count(self) -> int:
        """The number of fires in flight."""
        return len(self._fires)

    @property
    def room(self) -> int:
        """The number of further fires that may be published; no more than 0 if the next have to wait for outcomes."""
        return MAX_IN_FLIGHT - len(self._fires)

    def begin(self, fire: Fire) -> None:
        """Count a fire that is handed out, or looked for."""
        self._fires.add(fire)

    def conclude(self, *fires: Fire) -> None:
        """Count these fires no longer: their outcomes are known."""
        self._fires.difference_update(fires)

    def is_burst(self, waiting: int, now: int) -> bool:
        """Return whether a burst keeps what waits, `waiting` pieces of it, from being done."""
        if len(self._fires) <= BURST_IN_FLIGHT:
            self._burst_since = None
            return False
        if self._burst_since is None:
            self._burst_since = now
        return waiting <= MAX_WAITING_IN_BURST and now - self._burst_since < BURST_LIMIT_NS

    def clock_stepped_back(self, by: int) -> None:
        """Keep a burst as long as it was although the wall clock shows `by` ns less than before."""
        if self._burst_since is not None:
            self._burst_since -= by


class IllegalMoveError(Exception):
    """Something happened to a schedule that the table of stages does not have: a mistake of this program."""


class Lifecycle:
    """The stages of one stream's schedules."""

    def __init__(
        self,
        roster: Roster,
        ownership: Ownership,
        lifetimes: Lifetimes,
        landed: Landed,
        contents: Contents,
        progress: Progress,
        emit: Callable[[Action], None],
        guard: Guard,
    ) -> None:
        """Begin with what all parts of the engine share; `emit` takes what is to be done."""
        self.roster = roster
        self.ownership = ownership
        self.lifetimes = lifetimes
        """The ends of schedules that the stream removes by itself."""
        self.landed = landed
        """The messages that landed on the subjects of schedules; discarded with their schedules."""
        self.contents = contents
        """The bytes of what was read for fires, and what waits for room."""
        self.progress = progress
        """The progress in reading the stream."""
        self.in_flight = InFlight()
        """The fires in flight, by their number."""
        self.emit = emit
        """Has something done, or reports it."""
        self.guard = guard
        """Runs what concerns one schedule."""
        self.refusals = Refusals(roster, emit)
        """The schedules whose fires the server refuses."""
        self.held_back: dict[int, Held] = {}
        """Those that are due and wait until their fire before is finished, by sequence (`engine.firing.overlap`)."""
        self.aside: dict[int, Held] = {}
        """Those that are due and left to the owner, and those that are done and could not be purged, by sequence."""
        self._active: dict[int, Held] = {}
        """Those whose next fire is in progress, by sequence."""
        self._unready: dict[int, Held] = {}
        """Those of them that are not ready, as most are: for instance reading, in flight, or backing off."""

    # -- changes -------------------------------------------------------------------------------------------------

    def move(self, held: Held, turn: Turn) -> None:
        """Move a schedule to the stage that follows what happens to it.

        A flight begins when it stops to wait, and another one when it is done.
        """
        flight, stage = held.flight, turn.following
        before = Stage.WAITING if flight is None else flight.stage
        if before not in turn.stages:
            raise IllegalMoveError(f"{turn.name} is not possible while it is {before.value}")
        self.roster.changed(held)
        if stage in IN_PROGRESS:
            if flight is None:
                flight = held.flight = Flight()
            self._active[held.sequence] = held
            if stage is Stage.READY:
                self._unready.pop(held.sequence, None)
            else:
                self._unready[held.sequence] = held
            flight.stage = stage
        elif stage is Stage.UNPURGEABLE:
            assert flight is not None, "it was purging before"
            flight.stage = stage
        else:
            self._clear(held)
            self.ownership.excuse(held)
            held.flight = None if stage is Stage.WAITING else Flight(stage)

    def set_aside(self, held: Held, until: int | None) -> None:
        """Look at a schedule again at `until` (ns), or never: it is left to the owner, or done and not purged."""
        self.aside[held.sequence] = held
        if until is not None:
            self.roster.wake(held, until - self.ownership.lag)

    def end(self, held: Held, ending: Ending) -> None:
        """Hold a schedule no longer, and report why."""
        self.discard(held)
        self.roster.remove(held.subject)
        if self.ownership.is_owner:
            self.emit(Report(ScheduleEnded(held.subject, held.sequence, ending)))
            if is_lost(held, ending):
                self.emit(Report(ScheduleLost(held.subject, held.sequence, held.fire_time, ending)))

    def discard(self, held: Held) -> None:
        """Discard what is in progress for a schedule that ends or is replaced, and report the fire that is lost."""
        flight = held.flight
        self._clear(held)
        self.landed.forget(held)
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
        self.landed.forget(held)
        self.contents.forget(held.sequence)
        self.ownership.unfired = 0
        self.roster.remove(held.subject)

    def _is_lost_waiting(self, held: Held, flight: Flight) -> bool:
        """Return whether a fire that waited for the one before is not sent any more."""
        waited = flight.before is not None and flight.before.waited and flight.stage in IN_PROGRESS
        return waited and flight.stage is not Stage.IN_FLIGHT and self.ownership.is_owner

    def _clear(self, held: Held) -> None:
        sequence = held.sequence
        if held.flight is not None:
            self.contents.leave(held.flight)
        self._active.pop(sequence, None)
        self._unready.pop(sequence, None)
        if sequence in self.refusals.held:
            self.refusals.discard(sequence)
        if sequence in self.held_back:
            del self.held_back[sequence]
        self.aside.pop(sequence, None)

    # -- questions -----------------------------------------------------------------------------------------------

    def in_stage(self, subject: str, sequence: int, stage: Stage) -> Held | None:
        """Return a schedule if it is still held and in this stage."""
        held = self.roster.exactly(subject, sequence)
        return held if held is not None and held.flight is not None and held.flight.stage is stage else None

    def awaiting(self, fire: Fire) -> Held | None:
        """Return the schedule that waits for the outcome of this very fire."""
        held = self._active.get(fire.sequence)
        if held is None or held.flight is None or held.flight.fire is not fire:
            return None
        return held if held.flight.stage is Stage.IN_FLIGHT else None

    def active(self, sequence: int) -> Held | None:
        """Return the schedule with this sequence if its next fire is in progress."""
        return self._active.get(sequence)

    def all_active(self) -> list[Held]:
        """Return the schedules whose next fire is in progress."""
        return list(self._active.values())

    def all_not_waiting(self) -> list[Held]:
        """Return the schedules that do more than wait for their time, those that are left to the owner first."""
        return list({**self.aside, **self._active}.values())

    def failing(self) -> list[Held]:
        """Return the schedules whose fires the server refuses."""
        return list(self.refusals.held.values())

    def all_held_back(self) -> list[Held]:
        """Return the schedules whose fires wait until the one before is finished."""
        return list(self.held_back.values())

    def earliest_to_send(self) -> int | None:
        """Return the earliest send time (ns) in progress, by whichever instance, of what is not held back."""
        return min(
            (held.send_time for held in self.all_not_waiting() if held.sequence not in self.held_back), default=None
        )

    def active_in(self, request: RemovalRequested) -> list[Held]:
        """Return the schedules in progress whose messages a request may remove."""
        if request.sequence is not None:
            found = [self.active(request.sequence)]
        elif request.filter is None:
            found = [*self.all_active()]
        elif is_literal_subject(request.filter):
            found = [self.roster.on(request.filter)]
        else:
            return [held for held in self.all_active() if subject_matches(held.subject, request.filter)]
        return [held for held in found if held is not None]

    def earliest_unsettled(self) -> int | None:
        """Return the send time (ns) of the earliest fire in progress that is not stored, refused or held back.

        Those that are ready are left out: each is woken at its send time (`Roster.next_wake`).
        """
        refused, held_back = self.refusals.held, self.held_back
        # Asked once a second, in a burst of everything in its look-ahead: no call for each.
        send_times = [
            held.send_time if held.jitters else held.fire_time
            for held in self._unready.values()
            if held.sequence not in refused
            and held.sequence not in held_back
            and (held.flight is None or held.flight.fire is None or not held.flight.fire.stored_as)
        ]
        return min(send_times, default=None)

    def clock_stepped_back(self, by: int) -> None:
        """Keep the back-offs as long as they were although the wall clock shows `by` ns less than before."""
        for held in self.all_not_waiting():
            waits = held.flight is not None and held.flight.stage in (Stage.BACKING_OFF, Stage.HELD_BACK, Stage.PURGING)
            if waits and held.wake != NO_WAKE:
                self.roster.wake(held, held.wake - by)
        self.refusals.clock_stepped_back(by)


class Part:
    """A part of the engine of one stream, and what all parts share."""

    def __init__(self, lifecycle: Lifecycle) -> None:
        self._lifecycle = lifecycle
        self._roster = lifecycle.roster
        self._ownership = lifecycle.ownership
        self._lifetimes = lifecycle.lifetimes
        self._landed = lifecycle.landed
        self._contents = lifecycle.contents
        self._progress = lifecycle.progress
        self._in_flight = lifecycle.in_flight
        self._refusals = lifecycle.refusals
        self._emit = lifecycle.emit
        self._guard = lifecycle.guard


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
    return held.only_expires if flight is None else flight.failing is not None or flight.is_held_back
