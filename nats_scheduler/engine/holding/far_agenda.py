"""When the far schedules of one stream become near: their places, in spans by the instants of their wakes.

The rule: a place is entered in the span of its wake, and stays there if its schedule is fetched and woken at another
time, or removed. Such an entry is stale, and is skipped when its span comes. Whenever an entry becomes stale, a few
others are looked at and removed if they are stale, so that at most about a third of them are, and no call takes long.

A span becomes near when the one before it begins. Its entries are handed out a piece at a time, so that a burst of many
schedules is near again long before it is due.

A row that is filled at once has one entry, in the span of its earliest wake. When that becomes near, the row is handed
out as a whole, and its places are entered. So a start with millions enters few.

Cost: 4 bytes for each entry.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable

LOOKED_AT = 4
"""Entries that are looked at when one becomes stale."""

MIN_ORDER_LENGTH = 1024
"""Numbers of spans that are gone are kept up to so many."""

_NO_SPAN = -1


class FarAgenda:
    """The spans of the far schedules."""

    def __init__(self, bits: int) -> None:
        """Begin empty; a span is 2 to the power of `bits` nanoseconds."""
        self._bits = bits
        self.spans: dict[int, array[int]] = {}
        """The places of the schedules that are woken in each span, by the number of the span."""
        self._rows: dict[int, array[int]] = {}
        """The first places of the rows whose earliest wake is in each span, by the number of the span."""
        self._looked_at: dict[int, int] = {}
        """Which entry of a span is looked at next, to see whether it is stale; the first one if it is not here."""
        self.order: list[int] = []
        """The numbers of the spans, as a heap; some may be gone. Empty: nothing is far."""
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
        number = wake >> self._bits
        (self.spans.get(number) or self._new_span(number)).append(place)

    def add_row(self, first: int, wakes: array[int]) -> None:
        """Enter a row, which begins with the place `first`, of schedules that are woken at these instants (ns)."""
        number = min(wakes) >> self._bits
        rows = self._rows.get(number)
        if rows is None:
            rows = self._rows[number] = array("I")
            self._begins(number)
        rows.append(first)

    def _new_span(self, number: int) -> array[int]:
        """Return the places of a span that begins: it has none yet."""
        places = self.spans[number] = array("I")
        self._begins(number)
        return places

    def _begins(self, number: int) -> None:
        heapq.heappush(self.order, number)
        if len(self.order) > 2 * (len(self.spans) + len(self._rows)) + MIN_ORDER_LENGTH:
            self.order[:] = sorted(self.spans.keys() | self._rows.keys())

    def became_stale(self, wake: int, wake_of: Callable[[int], int | None]) -> None:
        """Note that an entry with this wake (ns) is stale; `wake_of` tells the wake of the far schedule in a place."""
        number = wake >> self._bits
        places = self.spans.get(number)
        if places is None:
            return
        at = self._looked_at.get(number, 0)
        for _ in range(min(LOOKED_AT, len(places))):
            at %= len(places)
            known = wake_of(places[at])
            if known is not None and known >> self._bits == number:
                at += 1
                continue
            last = places.pop()
            if at < len(places):
                places[at] = last
            elif not places:
                self._end_span(number)
                return
        self._looked_at[number] = at

    def unpacking_of(self, wake: int) -> int:
        """Return when (ns) a far schedule that is woken at `wake` (ns) becomes near."""
        return ((wake >> self._bits) - 1) << self._bits

    def next_unpacking(self) -> int | None:
        """Return when (ns) the next schedules become near."""
        number = self._first()
        return None if number is None else (number - 1) << self._bits

    def take(self, most: int) -> array[int]:
        """Take some places out of the first span, if it is near; some may be stale."""
        number = self._first_near()
        places = self.spans.get(number)
        if places is None:
            return array("I")
        rest = max(len(places) - most, 0)
        taken = places[rest:]
        del places[rest:]
        if not places:
            self._end_span(number)
        return taken

    def take_row(self) -> int | None:
        """Take a row out of the first span, if it is near; returns its first place, and all places are to be added."""
        number = self._first_near()
        rows = self._rows.get(number)
        if rows is None:
            return None
        first = rows.pop()
        if not rows:
            del self._rows[number]
        return first

    def _end_span(self, number: int) -> None:
        del self.spans[number]
        self._looked_at.pop(number, None)

    def near_through(self, now: int) -> int:
        """Return the last instant (ns) up to `now` before which nothing is left to be taken."""
        number = self._first()
        return now if number is None else min(now, (number << self._bits) - 1)

    def _first_near(self) -> int:
        """Return the number of the first span if it is near; else one that no span has."""
        number = self._first()
        return _NO_SPAN if number is None or number > self._near_through else number

    def _first(self) -> int | None:
        while self.order and self.order[0] not in self.spans and self.order[0] not in self._rows:
            heapq.heappop(self.order)
        return self.order[0] if self.order else None
