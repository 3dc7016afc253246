"""Virtual time: what happens next, and an event loop that lives in it.

Its rule: one heap orders everything in a simulated world, by instant and then by the order of asking; nothing waits.
The loop is as much of an event loop as `runtime.driver.StreamDriver` needs: callbacks, timers and futures.
"""

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context
from typing import Any, TypeVarTuple

from nats_scheduler.testing.clock import ManualClock

SECOND = 1_000_000_000

Event = Callable[[], None]
Arguments = TypeVarTuple("Arguments")


class Timeline:
    """What is going to happen, and the clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._events: list[tuple[int, int, Event]] = []
        self._number = 0

    @property
    def now(self) -> int:
        """The time of the server (ns)."""
        return self.clock.now()

    def after(self, duration: int, event: Event) -> None:
        """Have something happen in `duration` ns."""
        self._number += 1
        heapq.heappush(self._events, (self.clock.monotonic() + duration, self._number, event))

    def run(self, duration: int) -> None:
        """Let so many nanoseconds pass, and everything happen meanwhile."""
        clock, events = self.clock, self._events
        end = clock.monotonic() + duration
        while events and events[0][0] <= end:
            instant, _number, event = heapq.heappop(events)
            clock.advance(instant - clock.monotonic())
            event()
        clock.advance(end - clock.monotonic())


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one process: `run` decides whether and when the process gets to do something."""

    def __init__(self, timeline: Timeline, run: Callable[[Event], None]) -> None:
        self._timeline = timeline
        self._run = run

    def time(self) -> float:
        """Return seconds of virtual time."""
        return self._timeline.clock.monotonic() / SECOND

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Call something at the end of the turn."""
        handle = asyncio.Handle(callback, args, self, context)
        self._timeline.after(0, lambda: self._run(lambda: None if handle.cancelled() else _call(callback, *args)))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something in `delay` seconds."""
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)

        def due() -> None:
            if not handle.cancelled():
                self._run(lambda: None if handle.cancelled() else _call(callback, *args))

        self._timeline.after(round(delay * SECOND), due)
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return asyncio.Future(loop=self)

    def get_debug(self) -> bool:
        """Say that nothing is debugged."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Take note that a timer was cancelled: nothing to do."""


def _call(callback: Callable[[*Arguments], object], *args: *Arguments) -> None:
    callback(*args)


def virtual_loop(timeline: Timeline, run: Callable[[Event], None]) -> asyncio.AbstractEventLoop:
    """Make the loop of a process."""
    return VirtualLoop(timeline, run)  # type: ignore[abstract]  # of the 50 methods of a loop the driver uses four
