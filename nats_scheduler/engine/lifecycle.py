"""The schedules for which something is in progress: their stages, and their ends.

The rules:

- `Lifecycle.move` is the only function that changes a stage, and it asserts the table of `engine.flight`.
- `Lifecycle.end` is the only function that stops holding a schedule, and it reports why.

Cost: two dictionary entries for each schedule in progress.
"""

from collections.abc import Callable

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.contents import Contents
from nats_scheduler.engine.events import Ending, FiresDropped, FiresSkipped, ScheduleEnded, ScheduleLost
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.flight import IN_PROGRESS, Flight, Stage
from nats_scheduler.engine.held import NO_WAKE, Held
from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.engine.landed import Landed
from nats_scheduler.engine.ownership import Ownership
from nats_scheduler.engine.refusals import Refusals
from nats_scheduler.engine.roster import Roster
from nats_scheduler.message.subjects import is_literal_subject, subject_matches


class Lifecycle:
    """The stages of one stream's schedules."""

    def __init__(
        self,
        roster: Roster,
        ownership: Ownership,
        landed: Landed,
        emit: Callable[[Action], None],
        contents: Contents,
    ) -> None:
        self.roster = roster
        self.contents = contents
        """The bytes of what was read for fires, and what waits for room."""
        self.ownership = ownership
        self.landed = landed
        """What landed on the subjects of schedules, which is forgotten with them."""
        self.refusals = Refusals(roster)
        """The schedules whose fires the server refuses."""
        self.held_back: dict[int, Held] = {}
        """Those that are due and wait until their fire before is finished, by sequence (`engine.overlap`)."""
        self.aside: dict[int, Held] = {}
        """Those of other holders that are due, and those that are done and could not be purged, by sequence."""
        self._emit = emit
        self._active: dict[int, Held] = {}
        """Those whose next fire is in progress, by sequence."""
        self._unready: dict[int, Held] = {}
        """Those of them that are not ready, as most are: for instance reading, in flight, or backing off."""

    # -- changes -------------------------------------------------------------------------------------------------

    def move(self, held: Held, stage: Stage) -> None:
        """Move a schedule to another stage; a flight begins when it stops to wait, and another one when it is done."""
        flight = held.flight
        before = Stage.WAITING if flight is None else flight.stage
        assert stage in before.following, f"{held.subject} went from {before.value} to {stage.value}"
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
            held.flight = None if stage is Stage.WAITING else Flight(stage)

    def set_aside(self, held: Held, until: int | None) -> None:
        """Look at a schedule again at `until` (ns), or never, which is another holder's, or done and not purged."""
        self.aside[held.sequence] = held
        if until is not None:
            self.roster.wake(held, until)

    def end(self, held: Held, ending: Ending) -> None:
        """Hold a schedule no longer, and report why."""
        self.discard(held)
        self.roster.remove(held.subject)
        if self.ownership.is_ours(held):
            self._emit(Report(ScheduleEnded(held.subject, held.sequence, ending)))
            if is_lost(held, ending):
                self._emit(Report(ScheduleLost(held.subject, held.sequence, held.fire_time, ending)))

    def discard(self, held: Held) -> None:
        """Discard what is in progress for a schedule that ends or is replaced, and report the fire that is lost."""
        flight = held.flight
        if flight is not None and flight.failing is not None and self.ownership.is_ours(held):
            code, description, _since = flight.failing
            first = held.fire_time if flight.missed_since is None else flight.missed_since
            self._emit(Report(FiresDropped(held.subject, held.sequence, first, code, description)))
        elif flight is not None and flight.before is not None and self._is_lost_waiting(held, flight):
            count = max(held.count(held.fire_time - 1, flight.before.asked_at), 1)
            overlap = held.terms.policies.overlap
            self._emit(Report(FiresSkipped(held.subject, held.sequence, held.fire_time, count, overlap)))
        self._clear(held)
        self.landed.forget(held)
        self.contents.forget(held.sequence)

    def _is_lost_waiting(self, held: Held, flight: Flight) -> bool:
        """Return whether a fire that waited for the one before is not sent any more."""
        waited = flight.before is not None and flight.before.waited and flight.stage in IN_PROGRESS
        return waited and flight.stage is not Stage.IN_FLIGHT and self.ownership.is_ours(held)

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
        if self.ownership.neglected:
            self.ownership.excuse(held)

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

    def is_aside(self, held: Held) -> bool:
        """Return whether a schedule is another holder's and due, or done and could not be purged."""
        return held.sequence in self.aside

    def all_not_waiting(self) -> list[Held]:
        """Return the schedules that do more than wait for their time, those of other holders first."""
        return list({**self.aside, **self._active}.values())

    def failing(self) -> list[Held]:
        """Return our schedules whose fires the server refuses."""
        return [held for held in self.refusals.held.values() if self.ownership.is_ours(held)]

    def all_held_back(self) -> list[Held]:
        """Return our schedules whose fires wait until the one before is finished."""
        return [held for held in self.held_back.values() if self.ownership.is_ours(held)]

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
        """Return the send time (ns) of our earliest fire in progress that is not stored, refused or held back.

        Those that are ready are left out: each is woken at its send time (`Roster.next_wake`).
        """
        shards, refused, held_back = self.ownership.shards, self.refusals.held, self.held_back
        # Asked once a second, in a burst of everything in its look-ahead: no call for each.
        send_times = [
            held.send_time if held.jitters else held.fire_time
            for held in self._unready.values()
            if held.shard in shards
            and held.sequence not in refused
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


def is_lost(held: Held, ending: Ending) -> bool:
    """Return whether a schedule ended before a fire that its publisher expects.

    A TTL of its own that ends a schedule which has fired before was given to do that.
    """
    if ending is Ending.EXPIRED:
        return held.fire_time == held.first_fire()
    return ending in (Ending.MAX_AGE, Ending.LIMITS)


def is_failing(held: Held) -> bool:
    """Return whether the server refuses the fires of a schedule."""
    return held.flight is not None and held.flight.failing is not None


def has_ended(held: Held, now: int) -> bool:
    """Return whether a schedule's TTL has run out, and no fire that was due before is still to be sent.

    One that the server refuses, or that waits for the fire before, is given up then, as if the server itself removed
    the schedule.
    """
    if held.expires > now:
        return False
    return held.only_expires if held.flight is None else is_failing(held) or held.flight.is_held_back
