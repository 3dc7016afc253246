"""The engine of one stream: facts in, actions out, in one synchronous step.

It opens no socket, reads no clock and never waits: the shell tells it the time and what happened, and carries out
what it answers.
The same inputs at the same times always give the same actions, which is what lets a seed be replayed.

What it holds to be true:

- the last message on a subject is its schedule, and there is none when that message is something else;
- nothing fires before everything stored so far has been read (`CaughtUp`), since the stream says which fires happened;
- a fire touches only the schedule, by subject and sequence, that it came from.

The intake of messages is here, the course of a fire in `engine.approach` and `engine.firing`, the agenda in
`engine.roster`, and what the instance holds of the stream in `engine.holdings`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from nats_scheduler.engine.actions import Action, Report, WakeAt
from nats_scheduler.engine.admission import Admission, Staff
from nats_scheduler.engine.assembly import ServerLimits
from nats_scheduler.engine.backlog import Backlog
from nats_scheduler.engine.events import Ending, ScheduleRejected, StreamReady
from nats_scheduler.engine.expiry import Expiry
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.firing import Firing, has_ended
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.holdings import Holdings
from nats_scheduler.engine.inputs import (
    CaughtUp,
    CheckpointLoaded,
    ContactLost,
    ContentRead,
    ContentUnread,
    DrainRequested,
    DuplicateRead,
    DuplicateUnread,
    ExpiryConcluded,
    FiresStored,
    HistoryRead,
    Input,
    MessagesRead,
    PublishConcluded,
    PurgeConcluded,
    RemovalRequested,
    ShardsHeld,
    StreamChanged,
)
from nats_scheduler.engine.lifetimes import Lifetimes
from nats_scheduler.engine.misnaming import Misnaming
from nats_scheduler.engine.places import Places
from nats_scheduler.engine.removing import HERD, RELEASED_AT_ONCE
from nats_scheduler.engine.roster import Roster
from nats_scheduler.engine.shards import shard_of
from nats_scheduler.engine.sightings import Sightings
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.known import MessageReader
from nats_scheduler.message.reading import Reading, wants_to_be_a_schedule
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.schedule.instants import SECOND

MAX_WAKES_PER_STEP = 128
"""How many schedules one step looks at: answers are heard between two, and the server need not wait for a herd."""

LEAST_CLOCK_STEP = 1 * SECOND
"""A wall clock that went back by less (ns) is not worth a look: no back-off grows by more than that."""


class StreamEngine:
    """The schedules of one stream, and what to do about them next."""

    def __init__(
        self,
        rules: StreamRules,
        dialects: Sequence[Dialect],
        limits: ServerLimits,
        *,
        removes_expired: bool = False,
        reads_all: bool = True,
    ) -> None:
        """Begin with nothing; `removes_expired` where the server does not act on TTLs, and the stream asks for them.

        `reads_all` is False where messages may be gone, or under others, before they are read.
        """
        self._dialects = tuple(dialects)
        self._reader = MessageReader(rules, dialects)
        self._actions: list[Action] = []
        self._roster = Roster()
        moved = rules.moves_subjects
        self.firing = self._firing = Firing(self._roster, limits, self._emit, self._await_sight, moved=moved)
        self.lifetimes = Lifetimes(rules, removes_expired=removes_expired, keeps_all=reads_all)
        self._firing.lifetimes = self.lifetimes
        self._expiry = Expiry(self._dialects, self._emit) if removes_expired else None
        self.rejected: dict[str, tuple[int, Rejection]] = {}
        """The subjects whose last message is a rejected schedule, with its sequence and the reason."""
        self.misnaming = Misnaming(self._emit)
        self._reads_all = self._firing.sees_all = reads_all
        self._sightings = Sightings()
        self._holdings = Holdings(self._roster, self._firing)
        self._backlog = Backlog(self.rejected, self._firing, self._emit, self._holdings.untold)
        places = Places(self._roster, rules.restrictions)
        staff = Staff(self._roster, self._firing, self._holdings, self._backlog)
        self._admission = Admission(staff, places, self.rejected, self._tell_rejected)
        self._looked_through = 0
        self.last_read = 0
        """The highest stream sequence read so far."""
        self.history_through = 0
        """The sequence up to which buried messages were looked at, where they are not told with the others."""
        self.last_message: StoredMessage | None = None
        """The message with the highest sequence that was told."""
        self._now = 0
        self._live = self._draining = False
        self._handlers: dict[type[Any], Callable[[Any, int], None]] = {
            MessagesRead: self._messages_read,
            HistoryRead: self._history_read,
            CaughtUp: self._caught_up,
            ContactLost: self._contact_lost,
            CheckpointLoaded: lambda given, _now: self._holdings.load(given),
            ShardsHeld: self._shards_held,
            ContentRead: self._content_read,
            ContentUnread: self._firing.content_unread,
            DuplicateRead: self._firing.duplicate_read,
            DuplicateUnread: self._firing.duplicate_unread,
            PublishConcluded: self._firing.concluded,
            FiresStored: self._firing.were_stored,
            PurgeConcluded: self._firing.purge_concluded,
            ExpiryConcluded: self._expiry_concluded,
            RemovalRequested: self._removal_requested,
            StreamChanged: lambda _given, now: self._firing.conditions_changed(now),
            DrainRequested: self._drain_requested,
        }

    # -- for the shell -------------------------------------------------------------------------------------------

    def step(self, now: int, inputs: Iterable[Input] = ()) -> list[Action]:
        """Take what happened up to `now` (ns since the Unix epoch) and return what to do, in order."""
        if now < self._now - LEAST_CLOCK_STEP:
            self._firing.clock_stepped_back(self._now - now)
            if self._expiry is not None:
                self._expiry.clock_stepped_back(self._now - now)
        self._now = now
        for given in inputs:
            self._handlers[type(given)](given, now)
        self._admission.fill_places(now)
        if self._firing.is_open:
            self._wake(now)
        if self._see_what_waited(now) | self._firing.release(now):
            self._emit(WakeAt(now))
        if self._expiry is not None:
            self._expiry.report()
        actions, self._actions = self._actions, []
        return [*self._firing.hand_out(), *actions]

    @property
    def is_idle(self) -> bool:
        """Whether no fire, no purge and no removal awaits its conclusion."""
        return self._firing.is_idle and (self._expiry is None or self._expiry.under_way == 0)

    @property
    def is_live(self) -> bool:
        """Whether everything stored has been read, so that what is due fires."""
        return self._live

    @property
    def fires_stored(self) -> int:
        """How many fires were acknowledged as stored."""
        return self._firing.stored

    @property
    def followed_through(self) -> int:
        """The sequence behind which another contact is to go on, 0 for the beginning."""
        return self.last_read if self._reads_all else self._looked_through

    @property
    def held(self) -> Roster:
        """The schedules held."""
        return self._roster

    def checkpoint(self, now: int) -> CheckpointLoaded:
        """Return how far everything is settled, for a later holder to be told.

        What cannot be settled for the time being is named, so that it does not hold back the rest.
        """
        rejected = (
            sequence
            for subject, (sequence, _rejection) in self.rejected.items()
            if self._is_ours(subject) and not self._admission.is_waiting(subject)
        )
        return self._holdings.checkpoint(now, self.last_read, rejected)

    # -- intake --------------------------------------------------------------------------------------------------

    def _messages_read(self, given: MessagesRead, _now: int) -> None:
        for message in given.messages:
            if not self._sightings.expected or not self._sightings.take(message):
                self._take(message)
        if given.messages and given.messages[-1].sequence > self.last_read:
            self.last_message = given.messages[-1]
            self.last_read = self.last_message.sequence
        self.last_read = max(self.last_read, given.through)
        self._sightings.pass_by(self.last_read)

    def _see_what_waited(self, now: int) -> bool:
        """Take what is known to be fires of ours, once no herd is in the way; returns whether there is more."""
        seen = self._sightings.seen
        if self._firing.is_herd_in_the_way(len(seen), now):
            return False
        for _ in range(min(RELEASED_AT_ONCE, len(seen))):
            reading, message = self._sightings.next_seen()
            self._mean(reading, message, is_acknowledged=True)
        return bool(seen)

    def _history_read(self, given: HistoryRead, _now: int) -> None:
        self.history_through = max(self.history_through, given.through)
        for message in given.messages:
            if self._expiry is not None:
                self._expiry.take(message)

    def _take(self, message: StoredMessage) -> None:
        if self.misnaming.noted:
            self.misnaming.covered(message)
        if (definition := self._reader.known(message)) is not None:
            self._accept(definition, message, None if self._expiry is None else self._expiry.take(message))
            return
        if (reading := self._reader.read_anew(message)) is not None:
            self._mean(reading, message)
        else:
            self._overwritten(message)
        if self._reader.misnamed:
            is_told = self._live and self._is_ours(message.subject)
            self.misnaming.found(message, self._reader.misnamed, is_told=is_told)

    def _mean(self, reading: Reading, message: StoredMessage, *, is_acknowledged: bool = False) -> None:
        """Do what a message means; that a fire `is_acknowledged` says that it is one of ours."""
        expires = None if self._expiry is None else self._expiry.take(message)
        generated = reading.generated
        if generated is not None and not self._firing.read_back(generated, message, self._live, is_acknowledged):
            reading = self._reader.read_as_published(message)
        if reading.cancels is not None:
            self._cancelled(reading.cancels, message)
        if reading.definition is not None:
            self._accept(reading.definition, message, expires)
        elif reading.rejection is not None:
            self._reject(reading.rejection, message)
        else:
            self._overwritten(message)

    def _overwritten(self, message: StoredMessage) -> None:
        held = self._roster.on(message.subject)
        if held is not None and held.sequence < message.sequence:
            self._firing.end(held, self.lifetimes.why_covered(held, message))
        if self.rejected and self._rejected_at(message.subject) < message.sequence:
            self._admission.forget(message.subject)

    def _accept(self, definition: Definition, message: StoredMessage, expires: int | None) -> None:
        before = self._roster.on(message.subject)
        known = self._rejected_at(message.subject) if before is None else before.sequence
        if known >= message.sequence:
            if before is not None and before.sequence > message.sequence:
                self._admission.supersede(before)  # a version that was replaced before anybody saw it
            return
        due = definition.pattern.first_fire(message.stored_at)
        assert due is not None, "a pattern that never fires is rejected before"
        held = Held(message.subject, message.sequence, message.stored_at, definition.pattern, definition.terms, due)
        held.expires = self.lifetimes.expiry(message, expires)
        self._admission.accept(held, before, self._now)

    def _reject(self, rejection: Rejection, message: StoredMessage) -> None:
        if not self._live and not wants_to_be_a_schedule(message.block, self._dialects):
            # A wrong cancel of long ago, or what a native server generated before a downgrade: nobody is waiting.
            self._overwritten(message)
            return
        held = self._roster.on(message.subject)
        if held is not None:
            if held.sequence >= message.sequence:
                return
            self._firing.end(held, Ending.REPLACED)
        if self._rejected_at(message.subject) >= message.sequence:
            return
        self._admission.forget(message.subject)
        self.rejected[message.subject] = message.sequence, (rejection := rejection.shortened())
        self._tell_rejected(message.subject, message.sequence, rejection)

    def _tell_rejected(self, subject: str, sequence: int, rejection: Rejection) -> None:
        if self._live and self._is_ours(subject):
            self._emit(Report(ScheduleRejected(subject, sequence, rejection)))

    def _is_ours(self, subject: str) -> bool:
        """Tell whether what lies on a subject is ours to tell of."""
        return shard_of(subject) in self._firing.shards

    def _rejected_at(self, subject: str) -> int:
        """Return the sequence of the rejected message on a subject, 0 where there is none."""
        return self.rejected[subject][0] if subject in self.rejected else 0

    def _cancelled(self, schedule: str, message: StoredMessage) -> None:
        held = self._roster.on(schedule)
        if held is not None and held.sequence < message.sequence:
            self._firing.purge(held, Ending.CANCELLED)
        self._admission.cancelled(schedule, message.sequence)

    # -- contact -------------------------------------------------------------------------------------------------

    def _caught_up(self, given: CaughtUp, now: int) -> None:
        self._looked_through = given.through
        self._sightings.pass_by(given.through)
        if self._live:
            return
        self._live = self._admission.is_live = True
        self._firing.overdue.caught_up(now)
        self._firing.is_open = not self._draining
        self._emit(Report(StreamReady(len(self._roster), len(self.rejected))))
        self._backlog.begin_with(self._firing.shards)
        self.misnaming.tell(self._firing.shards)
        self._firing.contact_regained(now)

    def _contact_lost(self, _given: ContactLost, _now: int) -> None:
        self._live = self._admission.is_live = self._firing.is_open = False
        self.lifetimes.requests_missed(self.last_read)
        self._sightings.forget()

    def _shards_held(self, given: ShardsHeld, now: int) -> None:
        gained = self._holdings.hold(given.shards, now)
        if self._expiry is not None:
            self._expiry.shards = given.shards
        if self._live:
            self._backlog.begin_with(gained)
            self.misnaming.tell(gained)

    def _removal_requested(self, given: RemovalRequested, now: int) -> None:
        if given.filter is not None and not self._is_ours(given.filter):
            self._backlog.removed(given.filter)
        self.lifetimes.removal_requested(given, self._roster, self.last_read)
        self._firing.doubt(given, now)
        self._admission.doubt(given)

    def _drain_requested(self, _given: DrainRequested, _now: int) -> None:
        self._draining = True
        self._firing.is_open = False

    # -- time ----------------------------------------------------------------------------------------------------

    def _content_read(self, given: ContentRead, now: int) -> None:
        newer = self._firing.content_read(given, now)
        if newer is not None:
            self._take(newer)

    def _await_sight(self, fires: Sequence[Fire]) -> None:
        """Know what was stored when it is read, and that it expires where its headers are not looked at again."""
        if self._reads_all:
            self._sightings.expect(fires, self.last_read)
        else:
            self._sightings.seen.extend(fires)
        if self._expiry is not None:
            expected = self._sightings.expected
            self._expiry.fires_stored(fire for fire in fires if not self._reads_all or fire.stored_as in expected)

    def _expiry_concluded(self, given: ExpiryConcluded, now: int) -> None:
        assert self._expiry is not None, "nothing was to be removed"
        self._expiry.concluded(given, now)
        if given.subject is None:
            return
        if (held := self._roster.exactly(given.subject, given.sequence)) is not None:
            self._firing.end(held, Ending.EXPIRED)
        if self._rejected_at(given.subject) == given.sequence:
            self._admission.forget(given.subject)

    def _wake(self, now: int) -> None:
        is_left = [self._holdings.change_hands(), self._backlog.work()]
        most = max(min(MAX_WAKES_PER_STEP, self._firing.room), 0)
        woken = self._roster.pop_woken(now, most)
        for held in woken:
            if has_ended(held, now):
                self._firing.end(held, self.lifetimes.why_expired(held))
            elif held.flight is not None or not self._holdings.pass_over(held):
                self._firing.woken(held, now)
        if len(woken) < most:
            self._remove_expired(now)
        if self._firing.room <= 0:
            return  # an outcome is the next thing to come
        at_once = now if any(is_left) else None
        wakes = [self._roster.next_wake(), self._next_removal(), self._firing.left_over_until(), at_once]
        instant = min((wake for wake in wakes if wake is not None), default=None)
        if instant is not None:
            self._emit(WakeAt(instant))

    def _remove_expired(self, now: int) -> None:
        """Ask for removals, but not while a herd is in the way, nor of a schedule whose last fire is not settled."""
        if self._expiry is not None and self._firing.under_way <= HERD:
            self._expiry.remove_due(now, self._firing.has_begun)

    def _next_removal(self) -> int | None:
        return None if self._expiry is None or self._firing.under_way > HERD else self._expiry.next_wake()

    def _emit(self, action: Action) -> None:
        self._actions.append(action)
