"""Detect that this process is overloaded: its event loop, or the fires, are repeatedly late.

If the machine stops for a moment, one sample is late, and a burst makes some fires late; neither is an overload.
In an overload, in at least half of the last samples the loop was late, or fires were stored late since the sample
before.

The rule: it is reported when it begins, and every `REPEAT_SAMPLES` samples as long as it lasts.
Cost: a comparison per fire, and a sort of `WINDOW_SAMPLES` numbers at each sample (twice a second).
"""

from collections import deque
from typing import NamedTuple

WINDOW_SAMPLES = 10
"""The number of samples that are judged together: 5 s."""

MAX_LOOP_LATENESS_SECONDS = 0.05
MAX_FIRE_LATENESS_SECONDS = 0.25
"""More than this is late: a fire takes some milliseconds, and one in a burst of thousands takes longer."""

REPEAT_SAMPLES = 120
"""An overload that lasts is reported again after this many samples: a minute."""


class Lateness(NamedTuple):
    """The lateness of this process, in seconds: at least half of the last samples were this late or later."""

    loop: float
    fires: float


class Overload:
    """Decides by the last samples whether the process is overloaded."""

    def __init__(self) -> None:
        self._loop: deque[float] = deque(maxlen=WINDOW_SAMPLES)
        self._fires: deque[float] = deque(maxlen=WINDOW_SAMPLES)
        self._latest_fire = 0.0
        self._samples_since_report = REPEAT_SAMPLES
        self.is_on = False
        """True if the process was overloaded at the last sample."""

    def record_fire(self, late: float) -> None:
        """Record how late (s) a fire was stored."""
        if late > self._latest_fire:
            self._latest_fire = late

    def sample(self, late: float) -> Lateness | None:
        """Record how late (s) the event loop takes this sample; return what to report, None if nothing is."""
        self._loop.append(late)
        self._fires.append(self._latest_fire)
        self._latest_fire = 0.0
        self._samples_since_report += 1
        found = Lateness(_reached_by_half(self._loop), _reached_by_half(self._fires))
        self.is_on = found.loop > MAX_LOOP_LATENESS_SECONDS or found.fires > MAX_FIRE_LATENESS_SECONDS
        if not self.is_on or self._samples_since_report < REPEAT_SAMPLES:
            return None
        self._samples_since_report = 0
        return found


def _reached_by_half(found: deque[float]) -> float:
    """Return the value that half of `WINDOW_SAMPLES` samples reached or exceeded; 0 before there are half as many."""
    return sorted(found, reverse=True)[WINDOW_SAMPLES // 2 - 1] if len(found) >= WINDOW_SAMPLES // 2 else 0.0
