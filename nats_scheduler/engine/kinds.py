"""What many far schedules of a stream have in common is kept once, and has a number.

Cost: a fraction of a microsecond for each schedule. Limit: what exceeds `MAX_KINDS` gets no number.
"""

from __future__ import annotations

from typing import NamedTuple

from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.policies import Policies
from nats_scheduler.schedule.patterns import Pattern

MAX_KINDS = 65_535
"""So many kinds of schedules of one stream are packed; a number of a kind takes two bytes."""


class Kind(NamedTuple):
    """What the schedules of a fleet have in common."""

    pattern: Pattern | None
    """None for an `@at`: its instant is the fire time."""
    dialect: Dialect
    ttl: str
    rollup: bool
    policies: Policies
    has_source: bool


class Kinds:
    """The kinds of one stream's far schedules, by number; one that no schedule has any more is forgotten."""

    def __init__(self) -> None:
        self._numbers: dict[Kind, int] = {}
        self._kinds: list[Kind | None] = []
        self._counts: list[int] = []
        self._free: list[int] = []
        self._last: tuple[Kind, int] | None = None
        """The kind that was asked for last: most often it is the next one too."""

    def __getitem__(self, number: int) -> Kind:
        """Return the kind with a number."""
        kind = self._kinds[number]
        assert kind is not None, f"no schedule is of kind {number}"
        return kind

    def get(self, number: int) -> Kind | None:
        """Return the kind with a number; None if it was forgotten meanwhile."""
        return self._kinds[number]

    def take(self, kind: Kind) -> int | None:
        """Count one more schedule of a kind and return its number; None if there are too many kinds."""
        last = self._last
        if last is not None and last[0] == kind:
            number = last[1]
        else:
            found = self._numbers.get(kind)
            if found is None:
                found = self._add(kind)
            if found is None:
                return None
            number = found
            self._last = kind, number
        self._counts[number] += 1
        return number

    def take_more(self, number: int, count: int) -> None:
        """Count so many more schedules of a kind that some schedule has."""
        self._counts[number] += count

    def release(self, number: int) -> None:
        """Count one less schedule of a kind."""
        self._counts[number] -= 1
        if not self._counts[number]:
            kind = self[number]
            del self._numbers[kind]
            self._kinds[number] = None
            self._free.append(number)
            if self._last is not None and self._last[1] == number:
                self._last = None

    def _add(self, kind: Kind) -> int | None:
        if self._free:
            number = self._free.pop()
            self._kinds[number] = kind
        elif len(self._kinds) < MAX_KINDS:
            number = len(self._kinds)
            self._kinds.append(kind)
            self._counts.append(0)
        else:
            return None
        self._numbers[kind] = number
        return number
