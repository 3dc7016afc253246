"""When the far schedules of one stream become near: their places, in spans by the instants of their wakes.

The rule: a place is entered in the span of its wake, and stays there if its schedule is fetched and woken at another
time, or removed. Such an entry is stale, and is skipped when its span comes. Whenever an entry becomes stale, a few
others are looked at and removed if they are stale, so that at most about a third of them are, and no call takes long.

A span becomes near when the one before it begins. Its entries are handed out a piece at a time, so that a burst of many
schedules is near again long before it is due.

Cost: 4 bytes for each entry.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable

LOOKED_AT = 4
"""Entries that are looked at when one becomes stale."""


class _Span:
    """The places of the schedules that are woken in one span."""

    __slots__ = ("looked_at", "places")

    def __init__(self) -> None:
        self.places = array("I")
        self.looked_at = 0
        """Which entry is looked at next, to see whether it is stale."""


class FarAgenda:
    """The spans of the far schedules."""

    def __init__(self, bits: int) -> None:
        """Begin empty; a span is 2 to the power of `bits` nanoseconds."""
        self._bits = bits
        self.spans: dict[int, _Span] = {}
        """The spans that have entries, by number; empty: nothing is far."""
        self._order: list[int] = []
        """The numbers of the spans, as a heap; some may be gone."""
        self._near_through = 0
        """The number of the last span that is near."""

    def comes_to(self, now: int) -> None:
        """Note the time (ns): the current span and the next one are near."""
        near = (now >> self._bits) + 1
        if near > self._near_through:
            self._near_through = near

    def is_far(self, instant: int) -> bool:
        """Return whether a schedule that is woken at an instant (ns) is far."""
        return instant >> self._bits > self._near_through

    def add(self, place: int, wake: int) -> None:
        """Enter the place of a schedule that is woken at `wake` (ns)."""
        self._span(wake >> self._bits).places.append(place)

    def fill(self, wakes: array[int], first: int) -> None:
        """Enter one place after the other from `first` on, of schedules that are woken at these instants (ns)."""
        bits = self._bits
        last, places = -1, array("I")
        for place, wake in enumerate(wakes, first):
            number = wake >> bits
            if number != last:
                last, places = number, self._span(number).places
            places.append(place)

    def _span(self, number: int) -> _Span:
        """Return the span with a number, which begins if there is none."""
        span = self.spans.get(number)
        if span is None:
            span = self.spans[number] = _Span()
            heapq.heappush(self._order, number)
        return span

    def became_stale(self, wake: int, wake_of: Callable[[int], int | None]) -> None:
        """Note that an entry with this wake (ns) is stale; `wake_of` tells the wake of the far schedule in a place."""
        number = wake >> self._bits
        span = self.spans.get(number)
        if span is None:
            return
        places = span.places
        for _ in range(min(LOOKED_AT, len(places))):
            at = span.looked_at % len(places)
            known = wake_of(places[at])
            if known is not None and known >> self._bits == number:
                span.looked_at = at + 1
                continue
            last = places.pop()
            if at < len(places):
                places[at] = last
            else:
                span.looked_at = 0
                if not places:
                    del self.spans[number]
                    return

    def unpacking_of(self, wake: int) -> int:
        """Return when (ns) a far schedule that is woken at `wake` (ns) becomes near."""
        return ((wake >> self._bits) - 1) << self._bits

    def next_unpacking(self) -> int | None:
        """Return when (ns) the next schedules become near."""
        number = self._first()
        return None if number is None else (number - 1) << self._bits

    def take(self, most: int) -> array[int]:
        """Take some places out of the first span, if it is near; some may be stale."""
        number = self._first()
        if number is None or number > self._near_through:
            return array("I")
        places = self.spans[number].places
        rest = max(len(places) - most, 0)
        taken = places[rest:]
        del places[rest:]
        if not places:
            del self.spans[number]
        return taken

    def near_through(self, now: int) -> int:
        """Return the last instant (ns) up to `now` before which nothing is left to be taken."""
        number = self._first()
        return now if number is None else min(now, (number << self._bits) - 1)

    def _first(self) -> int | None:
        while self._order and self._order[0] not in self.spans:
            heapq.heappop(self._order)
        return self._order[0] if self._order else None
