"""The schedules that are held, and when each of them has to be looked at next.

The rule: a held schedule has at most one valid entry in the agenda, the one whose instant equals its `wake`.
Entries are never searched for; one that became stale is skipped when its time comes.
Where more than half is stale, of a span or of all, what is stale is forgotten, so that memory follows what is held.

The agenda is a heap of what is near, and lists of what is far, one for each span of 17 s.
Of a million schedules most are far, and there an entry takes 8 bytes and no order.
A list is moved into the heap a piece at a time during the span before its own, so that a herd does not come late.
One whose time has passed, as after an outage, is moved a piece at a time as well, and then woken from.

Cost: a lookup per message, a heap push and pop per wake; about 500 bytes a schedule with its definition.
"""

import heapq
from collections.abc import Iterator

from nats_scheduler.engine.flight import Flight
from nats_scheduler.engine.shards import shard_of
from nats_scheduler.message.definition import Definition

MIN_AGENDA_ENTRIES = 1024
"""With fewer entries than this beside those that are valid, nothing is forgotten before its time."""

SPAN_BITS = 34
"""A span is 2 to this power of nanoseconds, 17 s."""

MOVED_AT_ONCE = 2_048
"""So many entries of the span to come are moved into the heap in one go, which takes a millisecond or two."""

NO_WAKE = -1

NO_EXPIRY = 1 << 100
"""Later (ns) than any TTL can end."""


class Held:
    """A schedule that is held: the last message on its subject, and valid."""

    __slots__ = ("definition", "due", "expires", "flight", "sequence", "shard", "stored_at", "subject", "wake")

    def __init__(self, subject: str, sequence: int, stored_at: int, definition: Definition, due: int) -> None:
        self.subject = subject
        self.shard = shard_of(subject)
        self.sequence = sequence
        self.stored_at = stored_at
        self.definition = definition
        self.due = due
        """Its next fire (ns), or the last one where it has ended."""
        self.expires = NO_EXPIRY
        """When its TTL runs out (ns), where the sidecar has to see to it: it never fires for a time from then on."""
        self.flight: Flight | None = None
        """What is under way, None while it only waits."""
        self.wake: int = NO_WAKE
        """The instant of its valid agenda entry."""

    @property
    def only_expires(self) -> bool:
        """Whether its TTL runs out before its next fire."""
        return self.expires <= self.due

    def __lt__(self, other: "Held") -> bool:
        """Order two entries of one message: at most one of them is valid, so that any order will do."""
        return False


class _Span:
    """What is to be looked at in one span that is far."""

    __slots__ = ("first", "held", "stale")

    def __init__(self, first: int) -> None:
        self.first = first
        """No entry has an earlier instant (ns)."""
        self.held: list[Held] = []
        self.stale = 0
        """So many of them, at most, are to be looked at no more."""


