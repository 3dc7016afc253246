"""Long work for requests, so that no fire waits for it: beside the event loop, or in slices on it.

The rules:

- What is asked of an engine whose rows are in a file is done in a thread (`runtime.file_views`).
- All else is done in slices, one in each turn of the event loop. A slice takes about `SLICE_SECONDS`, and is done when
  nothing is due during it and no fire is in flight. Between two of them the loop sends what is due and reads what
  arrived, and the pause is at least as long as the slice was: slices take at most half of the process's time, however
  many requests there are.
- If fires follow each other so closely that this is never so, a slice is done after `FIRES_PAUSE_LIMIT_SECONDS`.
- Works take turns one after the other: many requests at once do not make slices longer.
- While a burst of fires lasts, no slice is done: its acknowledgements are many turns, and a slice would delay each.
  What lasts longer than `BURST_PAUSE_LIMIT_SECONDS` is not waited for: with a distant server it is the usual load.
- A change of a schedule is not sliced, because it waits for the server most of the time. It begins in a moment without
  fires, `BEGINNINGS_APART_SECONDS` after the one before: many at once are not worked on in one turn of the loop.
- A work that is not finished within `WORK_LIMIT_SECONDS` is given up, and its request is refused.

Cost: two reads of the loop's clock for each slice, and one for each unit of work.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

from nats_scheduler.engine.holding.table import Table
from nats_scheduler.engine.views.seen import Part, Question, Work
from nats_scheduler.jetstream.single_flight import loop_time
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError

T = TypeVar("T")

SLICE_SECONDS = 0.0005
"""The approximate length of a slice; its last unit of work may exceed it, by a fraction of a millisecond."""

SPARE_SECONDS = 2 * SLICE_SECONDS
"""No slice begins if something is due within this time."""

FIRES_CHECK_INTERVAL_SECONDS = 0.0005
"""The interval at which it is checked whether fires are still due or in flight."""

FIRES_PAUSE_LIMIT_SECONDS = 0.003
"""Longest wait for a moment without fires before one slice."""

BURST_CHECK_INTERVAL_SECONDS = 0.01
"""The interval at which it is checked whether a burst is over."""

BURST_PAUSE_LIMIT_SECONDS = 2.0
"""Longest wait for the end of a burst before one slice."""

BEGINNINGS_APART_SECONDS = 0.005
"""Shortest time between the beginnings of two changes, each of which takes the process about a millisecond."""

WORK_LIMIT_SECONDS = 30.0
"""Longest time for the work of one request, waiting included."""


class Fires(Protocol):
    """The fires to which long work has to give way."""

    def is_burst(self) -> bool:
        """Return whether a burst of fires lasts on any stream."""
        ...

    def spare_seconds(self) -> float:
        """Return how long (s) no stream has anything to do, as far as is known: 0 while a fire is in flight."""
        ...


class RowsBeside(Protocol):
    """Reads rows beside the event loop; see `runtime.file_views`."""

    def reads(self, table: Table) -> bool:
        """Return whether it can read the rows of a table now."""
        ...

    async def answer(self, part: Part[T]) -> T:
        """Answer a part of a question about this moment; raises the `ServiceError` of `unreadable`."""
        ...


class Turns:
    """The turns of all requests of one process."""

    def __init__(self, fires: Fires, rows: RowsBeside | None = None) -> None:
        """Give way to these fires; `rows` reads beside the loop what it can."""
        self._fires = fires
        self._rows = rows
        self._turn = asyncio.Lock()
        self._beginning = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self.sliced_seconds = 0.0
        """The time that all slices on the event loop have taken."""

    async def ask(self, question: Question[T]) -> T:
        """Return the answer to a question; raises `ServiceError` if it takes too long, or if no rows can be read."""
        try:
            async with asyncio.timeout(WORK_LIMIT_SECONDS):
                return question.merge([await self._answer(part) for part in question.parts])
        except TimeoutError:
            raise _too_long() from None

    async def _answer(self, part: Part[T]) -> T:
        if self._rows is None or not self._rows.reads(part.table):
            return await self._finish(part.here())
        return await self._rows.answer(part)

    async def run(self, work: Work[T]) -> T:
        """Do work that yields after each unit, and return its result; raises `ServiceError` if it takes too long."""
        try:
            async with asyncio.timeout(WORK_LIMIT_SECONDS):
                return await self._finish(work)
        except TimeoutError:
            raise _too_long() from None

    async def _finish(self, work: Work[T]) -> T:
        """Do all slices of work, and return its result."""
        results: list[T] = []

        def advance() -> None:
            until = self._loop.time() + SLICE_SECONDS
            try:
                next(work)
                while self._loop.time() < until:
                    next(work)
            except StopIteration as end:
                results.append(end.value)

        try:
            while not results:
                await self._slice(advance)
        finally:
            work.close()
        return results[0]

    async def begin(self) -> None:
        """Wait until what is not sliced may begin."""
        async with self._beginning:
            await self.moment_without_fires()
            await asyncio.sleep(BEGINNINGS_APART_SECONDS)

    async def _slice(self, advance: Callable[[], None]) -> None:
        """Do one slice and make a pause."""
        async with self._turn:
            await self.moment_without_fires()
            began = self._loop.time()
            advance()
            took = self._loop.time() - began
            self.sliced_seconds += took
            await asyncio.sleep(took)

    async def moment_without_fires(self) -> None:
        """Wait until a slice would delay no fire, or until it has been waited for long enough."""
        waited = 0.0
        while waited < BURST_PAUSE_LIMIT_SECONDS and self._fires.is_burst():
            await asyncio.sleep(BURST_CHECK_INTERVAL_SECONDS)
            waited += BURST_CHECK_INTERVAL_SECONDS
        waited = 0.0
        while waited < FIRES_PAUSE_LIMIT_SECONDS and self._fires.spare_seconds() < SPARE_SECONDS:
            await asyncio.sleep(FIRES_CHECK_INTERVAL_SECONDS)
            waited += FIRES_CHECK_INTERVAL_SECONDS


def unreadable(reason: str) -> ServiceError:
    """Return the error of a question whose rows cannot be read."""
    return ServiceError(UNAVAILABLE, f"the schedules cannot be read: {reason}")


def _too_long() -> ServiceError:
    return ServiceError(UNAVAILABLE, f"not finished within {WORK_LIMIT_SECONDS:.0f} s: the sidecar is busy with fires")


REUSE_FACTOR = 10
REUSE_LIMIT_SECONDS = 30.0
SHORT_WORK_SECONDS = 0.02
MAX_RESULTS = 64
"""Different requests whose results are kept."""


async def reusable(work: Awaitable[T]) -> tuple[T, float]:
    """Do long work for a `SingleFlight`: an open page asks for the same again and again.

    Its result is reused for `REUSE_FACTOR` times as long as it took, so that requests for the same take at most a tenth
    of the time, and not for longer than `REUSE_LIMIT_SECONDS`; if it took less than `SHORT_WORK_SECONDS`, not at all.
    """
    began = loop_time()
    result = await work
    took = loop_time() - began
    return result, min(REUSE_FACTOR * took, REUSE_LIMIT_SECONDS) if took >= SHORT_WORK_SECONDS else 0.0
