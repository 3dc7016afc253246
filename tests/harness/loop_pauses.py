"""How long the event loop did not run, and whether this process was at work meanwhile or the machine stood still."""

import asyncio
import time


class LoopPauses:
    """Looks at the running loop from now on, each `interval` (s), until `end`."""

    def __init__(self, interval: float) -> None:
        self.interval = interval
        self.longest = 0.0
        """The longest time (s) between two looks."""
        self.longest_standstill = 0.0
        """The longest of those (s) of which this process used less than half."""
        self._loop = asyncio.get_running_loop()
        self._seen = time.monotonic(), time.process_time()
        self._next = self._loop.call_later(interval, self._look)

    @property
    def latest(self) -> float:
        """How late (s) the loop was at most."""
        return max(self.longest - self.interval, 0.0)

    def _look(self) -> None:
        before, used_before = self._seen
        now, used = self._seen = time.monotonic(), time.process_time()
        self.longest = max(self.longest, now - before)
        if (used - used_before) * 2 < now - before:
            self.longest_standstill = max(self.longest_standstill, now - before)
        self._next = self._loop.call_later(self.interval, self._look)

    def end(self) -> None:
        """Look no more."""
        self._next.cancel()
