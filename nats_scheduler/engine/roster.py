"""The schedules that are held, and when each of them has to be woken next.

The rule: a held schedule has at most one valid entry in the agenda, the one whose instant equals its `wake`.
Entries are never searched for; a stale one is skipped when its time comes.
If more than half of the entries are stale, of a span or of all, they are discarded: memory follows what is held.

Entries of the current and the next span of 17 s are kept in order (`engine.agenda`); later ones are in lists, one for
each span.
Of a million schedules most are in later spans, where an entry takes 8 bytes and is not sorted.
A list is put in order a piece at a time during the span before its own, so that a burst is not late.
A span whose time has passed, as after an outage, is put in order a piece at a time as well, and then woken from.

Cost: a lookup per message; a wake is entered once or twice.
"""

import heapq
from collections.abc import Iterator

from nats_scheduler.engine.agenda import Agenda
from nats_scheduler.engine.held import NO_WAKE, Held

MIN_AGENDA_ENTRIES = 1024
"""With fewer entries than this beside those that are valid, nothing is forgotten before its time."""

SPAN_BITS = 34
"""A span is 2 to this power of nanoseconds, 17 s."""

MAX_MOVED_PER_CALL = 2_048
"""So many entries of the span to come are moved in one go, which takes a millisecond or so."""


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
        self._agenda = Agenda()
        self._spans: dict[int, _Span] = {}
        self._order: list[int] = []
        """The numbers of the spans that are far, as a heap; some may be gone."""
        self._in_spans = 0
        """Entries in all spans."""
        self._ordered_through = 0
        """The last span of which new entries are near at once."""
        self.rolls_up = False
        """Whether any schedule that was held ever rolls up its target."""

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
            self.remove(held.subject)
        self._held[held.subject] = held
        if held.terms.rollup:
            self.rolls_up = True

    def remove(self, subject: str) -> Held | None:
        """Hold nothing on a subject; returns what was held."""
        held = self._held.pop(subject, None)
        if held is not None:
            self.cancel_wake(held)
        return held

    def wake(self, held: Held, instant: int) -> None:
        """Have the schedule looked at when `instant` (ns) comes, instead of any time set before."""
        if held.wake != NO_WAKE:
            self.cancel_wake(held)
        held.wake = instant
        span = self._spans.get(instant >> SPAN_BITS)
        if span is None or instant < span.first:
            self._enter(held, instant)
        else:  # nearly all of a start
            span.held.append(held)
            self._in_spans += 1

    def cancel_wake(self, held: Held) -> None:
        """Look at the schedule no more, until it is woken for another reason."""
        instant, held.wake = held.wake, NO_WAKE
        if instant == NO_WAKE:
            return
        span = self._spans.get(instant >> SPAN_BITS)
        if span is not None:
            self._became_stale(span, instant >> SPAN_BITS)
        if len(self._agenda) + self._in_spans >= 2 * len(self._held) + MIN_AGENDA_ENTRIES:
            self._agenda.discard_stale()

    def next_wake(self) -> int | None:
        """Return the earliest instant at which something is to be looked at, or was before it changed."""
        near, number = self._agenda.first(), self._first_span()
        if number is None:
            return near
        far = self._spans[number].first
        return far if near is None or far < near else near

    def pop_woken(self, now: int, most: int) -> list[Held]:
        """Take the next schedules whose time has come, at most so many, by time and then by sequence.

        Fewer when there are no more, or when more have to come near first: then `next_wake` has come already.
        """
        current = now >> SPAN_BITS
        woken: list[Held] = []
        while True:
            number = self._first_span()
            # Of a far span that has begun, some may be earlier than what is near.
            woken += self._agenda.pop(now if number is None else min(now, (number << SPAN_BITS) - 1), most - len(woken))
            if len(woken) == most or number is None or number > current + 1:
                return woken
            is_rest_left = self._order_some(number)
            if is_rest_left or number > current:
                return woken

    def _enter(self, held: Held, instant: int) -> None:
        number = instant >> SPAN_BITS
        if number <= self._ordered_through:
            self._agenda.add(held, instant)
            return
        span = self._spans.get(number)
        if span is None:
            span = self._spans[number] = _Span(instant)
            heapq.heappush(self._order, number)
        elif instant < span.first:
            span.first = instant
        span.held.append(held)
        self._in_spans += 1

    def _first_span(self) -> int | None:
        """Return the number of the first span that is far."""
        while self._order and self._order[0] not in self._spans:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None

    def _order_some(self, number: int) -> bool:
        """Move some of the first far span; returns whether more of it is left."""
        self._ordered_through = max(self._ordered_through, number)
        entries = self._spans[number].held
        rest = max(len(entries) - MAX_MOVED_PER_CALL, 0)
        for held in entries[rest:]:
            if held.wake >> SPAN_BITS == number:
                self._agenda.add(held, held.wake)
        self._in_spans -= len(entries) - rest
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
        self._in_spans -= len(span.held) - len(valid)
        span.held, span.stale = list(valid), 0
        if not valid:
            del self._spans[number]
            if len(self._order) > 2 * len(self._spans) + MIN_AGENDA_ENTRIES:
                self._order = sorted(self._spans)