class Roster:
    """The held schedules by subject, and the agenda."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self._agenda: list[tuple[int, int, Held]] = []
        self._spans: dict[int, _Span] = {}
        self._order: list[int] = []
        """The numbers of the spans that are far, as a heap; some may be gone."""
        self._far = 0
        """Entries in all spans."""
        self._near = 0
        """The last span of which new entries go into the heap."""

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._held.values())

    def on(self, subject: str) -> Held | None:
        """Return the schedule held on a subject."""
        return self._held.get(subject)

    def exactly(self, subject: str, sequence: int) -> Held | None:
        """Return the schedule held on a subject if it is still the one with this sequence."""
        held = self._held.get(subject)
        return held if held is not None and held.sequence == sequence else None

    def hold(self, held: Held) -> None:
        """Hold a schedule in place of whatever was held on its subject."""
        if held.subject in self._held:
            self.drop(held.subject)
        self._held[held.subject] = held

    def drop(self, subject: str) -> Held | None:
        """Hold nothing on a subject; returns what was held."""
        held = self._held.pop(subject, None)
        if held is not None:
            self.rest(held)
        return held

    def wake(self, held: Held, instant: int) -> None:
        """Have the schedule looked at when `instant` (ns) comes, instead of any time set before."""
        if held.wake != NO_WAKE:
            self.rest(held)
        held.wake = instant
        span = self._spans.get(instant >> SPAN_BITS)
        if span is None or instant < span.first:
            self._enter(held, instant)
        else:  # nearly all of a start
            span.held.append(held)
            self._far += 1

    def rest(self, held: Held) -> None:
        """Look at the schedule no more, until it is woken for another reason."""
        instant, held.wake = held.wake, NO_WAKE
        if instant == NO_WAKE:
            return
        span = self._spans.get(instant >> SPAN_BITS)
        if span is not None:
            self._became_stale(span, instant >> SPAN_BITS)
        if len(self._agenda) + self._far >= 2 * len(self._held) + MIN_AGENDA_ENTRIES:
            self._forget_stale_near()

    def next_wake(self) -> int | None:
        """Return the earliest instant at which something is to be looked at, or was before it changed."""
        agenda = self._agenda
        while agenda and agenda[0][2].wake != agenda[0][0]:
            heapq.heappop(agenda)
        near = agenda[0][0] if agenda else None
        number = self._first_far()
        if number is None:
            return near
        far = self._spans[number].first
        return far if near is None or far < near else near

    def pop_woken(self, now: int) -> Held | None:
        """Take the next schedule whose time has come, by time and then by sequence.

        None when there is none, or when more has to come near first: then `next_wake` has come already.
        """
        current = now >> SPAN_BITS
        while (held := self._pop_near(now)) is None:
            number = self._first_far()
            if number is None or number > current + 1:
                return None
            is_rest_left = self._come_near(number)
            if is_rest_left or number > current:
                return None
        return held

    def _pop_near(self, now: int) -> Held | None:
        """Take the first of the heap whose time has come; None when a far span that has begun may hold earlier ones."""
        agenda, far = self._agenda, self._first_far()
        if far is not None:
            now = min(now, (far << SPAN_BITS) - 1)
        while agenda and agenda[0][0] <= now:
            instant, _sequence, held = heapq.heappop(agenda)
            if held.wake == instant:
                held.wake = NO_WAKE
                return held
        return None

    def _enter(self, held: Held, instant: int) -> None:
        number = instant >> SPAN_BITS
        if number <= self._near:
            heapq.heappush(self._agenda, (instant, held.sequence, held))
            return
        span = self._spans.get(number)
        if span is None:
            span = self._spans[number] = _Span(instant)
            heapq.heappush(self._order, number)
        elif instant < span.first:
            span.first = instant
        span.held.append(held)
        self._far += 1

    def _first_far(self) -> int | None:
        """Return the number of the first span that is far."""
        while self._order and self._order[0] not in self._spans:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None

    def _come_near(self, number: int) -> bool:
        """Move some of the first far span into the heap; returns whether more of it is left."""
        self._near = max(self._near, number)
        entries = self._spans[number].held
        rest = max(len(entries) - MOVED_AT_ONCE, 0)
        coming = [(held.wake, held.sequence, held) for held in entries[rest:] if held.wake >> SPAN_BITS == number]
        if len(coming) > len(self._agenda) >> 3:  # a heap of them all is made in less time than so many pushes take
            self._agenda += coming
            heapq.heapify(self._agenda)
        else:
            for entry in coming:
                heapq.heappush(self._agenda, entry)
        self._far -= len(entries) - rest
        del entries[rest:]
        if not entries:
            del self._spans[number]
        return bool(entries)

    def _became_stale(self, span: _Span, number: int) -> None:
        """Count an entry of a span as stale, and forget those that are, once they are more than half."""
        span.stale += 1
        if 2 * span.stale <= len(span.held):
            return
        valid = dict.fromkeys(held for held in span.held if held.wake >> SPAN_BITS == number)
        self._far -= len(span.held) - len(valid)
        span.held, span.stale = list(valid), 0
        if not valid:
            del self._spans[number]
            if len(self._order) > 2 * len(self._spans) + MIN_AGENDA_ENTRIES:
                self._order = sorted(self._spans)

    def _forget_stale_near(self) -> None:
        """Forget what is stale in the heap."""
        valid = {held: (wake, sequence, held) for wake, sequence, held in self._agenda if held.wake == wake}
        self._agenda = list(valid.values())
        heapq.heapify(self._agenda)
