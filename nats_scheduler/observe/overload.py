"""Notice that this process does not keep up: its event loop, or the fires, are late again and again.

A machine that stands still for a moment makes one look late, and a burst some fires: neither is an overload.
One is where at least half of the looks in a row find the loop late, or fires that were stored late since the last look.

The rule: it is told when it begins, and again only after `SAID_AGAIN_LOOKS`, for as long as it lasts.
Cost: a comparison a fire, and a sort of `LOOKS` numbers at each look (twice a second).
"""

from collections import deque
from typing import NamedTuple

LOOKS = 10
"""Looks in a row that are judged together: 5 s."""

LOOP_LATE_SECONDS = 0.05
FIRE_LATE_SECONDS = 0.25
"""What is later counts as late: a fire takes some milliseconds, and one in a burst of thousands longer."""

SAID_AGAIN_LOOKS = 120
"""While it lasts it is told once in so many looks: a minute."""


class Lateness(NamedTuple):
    """How late this process is, in seconds: what half of the last looks found, or more."""

    loop: float
    fires: float


class Overload:
    """Judges by the last looks."""

    def __init__(self) -> None:
        self._loop: deque[float] = deque(maxlen=LOOKS)
        self._fires: deque[float] = deque(maxlen=LOOKS)
        self._latest_fire = 0.0
        self._looks_since_said = SAID_AGAIN_LOOKS
        self.is_on = False
        """Whether the process was overloaded at the last look."""

    def fire_stored(self, late: float) -> None:
        """Note how late (s) a fire was stored."""
        if late > self._latest_fire:
            self._latest_fire = late

    def looked(self, late: float) -> Lateness | None:
        """Note how late (s) the event loop came to a look; returns what is to be told, None if nothing is."""
        self._loop.append(late)
        self._fires.append(self._latest_fire)
        self._latest_fire = 0.0
        self._looks_since_said += 1
        found = Lateness(_of_half(self._loop), _of_half(self._fires))
        self.is_on = found.loop > LOOP_LATE_SECONDS or found.fires > FIRE_LATE_SECONDS
        if not self.is_on or self._looks_since_said < SAID_AGAIN_LOOKS:
            return None
        self._looks_since_said = 0
        return found


def _of_half(found: deque[float]) -> float:
    """Return what at least half of `LOOKS` looks exceeded or reached; 0 before there were so many."""
    return sorted(found, reverse=True)[LOOKS // 2 - 1] if len(found) >= LOOKS // 2 else 0.0
