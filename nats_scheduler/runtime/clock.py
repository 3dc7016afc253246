"""The one file of the package that reads a clock.

All other code receives the time: the pure rooms as a parameter, the runtime through a `Clock`.
That is what lets a test hold time still, step it backwards, or run a month in a millisecond.
"""

import sys
import time
from functools import partial
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
    """The clock of this machine, which is read some fifty times for each fire: without a call of Python."""

    now = staticmethod(time.time_ns)
    """Returns `CLOCK_REALTIME` in nanoseconds since the Unix epoch."""

    if sys.platform == "linux":
        monotonic = staticmethod(partial(time.clock_gettime_ns, time.CLOCK_BOOTTIME))
        """Returns `CLOCK_BOOTTIME` in nanoseconds."""
    else:
        monotonic = staticmethod(time.monotonic_ns)
        """Returns nanoseconds; the machine's sleep may not be counted."""


def thread_seconds() -> float:
    """Return the process time (s) that this thread has used."""
    return time.thread_time()
