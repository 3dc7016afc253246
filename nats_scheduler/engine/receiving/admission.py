"""Hold a schedule that was read, or let it wait for a place if the operator limits how many are held.

The rules:

- A schedule that waits is rejected: it is listed and reported as rejected, and fires nothing. When it is held later, it
  continues with its next fire; an `@at` schedule whose time has passed meanwhile ends.
- Before the engine is live no schedule waits, however often a place changes hands while the stream is read.
- A schedule that is held after it waited is read first, since a removal during the wait goes unnoticed.
- What the stream has removed is held, listed and noted no longer (`Admission.end_gone`).
"""

from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice, repeat

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import Ending, ScheduleRejected
from nats_scheduler.engine.fire import CompareBodies
from nats_scheduler.engine.firing import advancing, answers, fetching, purging, timing
from nats_scheduler.engine.holding.held import NO_EXPIRY, Held, NoFire
from nats_scheduler.engine.holding.inactive import failed, rejected_schedule
from nats_scheduler.engine.holding.lifetimes import PausedSchedule
from nats_scheduler.engine.holding.places import Places
from nats_scheduler.engine.holding.schedule_rows import MAX_INSTANT, MAX_KEPT_BLOCK_BYTES, written_headers
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.holding.table import Row, row_with
from nats_scheduler.engine.inputs import RemovalRequested, SchedulesGone, Version
from nats_scheduler.engine.ownership.takeover import MAX_SUPERSEDED, Takeover
from nats_scheduler.engine.receiving.named_calendars import Calendars
from nats_scheduler.engine.receiving.replaced import Replacements
from nats_scheduler.message.block_shapes import UsualAts
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.rejection import FAILED
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import StoredMessage, body_mark, size_mark
from nats_scheduler.message.subjects import is_literal_subject
from nats_scheduler.message.timetable import first_fire_of
from nats_scheduler.schedule.clock_changes import skipped_between
from nats_scheduler.schedule.patterns import PatternKind, kind_of

OTHERS_PER_UNIT = 2_048
"""Rejected, paused and other messages that are compared in one unit of work."""

MAX_PLACED_AT_ONCE = 64
"""Schedules that get a place in one call: many places may become free at once."""

Found = list[tuple[str, int]]
"""Subjects and sequences."""


