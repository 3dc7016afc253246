"""An event loop whose timers are punctual.

Python waits for sockets with `epoll`, which counts in whole milliseconds, and rounds up: a fire came half a millisecond
late on average for that alone.
`select` counts in microseconds, and it can wait for the `epoll` descriptor, which is readable when any socket is.

While fires follow each other closely the loop can rest (`runtime.fewer_wakes`): then only timers are run, and what
arrives is read at the end of the rest, also if a timer was run meanwhile.

Cost: one more system call for each sleep of the loop, and none for a rest.
Limit: a signal, or another thread, is noticed at the end of a rest too. Where that descriptor's number is too high for
`select`, the loop waits as Python does.
"""

import asyncio
import select
import selectors
import sys
from collections.abc import Callable, Coroutine
from time import sleep
from typing import Any, TypeVar

Result = TypeVar("Result")

if sys.platform == "linux":
    FIRST_DESCRIPTOR_TOO_HIGH = 1024
    """`FD_SETSIZE`: what `select` cannot take."""

    class PunctualSelector(selectors.EpollSelector):
        """Waits for sockets, or for a time to the microsecond."""

        def __init__(self, now: Callable[[], float] = lambda: 0.0) -> None:
            """Wait by a clock that returns seconds."""
            super().__init__()
            self._now = now
            self.rests_until = 0.0
            """Until this time what gets ready does not end a wait; 0: no rest."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Return what is ready, after `timeout` seconds at most (None: however long it takes)."""
            if self.rests_until:
                left = self.rests_until - self._now()
                if left > 0:
                    waited = left if timeout is None else min(left, timeout)
                    if waited > 0:
                        sleep(waited)
                    if waited < left:
                        return []
                    timeout = 0
                self.rests_until = 0.0
            epoll = self.fileno()
            if timeout is not None and timeout > 0 and epoll < FIRST_DESCRIPTOR_TOO_HIGH:
                if not select.select((epoll,), (), (), timeout)[0]:
                    return []
                timeout = 0
            return super().select(timeout)

    class PunctualLoop(asyncio.SelectorEventLoop):
        """An event loop that waits to the microsecond."""

        def __init__(self) -> None:
            self._selector_that_rests = PunctualSelector(self.time)
            super().__init__(self._selector_that_rests)

        def rest_until(self, at: float) -> None:
            """Read nothing that arrives before `at` (s of the loop's clock): run only timers. 0: read it at once."""
            self._selector_that_rests.rests_until = at

    def punctual_loop() -> asyncio.AbstractEventLoop:
        """Return a new event loop that waits to the microsecond."""
        return PunctualLoop()

else:

    def punctual_loop() -> asyncio.AbstractEventLoop:
        """Return a new event loop: elsewhere its timers are as exact as the system's."""
        return asyncio.new_event_loop()


def run_punctually(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on a loop of its own, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=punctual_loop) as runner:
        return runner.run(main)
