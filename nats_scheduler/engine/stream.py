"""The engine of one stream: inputs in, actions out, in one synchronous step.

It opens no socket, reads no clock and never waits: the shell passes the time and what happened, and carries out the
actions. The same inputs at the same times always give the same actions, so a seed can be replayed.

What it relies on:

- the last message on a subject is its schedule, and there is none if that message is something else, except for what
  other schedules generated, and cancels, which leave it alive (`engine.reading.landed`);
- nothing fires before everything stored so far has been read (`CaughtUp`), since the stream says which fires happened;
- a fire touches only the schedule, by subject and sequence, that it came from.

Its parts, in the order in which a schedule meets them: `engine.reading.intake` reads it, `engine.holding.roster`
holds it, `engine.firing.course` brings it to its fire, `engine.firing.sending` sends that, `engine.firing.outcomes`
takes the outcome, `engine.removing.purges` purges it. `engine.holding.lifecycle` has what they share.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import assert_never

from nats_scheduler.engine.actions import Action, Report, WakeAt
from nats_scheduler.engine.events import StreamReady
from nats_scheduler.engine.fire import (
    AwaitProposals,
    CheckFinished,
    CompareBodies,
    LookForFire,
    ReadContent,
    ReadDuplicate,
)
from nats_scheduler.engine.firing.building import ServerLimits
from nats_scheduler.engine.firing.calendars import Calendars
from nats_scheduler.engine.firing.contents import ContentMemory, Contents
from nats_scheduler.engine.firing.course import Course
from nats_scheduler.engine.firing.done import Deadlines
from nats_scheduler.engine.firing.outcomes import Outcomes
from nats_scheduler.engine.holding.flight import Failing
from nats_scheduler.engine.holding.guard import Guard, described, fire_of
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifecycle import BURST_IN_FLIGHT, Lifecycle, Ownership, has_ended
from nats_scheduler.engine.holding.lifetimes import Lifetimes
from nats_scheduler.engine.holding.roster import Roster
from nats_scheduler.engine.holding.silence import tried_again
from nats_scheduler.engine.holding.table import Table
from nats_scheduler.engine.inputs import (
    NOT_PERMITTED,
    BodiesCompared,
    CalendarsRead,
    CaughtUp,
    Checkpoint,
    ContactLost,
    ContentRead,
    DrainRequested,
    DuplicateRead,
    ExpiryConcluded,
    FinishAnswer,
    FinishChecked,
    FireLookedFor,
    FiresStored,
    HistoryRead,
    Input,
    MessagesRead,
    OwnershipChanged,
    ProposalsApplied,
    PublishConcluded,
    PurgeConcluded,
    Refused,
    RemovalRequested,
    SchedulesGone,
    SchedulesPurged,
    ServerLimited,
    StreamChanged,
    Unanswered,
    Unknown,
)
from nats_scheduler.engine.ownership.takeover import Takeover
from nats_scheduler.engine.reading.admission import Admission, Places
from nats_scheduler.engine.reading.inactive import Inactive
from nats_scheduler.engine.reading.intake import Intake
from nats_scheduler.engine.reading.landed import Landed, Moves
from nats_scheduler.engine.reading.progress import Progress
from nats_scheduler.engine.reading.replaced import OfServer, Replacements
from nats_scheduler.engine.removing.expiry import Expiry
from nats_scheduler.engine.removing.purges import Purges
from nats_scheduler.engine.restart import Restart
from nats_scheduler.engine.views.figures import Figures, Visit
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.reader import MessageReader
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND

MAX_WAKES_PER_STEP = 128
"""The most schedules that one step looks at: answers are received between two steps, also during a burst."""

WAKES_PER_DECISION = 8
"""A schedule whose policies decide about a due fire counts for this many others: each decision searches fire times."""

MIN_CLOCK_STEP_NS = 1 * SECOND
"""If a wall clock goes back by less, nothing is done about it: no back-off grows by more than that."""


class StreamEngine:
    """The schedules of one stream, and what to do about them next."""

    def __init__(
        self,
        rules: StreamRules,
        dialects: Iterable[Dialect],
        limits: ServerLimits,
        *,
        removes_expired: bool = False,
        reads_all: bool = True,
        memory: ContentMemory | None = None,
        notify_named: Callable[[], object] = lambda: None,
        is_native: bool = False,
        table: Table | None = None,
    ) -> None:
        """Begin with nothing; `removes_expired` if the server does not act on TTLs, and the stream asks for them.

        `reads_all` is False if messages may be gone, or under others, before they are read. `memory` is shared by the
        engines of a process, None if there is only one. `notify_named` is called when a schedule names a calendar that
        none has named since the beginning. `is_native` if the server itself fires the headers of ADR-51. The schedules
        are rows of `table`, which is in memory if none is given.
        """
        self._reads = rules, tuple(dialects)
        reader = MessageReader(*self._reads)
        self._rows_reader: MessageReader | None = None
        """The reader of views, which may be in another thread: made with the first of them."""
        self._actions: list[Action] = []
        moves = Moves(moves_all=rules.moves_subjects)
        self._roster = Roster(reader.definition_of, table)
        self.ownership = Ownership(limits.longest_ahead, reads_all=reads_all)
        self.lifetimes = Lifetimes(rules, removes_expired=removes_expired, keeps_all=reads_all)
        self.landed = Landed(self._roster, rules.subjects, moves)
        self.contents = Contents(ContentMemory() if memory is None else memory)
        self._progress = Progress(reads_all=reads_all, moves=moves)
        self._guard = Guard(self._reject_failed)
        self._lifecycle = lifecycle = Lifecycle(
            self._roster,
            self.ownership,
            self.lifetimes,
            self.landed,
            self.contents,
            self._progress,
            self._emit,
            self._guard,
        )
        self.in_flight = lifecycle.in_flight
        self._purges = Purges(lifecycle, may_return=not limits.guard, rolls_up=rules.rolls_up_by_purge)
        self._course = Course(lifecycle, self._purges, rules, limits)
        self._expiry = Expiry(reader.dialects, lifecycle) if removes_expired else None
        self._deadlines = Deadlines(lifecycle, rules)
        self._outcomes = Outcomes(lifecycle, self._course, self._purges, self._expiry, self._deadlines, limits)
        self.inactive = Inactive(lifecycle)
        self._takeover = Takeover(lifecycle, self._course, self._purges, self.inactive)
        self.calendars = Calendars(lifecycle, self._course, self._purges, self._takeover, notify_named)
        self._places = Places(self._roster, rules.restrictions)
        self.replacements = Replacements(lifecycle, debounces=rules.debounces)
        self.of_server = OfServer(self.replacements, rules.max_age) if is_native else None
        """What is known of the schedules that the server itself fires, None if it fires none."""
        self.admission = Admission(
            lifecycle,
            self._course,
            self._purges,
            self._takeover,
            self.inactive,
            self.calendars,
            self._places,
            self.replacements,
            reader.dialects,
        )
        self._intake = Intake(
            reader,
            lifecycle,
            self._course,
            self._outcomes,
            self._purges,
            self.admission,
            self.inactive,
            self.replacements,
            self.of_server,
            self._expiry,
        )
        self.restart = Restart(
            lifecycle,
            self._outcomes,
            self._purges,
            self._takeover,
            self.inactive,
            self.replacements,
            self._deadlines,
            self.calendars,
            rules,
            removes_expired=removes_expired,
        )
        self._now = 0
        self.steps = 0
        """The number of steps that were made: nothing that is known of the stream changes between two."""

    # -- for the shell -------------------------------------------------------------------------------------------

    def step(self, now: int, inputs: Iterable[Input] = ()) -> list[Action]:
        """Take what happened up to `now` (ns since the Unix epoch) and return what to do, in order."""
        if now < self._now - MIN_CLOCK_STEP_NS:
            self._clock_stepped_back(self._now - now)
        self._now = now
        self._roster.comes_to(now)
        self.contents.comes_to(now)
        self.steps += 1
        for given in inputs:
            try:
                self._take(given, now)
            except Exception as error:  # a mistake of ours: see `engine.holding.guard`
                self._guard.failed(given, error)
        is_place_left = self._places.is_limited and self.admission.fill_places(now)
        self._course.read_what_has_room()
        if self._progress.is_open:
            self._wake(now)
        if self._do_what_waited(now) or is_place_left:
            self._emit(WakeAt(now))
        if self._expiry is not None:
            self._expiry.report()
        self._roster.settle(self._lifecycle.aside)
        actions, self._actions = self._actions, []
        return [*self._course.firing.hand_out(), *actions]

    @property
    def is_idle(self) -> bool:
        """True if no fire, no purge and no removal awaits its conclusion."""
        return not self._outstanding and self._outcomes.is_idle and not (self._expiry and self._expiry.in_flight)

    @property
    def has_unknown(self) -> bool:
        """True if a fire was sent of which nobody knows the outcome."""
        return self._outcomes.has_unknown

    @property
    def is_live(self) -> bool:
        """True if everything stored has been read, so that what is due fires."""
        return self._progress.is_live

    @property
    def is_troubled(self) -> bool:
        """True if the server denied or refuses us anything, or the owner seems to fire nothing."""
        ownership = self.ownership
        return ownership.denied is not None or bool(self._lifecycle.refusals.held) or ownership.unfired > 0

    @property
    def urgency(self) -> tuple[int, int]:
        """The rank of the stream by its next fire: the smallest is the most urgent. Checks all that is in progress."""
        send_time = self._lifecycle.earliest_to_send()
        if send_time is not None:
            return 0, send_time  # within the look-ahead, or overdue
        wake = self._roster.next_wake()
        return (2, 0) if wake is None else (1, wake)

    @property
    def failing_count(self) -> int:
        """The number of schedules with a fire that the server refuses at the moment."""
        return len(self._lifecycle.refusals.held)

    @property
    def oversized(self) -> int:
        """The number of attempts that were not sent, because the fire is larger than what the server takes."""
        return self._course.firing.oversized

    def failing(self, most: int) -> list[tuple[int, Failing]]:
        """Return at most `most` of them by sequence, those that fail longest first, and why."""
        return self._lifecycle.refusals.reasons(most)

    @property
    def fires_stored(self) -> int:
        """The number of fires that were acknowledged as stored."""
        return self._outcomes.stored

    @property
    def last_read(self) -> int:
        """The highest stream sequence read so far."""
        return self._progress.last_read

    @property
    def last_message(self) -> StoredMessage | None:
        """The message with the highest sequence that was read."""
        return self._progress.last_message

    @property
    def history_through(self) -> int:
        """The sequence up to which buried messages were read, if they are not read with the others."""
        return self._intake.history_through

    @property
    def followed_through(self) -> int:
        """The sequence after which another contact is to go on, 0 for the beginning."""
        return self.complete_through if self._progress.reads_all else self._progress.read_through

    @property
    def complete_through(self) -> int:
        """The sequence up to which everything was read: later messages may have been read before earlier ones."""
        return self._progress.read_through if self._progress.is_behind else self._progress.last_read

    @property
    def held(self) -> Roster:
        """The schedules held."""
        return self._roster

    def view(self, fired_by: FiredBy = FiredBy.SIDECAR) -> EngineView:
        """Return a read-only view of what is held; `fired_by` says who fires it."""
        if self._rows_reader is None:
            self._rows_reader = MessageReader(*self._reads)
        return EngineView(self._roster, self.lifetimes, self.inactive, fired_by, self._rows_reader.definition_of)

    def figures(self, now: int) -> Generator[None, None, Figures]:
        """Find the figures for the operator at `now` (ns); the work may be done in another thread."""
        return Visit(self._lifecycle, self._purges, self.inactive, now).run()

    def checkpoint(self, now: int) -> Checkpoint:
        """Return how far everything is settled, for a later owner.

        What cannot be settled at the moment is named, so that it does not hold back the rest.
        """
        rejected = self.admission.settles_nothing_of()
        return self._takeover.checkpoint(now, self.complete_through, rejected, self.last_message)

    # -- inputs --------------------------------------------------------------------------------------------------

    def _take(self, given: Input, now: int) -> None:  # noqa: C901 - one branch for each input
        match given:
            case FiresStored():
                self._outcomes.were_stored(given, now)
            case MessagesRead():
                self._intake.read(given, now)
            case ContentRead():
                self._intake.read_content(given, now)
            case SchedulesPurged() | PurgeConcluded():
                self._purges.concluded(given, now)
            case PublishConcluded():
                self._outcomes.concluded(given, now)
            case Unanswered():
                self._unanswered(given, now)
            case DuplicateRead():
                self._outcomes.duplicate_read(given, now)
            case ProposalsApplied():
                self._course.firing.applied(given, now)
            case FireLookedFor():
                self._outcomes.looked_for(given, now)
            case FinishChecked():
                self._finish_answered(given, given.request, now)
            case BodiesCompared():
                self.admission.compared(given.question, is_other=given.is_other)
            case RemovalRequested():
                self._removal_requested(given, now)
            case SchedulesGone():
                self.admission.end_gone(given, now)
            case HistoryRead():
                self._intake.read_history(given)
            case CaughtUp():
                self._caught_up(given, now)
            case ContactLost():
                self._contact_lost()
            case OwnershipChanged():
                self._owner_changed(given, now)
            case ExpiryConcluded():
                self._intake.expiry_concluded(given, now)
            case CalendarsRead():
                self.calendars.read(given, now)
            case StreamChanged():
                self._course.conditions_changed(now)
            case ServerLimited():
                self._course.firing.limited(given.max_payload)
                self._course.conditions_changed(now)
            case DrainRequested():
                self._progress.is_draining = True
            case _:
                assert_never(given)

    def _unanswered(self, given: Unanswered, now: int) -> None:
        """Take it that something could not be found out; a fire that was to be sent is one of unknown outcome."""
        match given.question:
            case ReadContent():
                self._course.content_unread(given.question, given, now)
            case ReadDuplicate(fire):
                self._outcomes.concluded(PublishConcluded(fire, Unknown(given.reason)), now)
            case LookForFire(fire):
                refusal = Refused(NOT_PERMITTED, NOT_PERMITTED, given.reason) if given.denied else given.refusal
                outcome = refusal or Unknown(given.reason, may_be_stored=False)
                self._outcomes.concluded(PublishConcluded(fire, outcome), now)
            case AwaitProposals():
                self._course.firing.applied(given, now)
            case CheckFinished():
                self._finish_answered(given, given.question, now)
            case CompareBodies():
                self.admission.compared(given.question, is_other=False)
            case _:
                assert_never(given.question)

    def _finish_answered(self, given: FinishAnswer, request: CheckFinished, now: int) -> None:
        if not self._deadlines.answered(request, given, now):
            self._course.finish_answered(given, request, now)

    def _caught_up(self, given: CaughtUp, now: int) -> None:
        self._progress.read_through, self._progress.is_behind = given.through, given.is_behind
        self._progress.pass_by(given.through)
        if self._progress.is_live:
            return
        self._progress.is_live = True
        self._course.overlaps.caught_up(self._progress.last_read)
        self.ownership.able_since = now
        self._course.firing.proposals.caught_up()
        self._emit(Report(StreamReady(len(self._roster), len(self.inactive.rejected))))
        if self.ownership.is_owner:
            self._takeover.report_late()
        self.replacements.caught_up()
        self._course.contact_regained(now)

    def _contact_lost(self) -> None:
        self._progress.contact_lost()
        self.lifetimes.requests_missed(self._progress.last_read)

    def _owner_changed(self, given: OwnershipChanged, now: int) -> None:
        is_new = self._takeover.owner_changed(given, now)
        self._deadlines.owner_changed(given.checkpoint)
        if is_new:
            self.calendars.owner_changed()
        if is_new and given.is_owner and self._progress.is_live:
            self._takeover.report_late()

    def _removal_requested(self, given: RemovalRequested, now: int) -> None:
        self._takeover.removal_requested(given)
        self.lifetimes.removal_requested(given, self._roster, self._progress.last_read, now)
        self._course.removal_requested(given, now)
        self.admission.removal_requested(given)
        if self.of_server is not None:
            self.of_server.removal_requested(given)

    # -- time ----------------------------------------------------------------------------------------------------

    def _wake(self, now: int) -> None:
        is_left = self._takeover.go_on() | self._takeover.work(self._outstanding)
        if self.calendars.has_work:
            is_left |= self.calendars.work(now)
        most = max(min(MAX_WAKES_PER_STEP, self.in_flight.room), 0)
        self._guard.each(self._as_many_as_fit(self._roster.pop_woken(now - self.ownership.lag, most), now), self._woken)
        if self._expiry is not None and ((wake := self._next_of_roster()) is None or wake > now):
            self._remove_expired(now)  # or else a schedule may not be woken yet for a fire that is to be made up
        if self._outstanding <= BURST_IN_FLIGHT:
            self._deadlines.work(now)
        if self.in_flight.room > 0:  # or else an outcome is the next thing to come
            instant = now if is_left else self._next_wake()
            if instant is not None:
                self._emit(WakeAt(instant))

    def _as_many_as_fit(self, woken: Sequence[Held], now: int) -> Sequence[Held]:
        """Return the first of these schedules, as many as one step may look at; the others wake the next step."""
        left = MAX_WAKES_PER_STEP
        for number, held in enumerate(woken):
            left -= WAKES_PER_DECISION if held.has_history and held.flight is not None else 1
            if left < 0:
                for other in woken[number:]:
                    self._roster.wake(other, now - self.ownership.lag)
                return woken[:number]
        return woken

    def _woken(self, held: Held) -> None:
        """Take the next step of a schedule whose time has come."""
        now = self._now
        if has_ended(held, now):
            self._lifecycle.end(held, self.lifetimes.why_expired(held))
        elif held.flight is None and self._takeover.pass_over(held):
            return
        elif not (held.calendars and self.calendars.woken(held, now)):
            tried_again(self._lifecycle, held, now)
            self._course.woken(held, now)

    def _reject_failed(self, one: object, subject: str, sequence: int, error: Exception) -> None:
        """Go on without a schedule that failed; the outcome of its fire does not matter any more."""
        if (fire := fire_of(one)) is not None:
            self.in_flight.conclude(fire)
        self.admission.reject_failed(one, subject, sequence, described(error))

    def _next_wake(self) -> int | None:
        """Return when (ns) there is something to do if nothing arrives; in most streams only schedules wait."""
        instant = _earlier(self._next_of_roster(), self.contents.next_look())
        is_full = self._outstanding > BURST_IN_FLIGHT
        if not is_full:
            instant = _earlier(instant, self._deadlines.next_look())
        if self._expiry is None and not self._purges.old_versions:
            return instant
        removal = None if self._expiry is None or is_full else self._expiry.next_wake()
        others = instant, removal, self._purges.next_retry()
        return min((one for one in others if one is not None), default=None)

    def _next_of_roster(self) -> int | None:
        """Return when (ns) the next schedule is looked at."""
        wake = self._roster.next_wake()
        return None if wake is None else wake + self.ownership.lag

    def _do_what_waited(self, now: int) -> bool:
        """Take, report and purge what waited for the end of a burst; returns whether there is more."""
        waiting = len(self._progress.matched)
        is_matched_left = waiting > 0 and not self.in_flight.is_burst(waiting, now) and self._intake.take_matched(now)
        is_report_left = self._outcomes.report(now)
        return self._purges.release(now) or is_matched_left or is_report_left

    @property
    def _outstanding(self) -> int:
        """Fires and purges that are not concluded."""
        return self.in_flight.count + self._purges.outstanding

    def _remove_expired(self, now: int) -> None:
        """Ask for removals, but not during a burst, nor of a schedule whose last fire is not settled."""
        if self._expiry is not None and self._outstanding <= BURST_IN_FLIGHT:
            self._expiry.remove_due(now, lambda sequence: self._lifecycle.active(sequence) is not None)

    def _clock_stepped_back(self, by: int) -> None:
        """Keep all waits as long as they were although the wall clock shows `by` ns less than before."""
        for part in (
            self._lifecycle,
            self._course.overlaps,
            self._deadlines,
            self._purges,
            self.in_flight,
            self._expiry,
        ):
            if part is not None:
                part.clock_stepped_back(by)

    def _emit(self, action: Action) -> None:
        self._actions.append(action)


def _earlier(one: int | None, other: int | None) -> int | None:
    return one if other is None or (one is not None and one <= other) else other
