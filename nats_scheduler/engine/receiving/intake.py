"""The consequences that a message that was read has for the schedules of its stream.

The path of a message: `read` → `_take` → what its headers say (`message.reading`) → `_accept`, `_pause`, `_reject`,
`_cancel`, `_overwritten`, or `confirming.confirm` for a generated message.

The rule: the last message on a subject counts; reading a message again changes nothing.

Cost: some microseconds for a message that concerns a schedule, a fraction of one for any other.
"""

from functools import partial

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.firing import answers, confirming, purging
from nats_scheduler.engine.holding.held import NO_EXPIRY, Held
from nats_scheduler.engine.holding.inactive import rejected_message, rejected_paused
from nats_scheduler.engine.holding.lifetimes import PausedSchedule
from nats_scheduler.engine.holding.progress import reading_of
from nats_scheduler.engine.holding.schedule_rows import MAX_KEPT_BLOCK_BYTES
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import ContentFetched, ExpiryConcluded, HistoryRead, MessagesRead, Version
from nats_scheduler.engine.receiving.admission import Admission
from nats_scheduler.engine.receiving.fired_by_server import OfServer
from nats_scheduler.engine.receiving.replaced import Replacements
from nats_scheduler.engine.receiving.watched import WatchedFires, is_fire_of_the_server
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.paused import Paused
from nats_scheduler.message.reader import MessageReader
from nats_scheduler.message.reading import Generated, Reading, has_schedule_header
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.runs import MessageRun
from nats_scheduler.message.stored import NAME_PART_LOWER, StoredMessage, body_mark
from nats_scheduler.message.subjects import is_literal_subject

MAX_CONFIRMED_PER_STEP = 256
"""The most fires read back that are taken in one step after a burst, so that what is due does not have to wait."""


