"""Standstills of a busy machine: the event loop does not run for a time of which the process used little itself."""

import asyncio
import time

LOOK_INTERVAL_SECONDS = 0.1


class Standstills:
    """Looks for them from now on, until `end`."""

    def __init__(self) -> None:
        self.longest = 0.0
        """The longest one (s). A time of which this process used half or more counts as work of ours."""
        self._loop = asyncio.get_running_loop()
        self._seen = time.monotonic(), time.process_time()
        self._next = self._loop.call_later(LOOK_INTERVAL_SECONDS, self._look)

    def _look(self) -> None:
        before, used_before = self._seen
        now, used = self._seen = time.monotonic(), time.process_time()
        if (used - used_before) * 2 < now - before:
            self.longest = max(self.longest, now - before)
        self._next = self._loop.call_later(LOOK_INTERVAL_SECONDS, self._look)

    def end(self) -> None:
        """Look no more."""
        self._next.cancel()
