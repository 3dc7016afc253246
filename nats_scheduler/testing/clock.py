"""A clock that stands still until it is told otherwise.

The rule: time passes only in `advance`, and only there do both clocks go on.
`set` moves the wall clock alone, either way, as an operator or NTP does.
A month of schedules runs in the time that it takes to compute it, and a failing run repeats exactly.
"""

from nats_scheduler.schedule.instants import SECOND

START = 1_767_225_600 * SECOND
"""2026-01-01T00:00:00Z, when a clock starts that is not told another time."""


class ManualClock:
    """Tells the time that it was given, in integer nanoseconds; fits wherever the runtime takes a clock."""

    def __init__(self, now: int = START) -> None:
        self._now = now
        self._monotonic = 0

    def now(self) -> int:
        """Return the wall clock: nanoseconds since the Unix epoch."""
        return self._now

    def monotonic(self) -> int:
        """Return nanoseconds since this clock was made. It never goes back."""
        return self._monotonic

    def advance(self, duration: int) -> None:
        """Let `duration` nanoseconds pass; raises `ValueError` where it is negative."""
        if duration < 0:
            raise ValueError(f"time does not pass backwards: advance({duration}); set() steps the wall clock")
        self._now += duration
        self._monotonic += duration

    def set(self, instant: int) -> None:
        """Step the wall clock to `instant` (ns since the Unix epoch), forwards or backwards; no time passes."""
        self._now = instant
