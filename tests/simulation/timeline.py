"""Virtual time: a timeline of coming events, and event loops that take their time from it.

Its rule: one heap orders everything in a simulated world, by instant and then by the order of asking; nothing waits.
asyncio goes through its sets (the tasks of a group, what is waited for) in the order of hashes, which are addresses
usually: here they follow from the order of making, so that a seed is the same in every process.
A loop runs whatever the runtime needs: callbacks, timers, futures and tasks.
Time passes only between steps, so a part that asks for another step without end would stop it: that raises.
"""

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

from nats_scheduler.testing.manual_clock import ManualClock

SECOND = 1_000_000_000

MAX_STEPS_PER_SECOND = 50_000
"""Most events and callbacks of a second of virtual time: a hundred times what the busiest of a thousand seeds needs."""

Event = Callable[[], None]
Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


class EndlessError(Exception):
    """A world steps without end: more happens within a second of its time than `MAX_STEPS_PER_SECOND`."""


class Timeline:
    """The coming events, and the clock."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._events: list[tuple[int, int, Event]] = []
        self._number = 0
        self._steps = self._second = 0

    @property
    def now(self) -> int:
        """The time of the server (ns)."""
        return self.clock.now()

    def number(self) -> int:
        """Return another number at each call."""
        self._number += 1
        return self._number

    def after(self, duration: int, event: Event) -> None:
        """Let something happen in `duration` ns."""
        heapq.heappush(self._events, (self.clock.monotonic() + duration, self.number(), event))

    def run(self, duration: int) -> None:
        """Let `duration` ns pass, with all events that come meanwhile."""
        clock, events = self.clock, self._events
        end = clock.monotonic() + duration
        while events and events[0][0] <= end:
            instant, _number, event = heapq.heappop(events)
            clock.advance(instant - clock.monotonic())
            self.step()
            event()
        clock.advance(end - clock.monotonic())

    def step(self) -> None:
        """Count what happens next; raises `EndlessError`, and then counts anew."""
        second = self.clock.monotonic() // SECOND
        self._steps = self._steps + 1 if second == self._second else 1
        self._second = second
        if self._steps > MAX_STEPS_PER_SECOND:
            self._steps = 0
            raise EndlessError(f"more than {MAX_STEPS_PER_SECOND:,} steps within a second of virtual time")


class NumberedFuture(asyncio.Future[Any]):
    """A future that has its place in a set by when it was made."""

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self._place = hash((number,))  # of integers: the same in every process, and in no obvious order
        super().__init__(loop=loop)

    def __hash__(self) -> int:
        """Return the place."""
        return self._place


class NumberedTask(asyncio.Task[Any]):
    """A task that has its place in a set by when it was made."""

    def __init__(self, number: int, coro: Any, **how: Any) -> None:
        self._place = hash((number,))
        super().__init__(coro, **how)

    def __hash__(self) -> int:
        """Return the place."""
        return self._place


class VirtualLoop(asyncio.AbstractEventLoop):
    """The event loop of one process: `run` decides whether and when the process gets to do something."""

    def __init__(self, timeline: Timeline, run: Callable[[Event], None]) -> None:
        self._timeline = timeline
        self._run = run
        self._ready: deque[asyncio.Handle] = deque()
        self._turn_is_due = False
        self.is_over = False
        """True if the process is dead: its tasks are only unwound."""

    def time(self) -> float:
        """Return seconds of virtual time."""
        return self._timeline.clock.monotonic() / SECOND

    def call_soon(
        self, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.Handle:
        """Call something in this turn or the next."""
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        if not self._turn_is_due:
            self._turn_is_due = True
            self._timeline.after(0, lambda: self._run(self._turn))
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something in `delay` seconds."""
        handle = asyncio.TimerHandle(self.time() + delay, callback, args, self, context)

        def due() -> None:
            if not handle.cancelled():
                self._run(lambda: self._call(handle))

        self._timeline.after(max(round(delay * SECOND), 0), due)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Arguments], object], *args: *Arguments, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """Call something at a time of this loop."""
        return self.call_later(when - self.time(), callback, *args, context=context)

    def create_future(self) -> asyncio.Future[Any]:
        """Make a future of this loop."""
        return NumberedFuture(self._timeline.number(), self)

    def create_task(
        self,
        coro: Generator[Any, None, Result] | Coroutine[Any, Any, Result],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[Result]:
        """Begin a task."""
        return NumberedTask(self._timeline.number(), coro, loop=self, name=name, context=context)

    def get_debug(self) -> bool:
        """Say that nothing is debugged."""
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Raise what a callback raised, in the caller that runs the world."""
        if not self.is_over:
            raise context.get("exception") or RuntimeError(context["message"])

    def unwind(self) -> None:
        """End every task; no time passes for that."""
        self.is_over = True
        for task in sorted(asyncio.all_tasks(self), key=hash):
            task.cancel()
        self._turn()

    def _turn(self) -> None:
        self._turn_is_due = False
        was_over = self.is_over
        while self._ready and self.is_over is was_over:
            self._call(self._ready.popleft())

    def _call(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        self._timeline.step()
        before = asyncio._get_running_loop()
        asyncio._set_running_loop(self)
        try:
            handle._run()
        finally:
            asyncio._set_running_loop(before)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Do nothing: a cancelled timer is skipped."""


def virtual_loop(timeline: Timeline, run: Callable[[Event], None]) -> VirtualLoop:
    """Make the loop of a process."""
    return VirtualLoop(timeline, run)  # type: ignore[abstract]  # of the 50 methods of a loop few are needed