class Admission:
    """Decides which schedules of one stream are held."""

    def __init__(
        self,
        state: EngineState,
        takeover: Takeover,
        calendars: Calendars,
        places: Places,
        replacements: Replacements,
    ) -> None:
        self._state = state
        self._takeover = takeover
        self._calendars = calendars
        self._places = places
        self._replacements = replacements
        self.rows: dict[str, tuple[Definition, StoredMessage, Row]] = {}
        """The rows that are added and not held yet (`hold_rows`), with what they are of, by subject."""

    def accept(self, held: Held, before: Held | None) -> None:
        """Hold a schedule, or let it wait; it replaces the version `before`, if there was one."""
        replaced = self._state.inactive.discard(held.subject)
        if self._places.is_limited and (before is None or len(self._places)):
            self._enqueue(held, before)
        else:
            self._hold(held, before)
            self._begin(held)
        if isinstance(replaced, PausedSchedule):
            self.supersede(held.subject, held.sequence, Version(replaced.sequence, replaced.stored_at))

    def first_row_wake(self) -> int:
        """Return the first wake (ns) of a schedule that may be held as a row, and is no object before."""
        if self._places.is_limited:
            return NO_EXPIRY
        return max(self._takeover.first_not_settled, self._state.schedules.objects_through + 1)

    def add_row(self, definition: Definition, message: StoredMessage, first_wake: int) -> bool:
        """Add a new schedule to the rows that `hold_rows` holds, as nearly all are; returns whether it may be one.

        It may if it is woken at `first_wake` (ns) or later, has no policies, and nothing has to be known of it before
        that.
        """
        state, (pattern, terms) = self._state, definition
        subject, sequence, stored_at, block, _body = message
        fire_time = first_fire_of(pattern, stored_at)
        if fire_time is None or fire_time > MAX_INSTANT:
            return False
        wake = timing.first_fetch_at(state, fire_time, terms.source)
        if wake < first_wake or subject in self.rows or state.schedules.has_object(subject):
            return False
        lifetimes, inactive, kind = state.lifetimes, state.inactive, kind_of(pattern)
        if lifetimes.may_end(message, fire_time) or inactive.at(subject) or subject in inactive.misnamed:
            return False
        if state.progress.is_live and pattern.zone is not None and skipped_between(pattern, stored_at, fire_time):
            return False
        if kind is not PatternKind.AT and lifetimes.max_age and not self._takeover.has_reported_age:
            return False
        if len(block) > MAX_KEPT_BLOCK_BYTES:
            try:
                block = written_headers(pattern, terms)
            except ValueError:
                return False
        size = state.contents.note(message)
        mark = body_mark(message, size) if kind is PatternKind.AT else 0
        said = kind.value, terms.target, pattern.time_zone, block
        row = row_with((subject, sequence, stored_at, *said, fire_time, wake, None, mark, None, None, None))
        self.rows[subject] = definition, message, row
        return True

    def hold_run(self, run: MessageRun, ats: UsualAts, first_wake: int) -> set[str] | None:
        """Hold the schedules of a run as rows if each of them may be one, as `add_row` says; None if one may not.

        Returns the subjects on which a schedule is held already: these are left as they are.
        """
        state, subjects, (fire_times, targets, sizes) = self._state, run.subjects, ats
        wakes = timing.first_fetches(state, fire_times)
        if (
            min(wakes) < first_wake
            or max(fire_times) > MAX_INSTANT
            or max(map(len, run.blocks)) > MAX_KEPT_BLOCK_BYTES
            or len(set(subjects)) < len(subjects)
            or not state.schedules.have_no_object(subjects)
            or state.lifetimes.may_end_any(run, fire_times)
        ):
            return None
        state.contents.note_all(run, sizes)
        marks, kind, none = map(size_mark, sizes), repeat(PatternKind.AT.value), repeat(None)
        written = subjects, run.sequences, run.times, kind, targets, none, run.blocks
        # Not strict, since some of the columns repeat one value for ever.
        columns = zip(*written, fire_times, wakes, none, marks, none, none, none, strict=False)
        return self._insert(list(map(row_with, columns)))

    def hold_rows(self) -> list[tuple[Definition, StoredMessage]]:
        """Hold the rows that were added; returns those on whose subjects a schedule is held already, as they came."""
        added, self.rows = self.rows, {}
        held = self._insert([row for _definition, _message, row in added.values()])
        return [said[:2] for subject, said in added.items() if subject in held] if held else []

    def _insert(self, rows: Sequence[Row]) -> set[str]:
        """Hold new schedules as rows, and report them; returns the subjects on which one is held already."""
        held = self._state.schedules.insert(rows)
        if self._state.progress.is_live:
            for row in rows:
                if row.subject not in held:
                    self._takeover.accepted_row(row.subject, row.sequence, row.fire_time)
        return held

    def supersede(self, subject: str, sequence: int, before: Version) -> None:
        """Roll up a subject, as servers from 2.12 on do by themselves: of the versions only the last one stays.

        Everything below it is purged: a read may have found it before the follower delivered the versions in between.
        What is still owed of a version keeps that, and all above it.
        """
        through = min([sequence, *(owed.sequence for owed in self._state.schedules.owed_on(subject))]) - 1
        if before.sequence <= through:
            self._purge(subject, through, before)

    def owe_again(self, held: Held, current: Held) -> None:
        """Hold a version that was replaced before a restart for what was still owed of it."""
        self._state.schedules.keep_owed(held)
        answers.stored_over(self._state, held, current.sequence)
        if held.calendars:
            self._calendars.hold(held)
        if held.no_fire is NoFire.EXCEPTED or held.is_settled_at(held.fire_time):
            self._state.end(held, Ending.REPLACED)
        else:
            self._takeover.begin(held)

    def purge_no_longer_owed(self) -> None:
        """Purge the versions that were replaced and of which nothing is owed any more."""
        state = self._state
        versions, state.no_longer_owed = state.no_longer_owed, []
        for held in versions:
            current = state.schedules.on(held.subject)
            last = held.sequence + 1 if current is None else current.sequence
            self.supersede(held.subject, last, purging.version_of(held))

    def compared(self, question: CompareBodies, *, is_other: bool) -> None:
        """Roll up the subject of a schedule that was replaced, whose body was to be compared first."""
        if (lost := self._replacements.compared(question, is_other=is_other)) is not None:
            self.supersede(lost.schedule, lost.replaced_by, Version(lost.sequence, lost.stored_at))

    def overwritten(self, message: StoredMessage, *, leaves_alive: bool) -> None:
        """Reject nothing on the subject of a message; one that waits for a place stays if that `leaves_alive` it."""
        subject = message.subject
        if self._state.inactive.at(subject) < message.sequence and not (leaves_alive and self.is_waiting(subject)):
            self.discard(subject)

    def discard(self, subject: str) -> None:
        """Discard what is rejected or waits on a subject: another message is the last one there."""
        self._state.inactive.discard(subject)
        self._places.discard(subject)

    def cancelled(self, subject: str, sequence: int) -> None:
        """End a schedule that waits if the message with that sequence cancelled it."""
        waiting = self._places.waiting_on(subject)
        if waiting is not None and waiting.sequence < sequence:
            self.discard(subject)
            self._purge(subject, waiting.sequence, purging.version_of(waiting))

    def is_waiting(self, subject: str) -> bool:
        """Return whether a schedule waits for a place; while it does, its fires are not owed."""
        return self._places.waiting_on(subject) is not None

    def settles_nothing_of(self) -> Iterator[int]:
        """Yield the sequences of our rejected schedules, of which nothing is settled."""
        for subject, rejected in self._state.inactive.rejected.items():
            if self._state.ownership.is_owner and not (rejected.is_paused or self.is_waiting(subject)):
                yield rejected.sequence

    def fill_places(self) -> bool:
        """Hold schedules that wait, oldest first, until no place is free; returns whether there may be more."""
        for _ in range(MAX_PLACED_AT_ONCE):
            if not len(self._places):
                return False
            if (misplaced := self._places.misplaced()) is not None:
                self._displace(misplaced)
            if (held := self._places.take_next()) is None:
                return False
            self._state.guard.each((held,), self._place)
        return True

    def _place(self, held: Held) -> None:
        """Hold a schedule for which a place is free."""
        was_rejected = self._state.inactive.discard(held.subject)
        has_waited = was_rejected is not None and was_rejected.sequence == held.sequence
        self._hold(held, None)
        if not (has_waited and self._state.progress.is_live):
            self._begin(held)
        elif advancing.join_late(self._state, held):
            self._takeover.accepted(held)

    def reject_failed(self, one: object, subject: str, sequence: int, error: str) -> None:
        """Hold a schedule no longer that failed with an error, and reject it; `one` is what failed.

        If a later message is known on its subject, or it is no schedule, it is only reported.
        """
        held = self._state.schedules.on(subject)
        newest = max(0 if held is None else held.sequence, self._state.inactive.at(subject))
        stored = one if isinstance(one, Held | StoredMessage) else held
        rejected = None if stored is None else failed(stored, error, self._state.dialects)
        if held is not None and held.sequence <= sequence:
            self._state.expel(held)
            rejected = rejected or failed(held, error, self._state.dialects)
        if rejected is not None and newest <= sequence:
            self.discard(subject)
            self._state.inactive.reject(rejected)
        else:
            made = FAILED.rejection("", "", f"made nats-scheduler fail: {error}")
            self._state.emit(Report(ScheduleRejected(subject, sequence, made.shortened())))

    def removal_requested(self, request: RemovalRequested) -> None:
        """Re-check the schedule on the one subject that a request names, if places are limited.

        What other requests removed is found a moment later (`engine.receiving.admission`): to search all that is held
        at each request would cost more than the request.
        """
        if self._places.is_limited and request.filter is not None and is_literal_subject(request.filter):
            held = self._state.schedules.on(request.filter)
            if held is not None:
                fetching.fetch_if_waiting(self._state, held)

    def _gone(self, subject: str, sequence: int) -> None:
        """Discard what is rejected or paused on a subject if that message is not stored any more."""
        if self._state.inactive.at(subject) == sequence:
            self.discard(subject)

    def _enqueue(self, held: Held, before: Held | None) -> None:
        if before is not None:
            if self._replacements.leaves_owed(before, held):
                self._state.report_lost(before, "what replaced its schedule waits for a place")
            self._replace(before, held)
            self._state.end(before, Ending.REPLACED)
        self._places.wait(held)
        self.fill_places()
        if self._places.waiting_on(held.subject) is held:
            self._reject(held)

    def _displace(self, held: Held) -> None:
        """Let the youngest schedule wait again: an older one was read after it."""
        self._state.end(held, Ending.REPLACED)
        held.flight = None
        self._places.wait(held)
        self._reject(held)

    def _reject(self, held: Held) -> None:
        rejection = self._places.rejection_of(held)
        self._state.inactive.reject(rejected_schedule(held, rejection))

    def _hold(self, held: Held, before: Held | None) -> None:
        if before is not None and self._replacements.leaves_owed(before, held):
            before.replaced_at = held.stored_at
        self._state.schedules.hold(held)
        self._places.placed(held)
        if before is not None:
            self._replace(before, held)
            if before.replaced_at is None:
                self._state.discard(before)
            for owed in self._state.schedules.owed_on(held.subject):
                answers.stored_over(self._state, owed, held.sequence)
        if held.calendars:
            self._calendars.hold(held)

    def _replace(self, before: Held, held: Held) -> None:
        """Roll up the subject of a schedule that is replaced, unless its body is to be compared first."""
        if not self._replacements.by_schedule(before, held):
            self.supersede(held.subject, held.sequence, purging.version_of(before))

    def _begin(self, held: Held) -> None:
        if self._state.progress.is_live:
            self._takeover.accepted(held)
        self._takeover.begin(held)

    def _purge(self, subject: str, through: int, known: Version) -> None:
        if self._state.progress.is_live and self._state.ownership.is_owner:
            self._state.purges.enqueue_versions(subject, through, known)
        else:
            self._takeover.superseded(subject, through, known, MAX_SUPERSEDED if self._state.progress.is_live else None)

    # -- what the stream has removed -------------------------------------------------------------------------------

    @property
    def knows_any(self) -> bool:
        """True if there is anything that could be removed."""
        return bool(len(self._state.schedules) or self._state.inactive or self._state.inactive.misnamed)

    def find_gone(self, first: int, gone: AbstractSet[int]) -> Iterator[Found]:
        """Yield what is known of messages with sequences below `first` or in `gone`, after each unit of work.

        Much may happen between two units.
        """
        waiting = [(one.subject, one.sequence) for one in self._state.schedules.objects() if one.flight is None]
        yield from _among(waiting, first, gone)
        yield from self._state.schedules.stored_before(first, gone)
        inactive = self._state.inactive
        yield from _among(((one.subject, one.sequence) for one in list(inactive.rejected.values())), first, gone)
        yield from _among(((one.subject, one.sequence) for one in list(inactive.paused.values())), first, gone)
        yield from _among(((one.subject, one.sequence) for one in self._places.all_waiting()), first, gone)
        yield from _among(((one.subject, one.sequence) for one in list(inactive.misnamed.values())), first, gone)

    def end_gone(self, given: SchedulesGone) -> None:
        """End what the leader of the stream has removed: its sequence is never given again.

        What is in progress or due is left alone: it is read, or its guard is checked, before it fires. All else would
        be listed, and take memory and a place.
        """
        self._state.guard.each(given.schedules, self._end_gone)

    def _end_gone(self, gone: tuple[str, int]) -> None:
        subject, sequence = gone
        held = self._state.schedules.exactly(subject, sequence)
        if held is not None and held.flight is None and held.send_time > self._state.now:
            self._state.end(held, self._state.lifetimes.why_gone(held, self._state.now))
        self._gone(subject, sequence)
        self._state.inactive.misnamed_gone(subject, sequence)


def _among(known: Iterable[tuple[str, int]], first: int, gone: AbstractSet[int]) -> Iterator[Found]:
    left = iter(known)
    while part := list(islice(left, OTHERS_PER_UNIT)):
        yield [one for one in part if one[1] < first or one[1] in gone]
