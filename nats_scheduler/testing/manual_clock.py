"""A clock that stops until a test advances it.

The rule: time passes only in `advance`, which advances both the wall clock and the monotonic clock.
`set` steps only the wall clock, forwards or backwards, as an operator or NTP does.
A test of a month takes only the time to compute it, and a failing run repeats exactly.
"""

from nats_scheduler.schedule.instants import SECOND

START = 1_767_225_600 * SECOND
"""2026-01-01T00:00:00Z in ns: the default time at which a clock starts."""


class ManualClock:
    """A clock that shows the time that it was given, in integer nanoseconds; it has the interface of the runtime's."""

    def __init__(self, now: int = START) -> None:
        self._now = now
        self._monotonic = 0

    def now(self) -> int:
        """Return the wall clock: nanoseconds since the Unix epoch."""
        return self._now

    def monotonic(self) -> int:
        """Return the nanoseconds since this clock was created; they never decrease."""
        return self._monotonic

    def advance(self, duration: int) -> None:
        """Let `duration` nanoseconds pass; raises `ValueError` if it is negative."""
        if duration < 0:
            raise ValueError(f"time does not pass backwards: advance({duration}); set() steps the wall clock")
        self._now += duration
        self._monotonic += duration

    def set(self, instant: int) -> None:
        """Step the wall clock to `instant` (ns since the Unix epoch), forwards or backwards; no time passes."""
        self._now = instant
