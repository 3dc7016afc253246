"""An event loop whose timers are punctual.

Python waits for sockets with `epoll`, which counts in whole milliseconds, and rounds up: a fire came half a millisecond
late on average for that alone.
`select` counts in microseconds, and it can wait for the `epoll` descriptor, which is readable when any socket is.

Cost: one more system call for each sleep of the loop.
Limit: where that descriptor's number is too high for `select`, the loop waits as Python does.
"""

import asyncio
import select
import selectors
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")

if sys.platform == "linux":
    FIRST_DESCRIPTOR_TOO_HIGH = 1024
    """`FD_SETSIZE`: what `select` cannot take."""

    class PunctualSelector(selectors.EpollSelector):
        """Waits for sockets, or for a time to the microsecond."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            """Return what is ready, after `timeout` seconds at most (None: however long it takes)."""
            epoll = self.fileno()
            if timeout is not None and timeout > 0 and epoll < FIRST_DESCRIPTOR_TOO_HIGH:
                if not select.select((epoll,), (), (), timeout)[0]:
                    return []
                timeout = 0
            return super().select(timeout)

    def punctual_loop() -> asyncio.AbstractEventLoop:
        """Return a new event loop that waits to the microsecond."""
        return asyncio.SelectorEventLoop(PunctualSelector())

else:

    def punctual_loop() -> asyncio.AbstractEventLoop:
        """Return a new event loop: elsewhere its timers are as exact as the system's."""
        return asyncio.new_event_loop()


def run_punctually(main: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine on a loop of its own, as `asyncio.run` does."""
    with asyncio.Runner(loop_factory=punctual_loop) as runner:
        return runner.run(main)
