"""The one file of the package that reads a clock.

All other code receives the time: the pure rooms as a parameter, the runtime through a `Clock`.
That is what lets a test hold time still, step it backwards, or run a month in a millisecond.
"""

import sys
import time
from typing import Protocol


class Clock(Protocol):
    """A source of the time in integer nanoseconds."""

    def now(self) -> int:
        """Return the wall clock: nanoseconds since the Unix epoch. It may step either way."""
        ...

    def monotonic(self) -> int:
        """Return nanoseconds since an arbitrary start. It never goes back, and goes on while the machine sleeps."""
        ...


class SystemClock:
    """The clock of this machine."""

    def now(self) -> int:
        """Return `CLOCK_REALTIME` in nanoseconds since the Unix epoch."""
        return time.time_ns()

    def monotonic(self) -> int:
        """Return `CLOCK_BOOTTIME` in nanoseconds, on Linux; elsewhere the machine's sleep may not be counted."""
        return time.clock_gettime_ns(time.CLOCK_BOOTTIME) if sys.platform == "linux" else time.monotonic_ns()


def thread_seconds() -> float:
    """Return the process time (s) that this thread has used."""
    return time.thread_time()