class Intake:
    """The messages of one stream."""

    def __init__(
        self,
        reader: MessageReader,
        state: EngineState,
        admission: Admission,
        replacements: Replacements,
        of_server: OfServer | None,
        watched: WatchedFires | None,
    ) -> None:
        """Show what `reader` finds to the parts that act on it; `watched` if none of the schedules is ours to fire."""
        self._state = state
        self._reader = reader
        self._admission = admission
        self._replacements = replacements
        self._of_server = of_server
        self._watched = watched
        self.history_through = 0
        """The sequence up to which buried messages were read, if they are not read with the others."""

    def read(self, given: MessagesRead) -> None:
        """Take messages in the order of the stream."""
        messages, progress = given.messages, self._state.progress
        first_wake = self._admission.first_row_wake() if self._state.expiry is None else NO_EXPIRY
        if not (
            type(messages) is MessageRun and (self._means_nothing(messages) or self._hold_as_rows(messages, first_wake))
        ):
            for message in messages:
                if not (progress.expected and progress.match(message)):
                    self.take(message, first_wake)
            if self._admission.rows:
                self._hold_rows()
        progress.note_received(messages, given.through)
        if progress.mapped:
            confirming.report_mapped(self._state)

    def _means_nothing(self, run: MessageRun) -> bool:
        """Return whether to take each message of a run would change nothing."""
        if not (run.is_ordinary and self._are_new(run)):
            return False
        if self._of_server is not None and not self._of_server.are_on_none_of(run.subjects):
            return False
        return not (len(self._state.schedules) and self._state.schedules.known(run.subjects))

    def _hold_as_rows(self, run: MessageRun, first_wake: int) -> bool:
        """Hold all schedules of a run as rows, if it has nothing but those; returns whether it has."""
        if first_wake == NO_EXPIRY or self._of_server is not None or not self._are_new(run):
            return False
        ats = self._reader.usual_ats(run)
        held = None if ats is None else self._admission.hold_run(run, ats, first_wake)
        if held is None:
            return False
        for message in run if held else ():
            if message.subject in held:
                self.take(message)
        return True

    def _are_new(self, run: MessageRun) -> bool:
        """Return whether no message of a run is an expected one, or on the subject of what is held inactive."""
        inactive = self._state.inactive
        if self._state.progress.expected or not inactive.misnamed.keys().isdisjoint(run.subjects):
            return False
        return not (inactive and any(map(inactive.on, run.subjects)))

    def read_content(self, given: ContentFetched) -> None:
        """Take what lies on a schedule's subject: its content, or another message that was found there."""
        other = answers.content_fetched(self._state, given)
        held = None if other is None else self._state.schedules.exactly(given.schedule, given.sequence)
        if other is None or held is None:
            return
        may_leave_alive = self._state.stored_over.may_be(self._reader.read(other), other)
        if not answers.found_above(self._state, held, other, may_leave_alive=may_leave_alive):
            self.take(other)
            if held.replaced_at is not None and self._state.schedules.is_held(held):
                answers.found_above(self._state, held, other, may_leave_alive=True)

    def read_history(self, given: HistoryRead) -> None:
        """Take messages that lie under the last ones of their subjects: their TTLs count, and deadlines of fires."""
        self.history_through = max(self.history_through, given.through)
        for message in given.messages:  # one that fails is reported, and is no schedule that could be rejected
            self._state.guard.each(((message.subject, message.sequence),), partial(self._take_older, message))

    def _take_older(self, message: StoredMessage, _where: tuple[str, int]) -> None:
        if self._state.expiry is not None:
            self._state.expiry.take(message)
        confirming.watch_older(self._state, message)

    def expiry_concluded(self, given: ExpiryConcluded) -> None:
        """Take what became of a removal: what is removed is no schedule any more."""
        if self._state.expiry is not None:
            self._state.expiry.concluded(given, self._state.now)
        if given.subject is None:
            return
        if (held := self._state.schedules.exactly(given.subject, given.sequence)) is not None:
            self._state.end(held, Ending.EXPIRED)
        if self._state.inactive.at(given.subject) == given.sequence:
            self._admission.discard(given.subject)

    def take_matched(self) -> bool:
        """Take fires of ours that were read back; returns whether there are more."""
        matched = self._state.progress.matched
        expires, inactive, on = self._state.expiry is not None, self._state.inactive, self._state.schedules.on

        def take_one(fire: Fire) -> None:
            lands = expires or bool(inactive) or on(fire.target) is not None
            if lands or not confirming.confirm_own(self._state, fire):
                reading, message = reading_of(fire)
                self._apply(reading, message, is_matched=True)

        some = (matched.popleft() for _ in range(min(MAX_CONFIRMED_PER_STEP, len(matched))))
        self._state.guard.each(some, take_one)
        return bool(matched)

    def take(self, message: StoredMessage, first_wake: int = NO_EXPIRY) -> None:
        """Take one message, whatever it is; if it fails, what is on its subject ends, and no other schedule.

        A schedule that is woken at `first_wake` (ns) or later becomes a row, with others that follow (`_hold_rows`).
        """
        try:
            if self._watched is not None and NAME_PART_LOWER in message.block:
                self._take_watched(self._watched, message, first_wake)
            else:
                self._take(message, first_wake)
        except Exception as error:  # a mistake of ours: see `engine.holding.guard`
            self._state.guard.failed(message, error)

    def _take_watched(self, watched: WatchedFires, message: StoredMessage, first_wake: int) -> None:
        """Take a message of a stream that is only watched: a fire of the server ends its schedule if it is the last."""
        if is_fire_of_the_server(message):
            self._take(message._replace(block=b""), first_wake)
            self._hold_rows()
            watched.fired(message)
            return
        if watched.ends_its_schedule(message):
            self._hold_rows()
            watched.fired(message)
        self._take(message, first_wake)

    def _take(self, message: StoredMessage, first_wake: int) -> None:
        admission, inactive = self._admission, self._state.inactive
        if self._of_server is not None:
            self._of_server.take(message)
        if inactive.misnamed:
            inactive.covers_misnamed(message)
        if (definition := self._reader.cached(message)) is not None:
            if admission.add_row(definition, message, first_wake):
                return
            if admission.rows:
                self._hold_rows()
            self._accept_cached(definition, message)
            return
        reading = self._reader.read_uncached(message)
        if admission.rows and (reading is not None or message.subject in admission.rows):
            self._hold_rows()
        if reading is not None:
            self._apply(reading, message)
        else:
            self._overwritten(message, leaves_alive=False)
        if self._reader.misnamed:
            is_reported = self._state.progress.is_live and self._state.ownership.is_owner
            inactive.found_misnamed(message, self._reader.misnamed, is_reported=is_reported)

    def _hold_rows(self) -> None:
        """Hold the schedules that are rows, many at once; on the subject of some another one may be held."""
        for definition, message in self._admission.hold_rows():
            self._state.guard.each((message,), partial(self._accept_cached, definition))

    def _accept_cached(self, definition: Definition, message: StoredMessage) -> None:
        """Hold a schedule whose message says nothing else."""
        self._state.contents.note(message)
        expires = None if self._state.expiry is None else self._state.expiry.take(message)
        headers = message.block if len(message.block) <= MAX_KEPT_BLOCK_BYTES else b""
        self._accept(definition, message, expires, headers)

    def _apply(self, reading: Reading, message: StoredMessage, *, is_matched: bool = False) -> None:
        """Act on what a message says; a fire that `is_matched` with an acknowledgement is ours."""
        expires = None if self._state.expiry is None else self._state.expiry.take(message)
        generated = reading.generated
        if generated is not None and not confirming.confirm(self._state, generated, message, is_matched=is_matched):
            reading = self._reader.read_as_published(message)
        if reading.beside is not None and self._state.rules.rolls_up_by_purge:
            self._roll_up_as_requested(reading.beside, message)
        if reading.cancels is not None:
            self._cancel(reading.cancels, message)
        if reading.definition is not None:
            self._state.contents.note(message)
            self._accept(reading.definition, message, expires)
        elif reading.paused is not None:
            self._pause(reading.paused, message, expires)
        elif reading.rejection is not None:
            self._reject(reading.rejection, message)
        elif (
            self._state.inactive.on(message.subject) is not None
            or self._state.schedules.on(message.subject) is not None
        ):
            leaves_alive = is_matched or self._state.stored_over.may_be(reading, message)
            self._overwritten(message, leaves_alive=leaves_alive)

    def _roll_up_as_requested(self, beside: Generated, message: StoredMessage) -> None:
        """Have the target rolled up by a fire that was requested, of a schedule that is active or paused."""
        schedule, target = beside.schedule, message.subject
        found = self._state.schedules.exactly(schedule, beside.sequence) or self._state.inactive.paused.get(schedule)
        is_of_it = found is not None and found.sequence == beside.sequence
        if is_of_it and found is not None and found.terms.rollup and found.terms.target == target:
            purging.roll_up(self._state, target, message.sequence - 1)

    def _overwritten(self, message: StoredMessage, *, leaves_alive: bool) -> None:
        """End the schedule on the subject of a message; one that `leaves_alive` ends none."""
        held = self._state.schedules.on(message.subject)
        if held is None:
            if self._state.inactive:
                self._admission.overwritten(message, leaves_alive=leaves_alive)
        elif held.sequence > message.sequence:
            if not leaves_alive:
                self._end_owed_below(message, Ending.OVERWRITTEN)
        elif held.sequence < message.sequence:
            if leaves_alive:
                for one in (held, *self._state.schedules.owed_on(held.subject)):
                    answers.stored_over(self._state, one, message.sequence)
            else:
                ending = self._state.lifetimes.why_overwritten(held, message)
                if ending is Ending.OVERWRITTEN:
                    self._replacements.by_no_schedule_of_ours(held, message)
                self._state.end(held, ending)

    def _accept(
        self, definition: Definition, message: StoredMessage, expires: int | None, headers: bytes = b""
    ) -> None:
        """Hold a schedule; `headers` say all of its definition, and b"" if they may say more."""
        before = self._state.schedules.on(message.subject)
        known = self._state.inactive.at(message.subject) if before is None else before.sequence
        if known >= message.sequence:
            newer = before or self._state.inactive.paused.get(message.subject)
            owed = self._state.owed_before.pop(message.sequence, None)
            if owed is not None and before is not None and before.sequence > message.sequence:
                held = Held(message.subject, message.sequence, definition, message.stored_at, owed[0])
                held.expires, held.replaced_at = self._state.lifetimes.expiry(message, expires), owed[1]
                self._admission.owe_again(held, before)
            elif newer is not None and newer.sequence > message.sequence:
                unread = Version(message.sequence, message.stored_at)
                self._admission.supersede(newer.subject, newer.sequence, unread)  # it was replaced before it was read
            return
        held = Held(message.subject, message.sequence, definition, message.stored_at)
        held.headers = headers
        held.expires = self._state.lifetimes.expiry(message, expires)
        if before is not None or not held.repeats:
            held.mark = body_mark(message)
        self._admission.accept(held, before)

    def _pause(self, paused: Paused, message: StoredMessage, expires: int | None) -> None:
        """Keep a paused schedule, which replaces the one on its subject and all older versions."""
        subject, sequence, stored_at, _block, _body = message
        held = self._state.schedules.on(subject)
        before = held or self._state.inactive.on(subject)
        if before is not None:
            if before.sequence >= sequence:
                self._end_owed_below(message, Ending.PAUSED)
                return
            if held is not None:
                self._state.end(held, Ending.PAUSED)
            self._admission.discard(subject)
            if is_literal_subject(subject):  # a purge of another one would remove all that it matches
                self._admission.supersede(subject, sequence, Version(before.sequence, before.stored_at))
        resumed = paused.resumed
        if isinstance(resumed, Rejection):
            self._state.inactive.reject(rejected_paused(message, resumed, paused.dialect))
        else:
            ends = self._state.lifetimes.expiry(message, expires)
            self._state.inactive.pause(PausedSchedule(subject, sequence, stored_at, ends, *resumed))

    def _reject(self, rejection: Rejection, message: StoredMessage) -> None:
        if not self._state.progress.is_live and not has_schedule_header(message.block, self._reader.dialects):
            # A wrong cancel of long ago, or what a native server generated before a downgrade: of no interest now.
            self._overwritten(message, leaves_alive=False)
            return
        held = self._state.schedules.on(message.subject)
        if held is not None:
            if held.sequence >= message.sequence:
                self._end_owed_below(message, Ending.REPLACED)
                return
            self._replacements.by_other(held, message)
            self._state.end(held, Ending.REPLACED)
        if self._state.inactive.at(message.subject) < message.sequence:
            self._admission.discard(message.subject)
            rejected = rejected_message(message, rejection, self._reader.dialects)
            self._state.inactive.reject(rejected)

    def _end_owed_below(self, message: StoredMessage, ending: Ending) -> None:
        """End what is owed of the versions below a message, which takes it, although a later schedule is known."""
        for owed in self._state.schedules.owed_on(message.subject):
            if owed.sequence < message.sequence:
                self._state.end(owed, ending)

    def _cancel(self, schedule: str, message: StoredMessage) -> None:
        held = self._state.schedules.on(schedule)
        if held is not None and held.sequence < message.sequence:
            for owed in self._state.schedules.owed_on(schedule):
                self._state.end(owed, Ending.CANCELLED)
            self._state.guard.each((held,), partial(purging.purge, self._state, ending=Ending.CANCELLED))
        self._admission.cancelled(schedule, message.sequence)
