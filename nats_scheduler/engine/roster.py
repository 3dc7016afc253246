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
from nats_scheduler.engine.rows import ROW_LENGTH, Rows

MIN_AGENDA_ENTRIES = 1024
"""Stale entries up to this number are kept until their time comes."""

SPAN_BITS = 34
"""A span is 2 to this power of nanoseconds, 17 s."""

MAX_MOVED_PER_CALL = 2_048
"""Entries of the next span that are put in order in one call, which takes about a millisecond."""


class _Span:
    """The entries of one span that are not in order yet."""

    __slots__ = ("first", "held", "stale")

    def __init__(self, first: int) -> None:
        self.first = first
        """No entry has an earlier instant (ns)."""
        self.held: list[Held] = []
        self.stale = 0
        """How many of them, at most, are stale."""


class Roster:
    """The held schedules by subject, and the agenda."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self.rows = Rows()
        """The same schedules, for visits that are spread over many steps."""
        self._agenda = Agenda()
        self._spans: dict[int, _Span] = {}
        self._order: list[int] = []
        """The numbers of the spans, as a heap; some may be gone."""
        self._in_spans = 0
        """How many entries are in spans."""
        self._ordered_through = 0
        """The number of the last span whose new entries are put in order at once."""
        self.rolls_up = False
        """Whether any schedule that was ever held rolls up its target."""

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
        """Hold a schedule; it replaces the one that was held on its subject."""
        before = self._held.pop(held.subject, None)
        self._held[held.subject] = held
        if before is None:
            self.rows.add(held)
        else:
            self.cancel_wake(before)
            self.rows.replace(before, held)
        if held.terms.rollup:
            self.rolls_up = True

    def remove(self, subject: str) -> Held | None:
        """Hold no schedule on a subject any more; returns the one that was held."""
        held = self._held.pop(subject, None)
        if held is not None:
            self.cancel_wake(held)
            self.rows.remove(held)
        return held

    def emptied(self) -> Iterator[None]:
        """Hold nothing any more, and yield after each unit of work; for an engine that is not used any more."""
        for span in self._spans.values():
            while span.held:
                del span.held[-ROW_LENGTH:]
                yield
        while self._held:
            for _ in range(min(ROW_LENGTH, len(self._held))):
                self._held.popitem()
            yield
        yield from self.rows.emptied()

    def wake(self, held: Held, instant: int) -> None:
        """Wake the schedule when `instant` (ns) comes, instead of any time set before."""
        if held.wake != NO_WAKE:
            self.cancel_wake(held)
        held.wake = instant
        span = self._spans.get(instant >> SPAN_BITS)
        if span is None or instant < span.first:
            self._enter(held, instant)
        else:  # the case of nearly all schedules at a start
            span.held.append(held)
            self._in_spans += 1

    def cancel_wake(self, held: Held) -> None:
        """Remove the wake of a schedule, until another one is set."""
        instant, held.wake = held.wake, NO_WAKE
        if instant == NO_WAKE:
            return
        span = self._spans.get(instant >> SPAN_BITS)
        if span is not None:
            self._became_stale(span, instant >> SPAN_BITS)
        if len(self._agenda) + self._in_spans >= 2 * len(self._held) + MIN_AGENDA_ENTRIES:
            self._agenda.discard_stale()

    def next_wake(self) -> int | None:
        """Return the earliest instant of an entry; it may be of an entry that is stale."""
        ordered, number = self._agenda.first(), self._first_span()
        if number is None:
            return ordered
        first = self._spans[number].first
        return first if ordered is None or first < ordered else ordered

    def pop_woken(self, now: int, most: int) -> list[Held]:
        """Take the next schedules whose time has come, at most `most`, by time and then by sequence.

        Fewer if there are no more, or if more have to be put in order first: then `next_wake` has come already.
        """
        current = now >> SPAN_BITS
        woken: list[Held] = []
        while True:
            number = self._first_span()
            # Entries of a span that has begun may be earlier than those that are in order.
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
        """Return the number of the first span."""
        while self._order and self._order[0] not in self._spans:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None

    def _order_some(self, number: int) -> bool:
        """Put some entries of the first span in order; returns whether more of it is left."""
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
        """Count an entry of a span as stale; once more than half are, discard them."""
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
