"""What a takeover of a stream continues with: the checkpoint of the owner before, and what was read while standing by.

A standby reads the whole stream and holds all of its schedules, so that it becomes the owner without reading. Its
schedules only wait: they advance with the generated messages that are read back, and fire nothing.

The rules:

- An owner that is replaced stops at once: no fire begins, and what is in flight is concluded and not repeated.
- A new owner continues where the stream and the checkpoint of the one before say; what is overdue fires at once. Two
  owners at the same time do the same work twice, and the server keeps one of each fire.
- Refused fires for which a checkpoint has no room bound its instant: they would be lost otherwise.
- The schedules of a calendar that is not known wait, and hold back nothing: a checkpoint names the calendar, and up to
  when they are settled.
- A checkpoint counts in send times: each fire that was to be sent by its instant is settled. A fire between its fire
  time and its send time is therefore not, and it holds back none of the others. Every instance that reads the
  checkpoint computes the same send times.
- A schedule that sends each missed fire (`X-Missed: all`) must know where its backlog begins: with the next fire that
  is not settled. A checkpoint names that fire if it is refused. Where nothing shows which fires are stored, there is no
  backlog (`Held.is_known`).

A schedule that only waits is woken at the same instant in each instance, and a standby looks at it later
(`Ownership.lag`). So a change of the owner concerns only schedules whose time has come, and is done a slice at a time.

Schedules, rejected ones and old versions are reported and purged late by a new owner: the one before may have done it
already, and doing it twice is harmless. Each step does one slice, and none while many outcomes are outstanding, so that
due fires need not wait.

Cost: one check of each schedule in progress when the owner changes, and some microseconds for each of them; one of each
that is reported or purged late.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import nsmallest
from itertools import chain, islice

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import Ending, ScheduleAccepted, ScheduleEndsByAge, ScheduleEndsEarly
from nats_scheduler.engine.firing import advancing, purging, timing
from nats_scheduler.engine.firing.silence import clock_skipped
from nats_scheduler.engine.holding.flight import Stage
from nats_scheduler.engine.holding.held import NO_EXPIRY, Held, NoFire
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import Checkpoint, OwnershipChanged, RemovalRequested, Version
from nats_scheduler.message.policies import Kept
from nats_scheduler.message.stored import StoredMessage

MAX_UNSETTLED = 2_048
"""Most exceptions that a checkpoint names, so that they fit into one value of the registry.

