"""The wakes of schedules in order: by time, and at one instant by sequence.

A burst is thousands of entries of one instant. So the instants are a heap, and the entries of each instant are a
list.

The rule: an entry is valid while its schedule's `wake` is the instant it is entered for; others are skipped.

Cost: a heap push and pop for each instant, an append and a pop for each entry, a sort when the time of a list
comes.
"""

import heapq
from collections.abc import Iterable

from nats_scheduler.engine.holding.held import NO_WAKE, Held


class WakeQueue:
    """The entries that are in order."""

    def __init__(self) -> None:
        self._instants: list[int] = []
        self._at: dict[int, list[Held]] = {}
        self._sorted = NO_WAKE
        """The instant whose entries are sorted, in reverse, so that the first one is popped from the end."""
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, held: Held, instant: int) -> None:
        """Enter a schedule that is to be woken when `instant` (ns) comes."""
        entries = self._at.get(instant)
        if entries is None:
            self._at[instant] = [held]
            heapq.heappush(self._instants, instant)
        else:
            entries.append(held)
            if instant == self._sorted:
                self._sorted = NO_WAKE
        self._count += 1

    def first(self) -> int | None:
        """Return the earliest instant with a valid entry."""
        while self._instants:
            instant = self._instants[0]
            entries = self._at[instant]
            while entries and entries[-1].wake != instant:
                entries.pop()
                self._count -= 1
            if entries:
                return instant
            self._close(instant)
        return None

    def pop(self, through: int, most: int) -> list[Held]:
        """Take the first valid entries up to the instant `through` (ns), at most `most`."""
        instants = self._instants
        popped: list[Held] = []
        if not instants or instants[0] > through:
            return popped  # most steps are made for what arrived
        while len(popped) < most and instants and (instant := instants[0]) <= through:
            entries = self._at[instant]
            if instant != self._sorted:
                entries.sort(key=_sequence, reverse=True)
                self._sorted = instant
            taken = entries[: -1 - (most - len(popped)) : -1]
            del entries[-len(taken) :]
            self._count -= len(taken)
            if not entries:
                self._close(instant)
            for held in taken:
                if held.wake == instant:
                    held.wake = NO_WAKE
                    popped.append(held)
        return popped

    def discard_stale(self) -> None:
        """Discard all entries that are not valid."""
        valid = {instant: _valid(entries, instant) for instant, entries in self._at.items()}
        self._at = {instant: entries for instant, entries in valid.items() if entries}
        self._instants = sorted(self._at)
        self._count = sum(map(len, self._at.values()))

    def _close(self, instant: int) -> None:
        heapq.heappop(self._instants)
        del self._at[instant]


def _sequence(held: Held) -> int:
    return held.sequence


def _valid(entries: Iterable[Held], instant: int) -> list[Held]:
    return list(dict.fromkeys(held for held in entries if held.wake == instant))
