"""The engine of one stream: inputs in, actions out, in one synchronous step.

It opens no socket, reads no clock and never waits: the shell passes the time and what happened, and carries out the
actions. The same inputs at the same times always give the same actions, so a seed can be replayed.

What it relies on:

- the last message on a subject is its schedule, and there is none if that message is something else, except for what
  other schedules generated, and cancels, which leave it alive (`engine.holding.stored_over`);
- nothing fires before everything stored so far has been read (`CaughtUp`), since the stream says which fires happened;
- a fire touches only the schedule, by subject and sequence, that it came from.

All that is known of the stream is one record, `engine.holding.state.EngineState`, which each part gets. In the order in
which a schedule meets them: `engine.receiving.intake` reads its message, `engine.receiving.admission` holds it, and
`engine.firing.machine` is the table of all that may happen to it from then on. `engine.firing.answers` finds the
schedule that an answer concerns, and `engine.ownership.takeover` continues with those of another owner.
"""

from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import assert_never

from nats_scheduler.engine.actions import Action, Report, WakeAt
from nats_scheduler.engine.events import ScheduleSilent, StreamReady
from nats_scheduler.engine.fire import (
    AwaitProposals,
    CheckFinished,
    CompareBodies,
    FetchContent,
    FetchDuplicate,
    LookForFire,
)
from nats_scheduler.engine.firing import answers, catching_up, fetching, identities, other_stream, purging, sending
from nats_scheduler.engine.firing.machine import Event, happen
from nats_scheduler.engine.holding.contents import ContentMemory
from nats_scheduler.engine.holding.flight import Stage
from nats_scheduler.engine.holding.guard import described, fire_of
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.in_flight import BURST_IN_FLIGHT, MAX_IN_FLIGHT
from nats_scheduler.engine.holding.places import Places
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.engine.holding.state import EngineState, has_ended
from nats_scheduler.engine.holding.table import Table
from nats_scheduler.engine.inputs import (
    BodiesCompared,
    CalendarsRead,
    CaughtUp,
    Checkpoint,
    ContactLost,
    ContentFetched,
    DrainRequested,
    DuplicateFetched,
    ExpiryConcluded,
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
    ServerLimits,
    StreamChanged,
    Unanswered,
    Unknown,
)
from nats_scheduler.engine.ownership.takeover import Takeover
from nats_scheduler.engine.receiving.admission import Admission
from nats_scheduler.engine.receiving.fired_by_server import OfServer
from nats_scheduler.engine.receiving.intake import Intake
from nats_scheduler.engine.receiving.named_calendars import Calendars
from nats_scheduler.engine.receiving.replaced import Replacements
from nats_scheduler.engine.receiving.watched import WatchedFires
from nats_scheduler.engine.restart import Restart
from nats_scheduler.engine.views.figures import Figures, Visit
from nats_scheduler.engine.views.seen import Question
from nats_scheduler.engine.views.silent import BEGINNING, FoundSilent, Place, silent
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.policies import DEFAULT_CATCH_UP_RATE
from nats_scheduler.message.reader import MessageReader
from nats_scheduler.message.rejection import NOT_PERMITTED, Failing
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
        fired_by: FiredBy = FiredBy.SIDECAR,
        catch_up_rate: int = DEFAULT_CATCH_UP_RATE,
        table: Table | None = None,
    ) -> None:
        """Begin with nothing; `removes_expired` if the server does not act on TTLs, and the stream asks for them.

        `reads_all` is False if messages may be gone, or under others, before they are read. `memory` is shared by the
        engines of a process, None if there is only one. `notify_named` is called when a schedule names a calendar that
        none has named since the beginning. `is_native` if the server itself fires the headers of ADR-51. The schedules
        are rows of `table`, which is in memory if none is given. Of missed fires at most `catch_up_rate` are sent in a
        second.
        What is `fired_by` another is watched (`engine.receiving.watched`): such an engine must not be told that it
        caught up.
        """
        if is_watched := fired_by is not FiredBy.SIDECAR:
            rules = replace(rules, has_policies=False)
        self._fired_by = fired_by
        self._reads = rules, tuple(dialects)
        reader = MessageReader(*self._reads)
        self._rows_reader: MessageReader | None = None
        """The reader of views, which may be in another thread: made with the first of them."""
        self._state = state = EngineState(
            rules,
            limits,
            reader.dialects,
            Schedules(reader.definition_of, table),
            removes_expired=removes_expired,
            reads_all=reads_all,
            memory=ContentMemory() if memory is None else memory,
            catch_up_rate=catch_up_rate,
            reject=self._reject_failed,
        )
        self.held = state.schedules
        """The schedules held."""
        self.ownership = state.ownership
        self.lifetimes = state.lifetimes
        self.stored_over = state.stored_over
        self.contents = state.contents
        self.in_flight = state.in_flight
        self.inactive = state.inactive
        self._takeover = Takeover(state)
        self.calendars = Calendars(state, self._takeover, notify_named)
        self.replacements = Replacements(state, debounces=rules.debounces)
        self.of_server = OfServer(self.replacements, rules.max_age) if is_native else None
        """What is known of the schedules that the server itself fires, None if it fires none."""
        self._places = Places(state.schedules, rules.restrictions)
        self.admission = Admission(state, self._takeover, self.calendars, self._places, self.replacements)
        watched = WatchedFires(state, advance=fired_by is FiredBy.SERVER) if is_watched else None
        self._intake = Intake(reader, state, self.admission, self.replacements, self.of_server, watched)
        self.restart = Restart(
            state, self._takeover, self.replacements, self.calendars, removes_expired=removes_expired
        )
        self.steps = 0
        """The number of steps that were made: nothing that is known of the stream changes between two."""

    # -- for the shell -------------------------------------------------------------------------------------------

    def step(self, now: int, inputs: Iterable[Input] = ()) -> list[Action]:
        """Take what happened up to `now` (ns since the Unix epoch) and return what to do, in order."""
        state = self._state
        if now < state.now - MIN_CLOCK_STEP_NS:
            state.clock_stepped_back(state.now - now)
        state.now = state.contents.now = now
        state.schedules.comes_to(now)
        self.steps += 1
        for given in inputs:
            try:
                self._take(given, now)
            except Exception as error:  # a mistake of ours: see `engine.holding.guard`
                state.guard.failed(given, error)
        if state.no_longer_owed:
            self.admission.purge_no_longer_owed()
        is_left = self._places.is_limited and self.admission.fill_places()
        if state.contents.waiting_small or state.contents.waiting_large:
            fetching.fetch_what_has_room(state)
        progress = state.progress
        if progress.is_live and not progress.is_draining:
            self._wake(now)
        if self._do_what_waited(now) or is_left or state.no_longer_owed:
            state.emit(WakeAt(now))
        if state.expiry is not None:
            state.expiry.report()
        state.schedules.release(state.later)
        actions = [sending.hand_out(state), *state.actions] if state.handed_out else [*state.actions]
        state.actions.clear()
        return actions

    @property
    def is_idle(self) -> bool:
        """True if no fire, no purge and no removal awaits its conclusion."""
        state = self._state
        return not (state.outstanding or state.unreported or (state.expiry and state.expiry.in_flight))

    @property
    def has_unknown(self) -> bool:
        """True if a fire was sent that may be stored, and no answer says so; checks everything in progress."""
        flights = [held.flight for held in self._state.active.values() if held.flight is not None]
        return any(one.stage is Stage.BACKING_OFF and one.fire is not None and one.may_be_stored for one in flights)

    @property
    def is_live(self) -> bool:
        """True if everything stored has been read, so that what is due fires."""
        return self._state.progress.is_live

    @property
    def is_troubled(self) -> bool:
        """True if the server denied or refuses us anything, or the owner seems to fire nothing."""
        ownership = self.ownership
        return ownership.denied is not None or bool(self._state.refusals.held) or ownership.unfired > 0

    @property
    def urgency(self) -> tuple[int, int]:
        """The rank of the stream by its next fire: the smallest is the most urgent. Checks all that is in progress."""
        send_time = self._state.earliest_to_send()
        if send_time is not None:
            return 0, send_time  # within the look-ahead, or overdue
        wake = self._state.schedules.next_wake()
        return (2, 0) if wake is None else (1, wake)

    @property
    def failing_count(self) -> int:
        """The number of schedules with a fire that the server refuses at the moment."""
        return len(self._state.refusals.held)

    @property
    def oversized(self) -> int:
        """The number of attempts that were not sent, because the fire is larger than what the server takes."""
        return self._state.oversized_count

    def failing(self, most: int) -> list[tuple[int, Failing]]:
        """Return at most `most` of them by sequence, those that fail longest first, and why."""
        return self._state.refusals.longest(most)

    @property
    def fires_stored(self) -> int:
        """The number of fires that were acknowledged as stored."""
        return self._state.stored_count

    @property
    def last_read(self) -> int:
        """The highest stream sequence read so far."""
        return self._state.progress.last_read

    @property
    def last_message(self) -> StoredMessage | None:
        """The message with the highest sequence that was read."""
        return self._state.progress.last_message

    @property
    def history_through(self) -> int:
        """The sequence up to which buried messages were read, if they are not read with the others."""
        return self._intake.history_through

    @property
    def followed_through(self) -> int:
        """The sequence after which another contact is to go on, 0 for the beginning."""
        return self.complete_through if self._state.progress.reads_all else self._state.progress.read_through

    @property
    def complete_through(self) -> int:
        """The sequence up to which everything was read: later messages may have been read before earlier ones."""
        return self._state.progress.read_through if self._state.progress.is_behind else self._state.progress.last_read

    def view(self) -> EngineView:
        """Return a read-only view of what is held."""
        if self._rows_reader is None:
            self._rows_reader = MessageReader(*self._reads)
        return EngineView(self.held, self.lifetimes, self.inactive, self._fired_by, self._rows_reader.definition_of)

    def figures(self, now: int) -> Generator[None, None, Figures]:
        """Find the figures for the operator at `now` (ns); the work may be done in another thread."""
        return Visit(self._state, now).run()

    def silent(
        self, now: int, after: Place = BEGINNING, is_reported: Callable[[ScheduleSilent], bool] = lambda _event: False
    ) -> Question[FoundSilent]:
        """Find schedules that are silent at `now` (ns) and not reported, of those behind a place.

        While schedules wait for their turn after an outage (`engine.firing.catching_up`), none is.
        """
        able_since = max(self.ownership.able_since, self.ownership.in_contact_since)
        if self._state.catch_up.waiting:
            able_since = now
        return silent(self.view(), now, able_since, after, is_reported)

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
                answers.fires_stored(self._state, given)
            case MessagesRead():
                self._intake.read(given)
            case ContentFetched():
                self._intake.read_content(given)
            case SchedulesPurged():
                answers.schedules_purged(self._state, given)
            case PurgeConcluded():
                answers.purge_concluded(self._state, given)
            case PublishConcluded():
                answers.publish_concluded(self._state, given)
            case Unanswered():
                self._unanswered(given, now)
            case DuplicateFetched():
                answers.duplicate_fetched(self._state, given)
            case ProposalsApplied():
                identities.proposals_applied(self._state, given)
            case FireLookedFor():
                other_stream.looked_for(self._state, given)
            case FinishChecked():
                answers.finish_answered(self._state, given, given.request)
            case BodiesCompared():
                self.admission.compared(given.question, is_other=given.is_other)
            case RemovalRequested():
                self._removal_requested(given, now)
            case SchedulesGone():
                self.admission.end_gone(given)
            case HistoryRead():
                self._intake.read_history(given)
            case CaughtUp():
                self._caught_up(given, now)
            case ContactLost():
                self._contact_lost()
            case OwnershipChanged():
                self._owner_changed(given, now)
            case ExpiryConcluded():
                self._intake.expiry_concluded(given)
            case CalendarsRead():
                self.calendars.read(given, now)
            case StreamChanged():
                answers.conditions_changed(self._state)
            case ServerLimited():
                self._state.max_payload = given.max_payload
                answers.conditions_changed(self._state)
            case DrainRequested():
                self._state.progress.is_draining = True
            case _:
                assert_never(given)

    def _unanswered(self, given: Unanswered, now: int) -> None:
        """Take it that something could not be found out; a fire that was to be sent is one of unknown outcome."""
        match given.question:
            case FetchContent():
                answers.content_not_fetched(self._state, given.question, given)
            case FetchDuplicate(fire):
                answers.publish_concluded(self._state, PublishConcluded(fire, Unknown(given.reason)))
            case LookForFire(fire):
                refusal = Refused(NOT_PERMITTED, NOT_PERMITTED, given.reason) if given.denied else given.refusal
                outcome = refusal or Unknown(given.reason, may_be_stored=False)
                answers.publish_concluded(self._state, PublishConcluded(fire, outcome))
            case AwaitProposals():
                identities.proposals_applied(self._state, given)
            case CheckFinished():
                answers.finish_answered(self._state, given, given.question)
            case CompareBodies():
                self.admission.compared(given.question, is_other=False)
            case _:
                assert_never(given.question)

    def _caught_up(self, given: CaughtUp, now: int) -> None:
        self._state.progress.read_through, self._state.progress.is_behind = given.through, given.is_behind
        self._state.progress.pass_by(given.through)
        if self._state.progress.is_live:
            return
        self._state.progress.is_live = True
        if self._state.read_at_start is None:
            self._state.read_at_start = self._state.progress.last_read
        self.ownership.able_since = now
        self._state.proposals.caught_up()
        self._state.emit(Report(StreamReady(len(self._state.schedules), len(self.inactive.rejected))))
        if self.ownership.is_owner:
            self._takeover.report_late()
        self.replacements.caught_up()
        answers.contact_regained(self._state)

    def _contact_lost(self) -> None:
        self._state.progress.contact_lost()
        self.lifetimes.requests_missed(self._state.progress.last_read)

    def _owner_changed(self, given: OwnershipChanged, now: int) -> None:
        is_new = self._takeover.owner_changed(given, now)
        if self._state.deadlines is not None:
            self._state.deadlines.owner_changed()
        if is_new:
            self.calendars.owner_changed()
        if is_new and given.is_owner and self._state.progress.is_live:
            self._takeover.report_late()

    def _removal_requested(self, given: RemovalRequested, now: int) -> None:
        self._takeover.removal_requested(given)
        self.lifetimes.removal_requested(given, self._state.schedules, self._state.progress.last_read, now)
        answers.removal_requested(self._state, given)
        self.admission.removal_requested(given)
        if self.of_server is not None:
            self.of_server.removal_requested(given)

    # -- time ----------------------------------------------------------------------------------------------------

    def _wake(self, now: int) -> None:
        """Do what is due, and say when to step again if nothing arrives."""
        state, takeover = self._state, self._takeover
        is_left = False
        if takeover.changing or takeover.left is not None:
            is_left = takeover.go_on() | takeover.work(state.outstanding)
        if self.calendars.has_work:
            is_left |= self.calendars.work(now)
        most = max(min(MAX_WAKES_PER_STEP, MAX_IN_FLIGHT - len(state.in_flight.fires)), 0)
        woken = state.schedules.pop_woken(now - state.ownership.lag, most)
        if woken:
            state.guard.each(self._as_many_as_fit(woken, now), self._woken)
        if state.catch_up.waiting:
            state.guard.each(catching_up.take_turns(state, most - len(woken)), self._make_up)
        if state.expiry is not None and state.outstanding <= BURST_IN_FLIGHT:
            wake = state.schedules.next_wake()
            if wake is None or wake + state.ownership.lag > now:  # what is woken may be needed for a fire
                state.expiry.remove_due(now, self._is_to_fire)
        if state.deadlines is not None and state.outstanding <= BURST_IN_FLIGHT:
            state.deadlines.work(now, state.settled.through)
        if len(state.in_flight.fires) < MAX_IN_FLIGHT:  # or else an outcome is the next thing to come
            instant = now if is_left else self._next_wake()
            if instant is not None:
                state.emit(WakeAt(instant))

    def _as_many_as_fit(self, woken: Sequence[Held], now: int) -> Sequence[Held]:
        """Return the first of these schedules, as many as one step may look at; the others wake the next step."""
        left = MAX_WAKES_PER_STEP
        for number, held in enumerate(woken):
            left -= WAKES_PER_DECISION if held.has_history and held.flight is not None else 1
            if left < 0:
                for other in woken[number:]:
                    self._state.schedules.wake(other, now - self._state.ownership.lag)
                return woken[:number]
        return woken

    def _is_to_fire(self, sequence: int) -> bool:
        """Return whether a schedule is needed for a fire that is in progress, or waits for its turn."""
        return sequence in self._state.active or sequence in self._state.catch_up.waiting

    def _make_up(self, held: Held) -> None:
        """Take the next step of a schedule whose turn has come."""
        self._woken(held, has_turn=True)

    def _woken(self, held: Held, *, has_turn: bool = False) -> None:
        """Take the next step of a schedule whose time has come, unless it has ended, or its fires are settled.

        One whose fire is missed waits for its turn.
        """
        state = self._state
        if held.flight is not None and held.flight.stage is Stage.ENDED:
            return  # what replaced it ended in this step, and with it what was owed
        if held.expires <= state.now and has_ended(held, state.now):
            state.end(held, state.lifetimes.why_expired(held))
            return
        if held.flight is None and self._takeover.pass_over(held):
            return
        if held.calendars and self.calendars.woken(held, state.now):
            return
        if has_turn or not catching_up.waits_for_turn(state, held):
            happen(state, held, Event.WOKEN)

    def _reject_failed(self, one: object, subject: str, sequence: int, error: Exception) -> None:
        """Go on without a schedule that failed; the outcome of its fire does not matter any more."""
        if (fire := fire_of(one)) is not None:
            self._state.in_flight.conclude(fire)
        self.admission.reject_failed(one, subject, sequence, described(error))

    def _next_wake(self) -> int | None:
        """Return when (ns) there is something to do if nothing arrives; in most streams only schedules wait."""
        state = self._state
        wake = state.schedules.next_wake()
        instants = [None if wake is None else wake + state.ownership.lag]
        if state.catch_up.waiting:
            instants.append(state.catch_up.next_turn())
        if state.contents.waiting_small or state.contents.waiting_large:
            instants.append(state.contents.next_look())
        if state.deadlines is not None and state.outstanding <= BURST_IN_FLIGHT:
            instants.append(state.deadlines.next_look())
        if state.expiry is not None and state.outstanding <= BURST_IN_FLIGHT:
            instants.append(state.expiry.next_wake())
        if state.purges.old_versions:
            instants.append(state.purges.old_versions_retry_at)
        return min((one for one in instants if one is not None), default=None) if len(instants) > 1 else instants[0]

    def _do_what_waited(self, now: int) -> bool:
        """Receive, report and purge what waited for the end of a burst; returns whether there is more."""
        state = self._state
        if len(state.in_flight.fires) > BURST_IN_FLIGHT or state.in_flight.burst_since is not None:
            state.in_flight.note_burst(now)
        waiting, is_left = len(state.progress.matched), False
        if waiting and not state.in_flight.is_burst(waiting, now):
            is_left = self._intake.take_matched()
        if state.refusals.held or state.refusals.reported:
            state.refusals.report(now)
        if state.unreported:
            is_left |= answers.report_stored(state)
        if state.purges.queue or state.purges.old_versions:
            is_left |= purging.release(state)
        return is_left