Refused fires come first, by their times. Fires that wait for the one before follow, and then schedules that were
rejected when they were due; those of both for which there is no room count as settled.
"""

OWED_NUMBERS = 2
"""A schedule of which the checkpoint names a fire time as well takes the room of this number of further exceptions."""

MAX_CALENDARS_NAMED = 16
"""Most unknown calendars that a checkpoint names; the schedules of others count as settled."""

MAX_TAKEN_OVER_PER_STEP = 1_024
"""Schedules in progress that are taken over, or left to another owner, in one step."""

MAX_SUPERSEDED = 10_000
"""Most old versions that a standby notes, in case the owner does not purge them."""

MAX_UNREPORTED = 10_000
"""Most schedules that a standby notes, in case the stream had no owner when they were stored."""

MAX_CHECKED_PER_STEP = 256
"""Subjects that are checked in one step: each may lead to a log line or a request."""

MAX_OUTSTANDING = 2_048
"""While more outcomes of fires and purges than this are outstanding, the backlog waits."""


class Takeover:
    """Changes of the owner of one stream, and the checkpoint at which its schedules begin."""

    def __init__(self, state: EngineState) -> None:
        self._state = state
        self._owner_since: int | None = None
        """Since when (ns) this instance is the owner; None if it is not, or has been from the beginning."""
        self._calendars: dict[str, int] = {}
        """Calendars that are not known, and up to when (ns) the schedules that name them are settled."""
        self._due_without_calendar: dict[int, Held] = {}
        """By sequence, schedules that wait for their calendars and may be due earlier than what those settle."""
        self.changing: deque[Held] = deque()
        """Schedules that were in progress when the owner changed."""
        self._earliest_changing: int | None = None
        """The earliest send time (ns) of the schedules in `changing`."""
        self._accepted: dict[str, int] = {}
        """Schedules that are to be reported if this instance becomes the owner: sequences by subject."""
        self.has_reported_age = False
        """True if a schedule was reported that the `max_age` of the stream ends: one is, not each."""
        self._superseded: dict[str, tuple[int, Version]] = {}
        """Old versions that are to be purged then, by subject."""
        self._superseded_at: dict[int, str] = {}
        """The subjects of those, by the sequences of the versions that are known."""
        self.left: Iterator[None] | None = None
        """The work of reports and purges that is left; None if there is none."""

    @property
    def first_not_settled(self) -> int:
        """The first fire time (ns) that the owner before cannot have settled."""
        return self._state.settled.through + 1

    def begin(self, held: Held) -> None:
        """Skip the fires that the owner before has settled, then wait for the next one."""
        if held.fire_time >= self.first_not_settled or not self.pass_over(held):
            timing.await_due(self._state, held)

    def pass_over(self, held: Held) -> bool:
        """Advance past the fires that the owner before has settled; returns whether there were any."""
        settled = self._state.settled
        through = settled.through
        if self._is_unknown_backlog(held):
            self._state.end(held, Ending.REPLACED)
            return True
        if _sends_each(held):
            self._begin_backlog(held, settled)
        self._report_dropped(held, settled)
        if settled.calendars:
            through = min(through, settled.through_of(held.calendars))
        if held.fire_time > through or held.send_time > through:
            return False
        if not _had_read(settled, held) or held.sequence in settled.unsettled:
            return False
        if held.repeats and held.no_fire is NoFire.EXCEPTED:
            return False  # it waits for an edit, or its end, and not for the fire that is settled
        if not held.repeats:
            purging.purge(self._state, held)
        else:
            if held.is_to_other_stream:  # nothing shows which of those fires are stored
                held.previous_fire, held.previous_sequence, held.previous_stored_at, held.dropped = None, 0, 0, 0
            advancing.advance(self._state, held, held.next_to_send(through))
        return True

    def _is_unknown_backlog(self, held: Held) -> bool:
        """Return whether a version was replaced before this instance read it, and nothing shows what is owed of it."""
        replaced_at = held.replaced_at
        return replaced_at is not None and self._state.ownership.is_owner and not self._state.knows_settled(replaced_at)

    def _begin_backlog(self, held: Held, settled: Checkpoint) -> None:
        """Note whether all fires that came due from the next one on are owed, and skip those that are not.

        It is known from a checkpoint, unless that only says that something of the schedule is not settled. Otherwise it
        is known if what came due can be seen: in the stream, where everything stored is read, or here, if this instance
        was the owner then.
        """
        sequence = held.sequence
        had_read = _had_read(settled, held)
        owed = settled.owed.get(sequence) if had_read else None
        if owed is not None and held.is_fire(owed):
            held.fire_time = max(held.fire_time, owed)
            is_known = True
        elif settled.through >= 0 and not (had_read and sequence in settled.unsettled):
            is_known = True
        elif self._state.ownership.reads_all and not held.is_to_other_stream:
            since = self._state.running_since
            is_known = held.previous_fire is not None or (since is not None and held.send_time >= since)
        else:
            since = self._owner_since
            is_known = since is not None and max(held.send_time, held.previous_stored_at) >= since
        held.is_known = is_known

    def _report_dropped(self, held: Held, settled: Checkpoint) -> None:
        """Report what the owner before was to drop."""
        if held.unreported is not None and self._state.ownership.is_owner:
            advancing.took_over(self._state, held, settled.through if _had_read(settled, held) else -1)

    def await_calendar(self, name: str, through: int | None) -> None:
        """Note that a calendar is not known: the schedules that name it are settled up to `through` (ns) only.

        With None, as far as the owner before had settled them; what that is a standby learns when it takes over.
        """
        if name not in self._calendars:
            earlier = self._state.settled.through_of((name,)) if self._state.ownership.is_owner else NO_EXPIRY
            self._calendars[name] = earlier if through is None else through

    def awaits(self, calendar: str) -> bool:
        """Return whether it is noted that a calendar is not known."""
        return calendar in self._calendars

    def waits_for_calendar(self, held: Held, name: str) -> None:
        """Have checkpoints name a schedule whose fire is due earlier than what is settled of the calendar it awaits.

        Its time was past when it was stored.
        """
        if held.send_time <= self._calendars[name]:
            self._due_without_calendar[held.sequence] = held

    def calendar_found(self, name: str) -> None:
        """Note that a calendar is known, and what is due is in progress."""
        self._calendars.pop(name, None)

    def _unreported(self, subject: str, sequence: int) -> Held | None:
        """Return a schedule if it is still held and the owner before had not read it."""
        held = self._state.schedules.exactly(subject, sequence)
        return None if held is None or _had_read(self._state.settled, held) else held

    def owner_changed(self, change: OwnershipChanged, now: int) -> bool:
        """Fire for the stream from now on, or leave it to another owner; returns whether that is new."""
        was_owner = self._state.ownership.is_owner
        if change.checkpoint is not None:
            self._state.settled = change.checkpoint
        if change.is_owner == was_owner:
            return False
        self._owner_since = now if change.is_owner else None
        self._state.ownership.begin(is_owner=change.is_owner)
        if change.is_owner:
            self._state.ownership.able_since = now
            purging.take_over(self._state)
            self._state.proposals.took_over()
            for name, through in self._calendars.items():
                self._calendars[name] = min(through, self._state.settled.through_of((name,)))
        self.changing = deque(self._state.all_not_waiting())
        self._earliest_changing = min((held.send_time for held in self.changing), default=None)
        return True

    def go_on(self) -> bool:
        """Take over, or leave, some schedules that were in progress when the owner changed; return whether more are."""
        if not self.changing:
            return False
        some = (self.changing.popleft() for _ in range(min(len(self.changing), MAX_TAKEN_OVER_PER_STEP)))
        self._state.guard.each((held for held in some if self._state.schedules.is_held(held)), self._go_on_with)
        if not self.changing:
            self._earliest_changing = None
        return bool(self.changing)

    def _go_on_with(self, held: Held) -> None:
        if self._state.ownership.is_owner:
            self._take_over(held)
        else:
            timing.leave(self._state, held)

    def checkpoint(self, now: int, last_read: int, rejected: Iterable[int], last: StoredMessage | None) -> Checkpoint:
        """Return how far the schedules are settled; the sequences of `rejected` ones are exceptions.

        A checkpoint counts in send times. No schedule that waits is woken after its send time, so the next wake bounds
        the send times of all that wait.
        `last` is the message with the highest sequence that was read: no held schedule has a higher one.
        """
        room = MAX_UNSETTLED
        failing = nsmallest(room + 1, list(self._state.refusals.held.values()), key=lambda held: held.send_time)
        named, owed, unnamed = _named(failing, room)
        in_progress = self._state.earliest_unsettled(), self._state.catch_up.earliest(), self._earliest_changing
        bounds = (*in_progress, self._state.schedules.next_wake(), unnamed)
        through = min([now, *(instant - 1 for instant in bounds if instant is not None)])
        left = room - len(named) - OWED_NUMBERS * len(owed) if unnamed is None else 0
        blocked = nsmallest(left, list(self._state.blocked.values()), key=lambda held: held.send_time)
        more = islice(chain((held.sequence for held in blocked), self._overdue_without_calendar(), rejected), left)
        stored_by = 0 if last is None else last.stored_at
        unsettled = frozenset(chain(named, more))
        calendars = {name: min(at, through) for name, at in nsmallest(MAX_CALENDARS_NAMED, self._calendars.items())}
        return Checkpoint(through, last_read, unsettled, stored_by, owed, calendars)

    def _overdue_without_calendar(self) -> list[int]:
        """Return the sequences of the schedules that wait for calendars, and would count as settled with these."""
        waiting = self._due_without_calendar
        for held in list(waiting.values()):
            settled = max((self._calendars.get(name, -1) for name in held.calendars), default=-1)
            is_waiting = self._state.schedules.on(held.subject) is held and held.no_fire is NoFire.NO_CALENDAR
            if not is_waiting or held.send_time > settled:
                del waiting[held.sequence]
        return list(waiting)

    def _take_over(self, held: Held) -> None:
        flight = held.flight
        self._report_dropped(held, self._state.settled)
        if flight is not None and flight.stage in (Stage.DONE_BY_OWNER, Stage.UNPURGEABLE):
            purging.purge(self._state, held, flight.ending)
            return
        timing.leave(self._state, held)  # discards what was built before another instance was the owner
        if held.flight is None or held.flight.stage is Stage.FETCHING:
            self.pass_over(held)

    # -- what is reported and purged late --------------------------------------------------------------------------

    def accepted(self, held: Held) -> None:
        """Report a schedule that is held: at once, or when this instance becomes the owner."""
        is_reported = self.accepted_row(held.subject, held.sequence, held.fire_time)
        if is_reported:
            clock_skipped(self._state, held, held.stored_at)
        ending = self._state.lifetimes.early(held) if is_reported else None
        if ending is not None:
            ends = self._state.lifetimes.ends(held)
            self._state.emit(Report(ScheduleEndsEarly(held.subject, held.sequence, held.fire_time, ends, ending)))
        elif is_reported and not self.has_reported_age and self._state.lifetimes.cuts_off(held):
            self.has_reported_age = True
            self._state.emit(Report(ScheduleEndsByAge(held.subject, held.sequence, self._state.lifetimes.ends(held))))

    def accepted_row(self, subject: str, sequence: int, fire_time: int) -> bool:
        """Report a schedule that nothing ends before its fire time (ns); returns whether it was reported at once."""
        if self._state.ownership.is_owner:
            self._state.emit(Report(ScheduleAccepted(subject, sequence, fire_time)))
            return True
        if len(self._accepted) >= MAX_UNREPORTED:
            del self._accepted[next(iter(self._accepted))]
        self._accepted[subject] = sequence
        return False

    def superseded(self, subject: str, through: int, known: Version, most: int | None) -> None:
        """Note that versions up to `through` are to be purged, `known` among them; of at most `most` subjects."""
        if (before := self._superseded.get(subject)) is not None:
            self._superseded_at.pop(before[1].sequence, None)
            through = max(through, before[0])
        if most is not None and len(self._superseded) >= most:
            self._discard(next(iter(self._superseded)))
        self._superseded[subject] = through, known
        self._superseded_at[known.sequence] = subject

    def noted(self) -> dict[str, tuple[int, Version]]:
        """Return the old versions that are noted, by subject, and through which sequence they are to be purged."""
        return dict(self._superseded)

    def removal_requested(self, request: RemovalRequested) -> None:
        """Discard the old versions noted on a subject if the owner asked for their removal."""
        wanted = request.filter
        if request.sequence is not None:
            wanted = self._superseded_at.get(request.sequence)
        if wanted is not None and wanted in self._superseded and not self._state.ownership.is_owner:
            self._discard(wanted)

    def _discard(self, subject: str) -> tuple[int, Version]:
        through, known = self._superseded.pop(subject)
        self._superseded_at.pop(known.sequence, None)
        return through, known

    def report_late(self) -> None:
        """Report what is held and rejected and purge old versions, from the next step on: nobody else may have."""
        self._state.inactive.report_misnamed()
        if self._accepted or self._state.inactive.rejected or self._superseded or self._state.purges.requested_by_owner:
            purges = self._purge_superseded(), self._purge_again()
            self.left = chain(self.left or (), self._report_accepted(), self._report_rejected(), *purges)

    def work(self, outstanding: int) -> bool:
        """Do one slice of what is left; returns whether to continue at once.

        Nothing is done while too many fires and purges are `outstanding`.
        """
        if self.left is None or outstanding > MAX_OUTSTANDING:
            return False  # an outcome will call the engine again
        is_more = sum(1 for _ in islice(self.left, MAX_CHECKED_PER_STEP)) == MAX_CHECKED_PER_STEP
        if not is_more:
            self.left = None
        return is_more

    def _report_accepted(self) -> Iterator[None]:
        for subject in list(self._accepted):
            if subject in self._accepted and self._state.ownership.is_owner:
                held = self._unreported(subject, self._accepted.pop(subject))
                if held is not None:
                    self._state.guard.each((held,), self.accepted)
            yield

    def _report_rejected(self) -> Iterator[None]:
        for subject, known in list(self._state.inactive.rejected.items()):
            if self._state.inactive.rejected.get(subject) is known and self._state.ownership.is_owner:
                self._state.inactive.report(known)
            yield

    def _purge_superseded(self) -> Iterator[None]:
        for subject in list(self._superseded):
            if subject in self._superseded and self._state.ownership.is_owner:
                self._state.purges.enqueue_versions(subject, *self._discard(subject))
            yield

    def _purge_again(self) -> Iterator[None]:
        """Repeat the recent purge requests of the owner before, whose answers may not have been received."""
        requested = self._state.purges.requested_by_owner
        while requested and self._state.ownership.is_owner:
            self._state.purges.enqueue_versions(*requested.popleft())
            yield


def _named(failing: Iterable[Held], room: int) -> tuple[list[int], dict[int, int], int | None]:
    """Return which of the failing schedules a checkpoint has room to name, and which fire times with them.

    The third value is the send time (ns) of the first that it does not name, None if it names all.
    """
    named: list[int] = []
    owed: dict[int, int] = {}
    for held in failing:
        room -= 1 + OWED_NUMBERS * _sends_each(held)
        if room < 0:
            return named, owed, held.send_time
        named.append(held.sequence)
        if _sends_each(held):
            owed[held.sequence] = held.fire_time
    return named, owed, None


def _sends_each(held: Held) -> bool:
    return held.terms.policies.missed.kept is Kept.ALL


def _had_read(settled: Checkpoint, held: Held) -> bool:
    """Return whether the writer of a checkpoint had read this schedule, not one of an earlier stream of that name."""
    is_later = settled.stored_by is not None and held.stored_at > settled.stored_by
    return held.sequence <= settled.sequence and not is_later
