"""Work that several ask for, done once for all who ask at the same time; its result may be kept for some time.

The rules:

- The first request begins the work, in a task of its own, and those that come meanwhile wait for it. All get the same
  result, or the same error; an error is not kept.
- A request that is cancelled ends the work only if no other one waits for it. So no work outlives its requests, and it
  needs no group of tasks. A request whose patience ends leaves the work running for the next one, or for `close`.
- A request that is about a moment (`since`) does not get the result of work that began before.

Cost: a task for each work, and a future for each request that waits.
Limit: the last result stays in memory when its time is over: it is of use while there is no other (`last`).
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

Work = Callable[[], Awaitable[tuple[T, float]]]
"""Does the work; returns its result, and for how long (s) that is kept after the end."""


class UnfinishedError(Exception):
    """The work was not finished within the patience of a request, and goes on."""


def loop_time() -> float:
    """Return the time (s) of the event loop."""
    return asyncio.get_running_loop().time()


class _Result(NamedTuple, Generic[T]):
    """The result of work, when that began, and until when it is kept (s)."""

    value: T
    began: float
    until: float


@dataclass(slots=True, eq=False)
class _Flight(Generic[T]):
    """Work that is done, when it began (s), which is `inf` before its first step, and how many wait for it."""

    task: asyncio.Task[T]
    began: float = inf
    waiting: int = 0


class SingleFlight(Generic[T]):
    """One kind of work, and its last result."""

    def __init__(self, now: Callable[[], float] = loop_time) -> None:
        """Do nothing yet; `now` returns s that never go back."""
        self._now = now
        self._flight: _Flight[T] | None = None
        self._last: _Result[T] | None = None
        self._expired_at = -inf

    @property
    def is_running(self) -> bool:
        """True while the work is done."""
        return self._flight is not None

    @property
    def last(self) -> T | None:
        """The last result, however old it is; None if there is none."""
        return None if self._last is None else self._last.value

    def expire(self) -> None:
        """Answer no request from now on with the result of work that began before."""
        self._expired_at = self._now()

    async def get(self, work: Work[T], *, since: float | None = None, patience: float | None = None) -> T:
        """Return the result that is kept, or else that of work which is in progress or begins now.

        With `since` (s, by the clock of `now`) the work has to begin after that; a result of such work counts also if
        it is not kept. Raises as the work does, and `UnfinishedError` if there is no result within `patience` (s).
        """
        until = inf if patience is None else loop_time() + patience
        while (kept := self._kept(since)) is None:
            flight = self._flight or self._begin(work)
            is_for_us = flight.began > max(self._expired_at, -inf if since is None else since)
            await _wait_for(flight, until)
            if is_for_us and not flight.task.cancelled():
                return flight.task.result()
        return kept.value

    async def close(self) -> None:
        """End the work that goes on without a request; one that still waits begins it again."""
        if self._flight is not None:
            await _end(self._flight.task)

    def _kept(self, since: float | None) -> _Result[T] | None:
        last = self._last
        if last is None or last.began <= self._expired_at:
            return None
        return last if self._now() < last.until or (since is not None and last.began > since) else None

    def _begin(self, work: Work[T]) -> _Flight[T]:
        flight = self._flight = _Flight(asyncio.create_task(self._do(work)))
        flight.task.add_done_callback(self._ended)
        return flight

    async def _do(self, work: Work[T]) -> T:
        assert self._flight is not None, "it is this one until its task has ended"
        began = self._flight.began = self._now()
        value, seconds = await work()
        self._last = _Result(value, began, self._now() + seconds)
        return value

    def _ended(self, task: asyncio.Task[T]) -> None:
        self._flight = None
        if not task.cancelled():
            task.exception()  # else asyncio logs it if no request waits any more


class SingleFlights(Generic[T]):
    """Work of one kind for different keys: `most` are kept, and those that run; the least recent one goes first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._flights: OrderedDict[Hashable, SingleFlight[T]] = OrderedDict()

    def of(self, key: Hashable) -> SingleFlight[T]:
        """Return the work for a key."""
        found = self._flights.setdefault(key, SingleFlight())
        self._flights.move_to_end(key)
        if len(self._flights) > self._most:
            idle = [one for one, flight in self._flights.items() if not (flight.is_running or flight is found)]
            for one in idle[: len(self._flights) - self._most]:
                del self._flights[one]
        return found

    def expire(self) -> None:
        """Answer no request from now on with the result of work that began before."""
        for flight in self._flights.values():
            flight.expire()

    async def close(self) -> None:
        """End the work that goes on without a request."""
        for flight in list(self._flights.values()):
            await flight.close()


async def _wait_for(flight: _Flight[T], until: float) -> None:
    """Wait for the end of work; raises `UnfinishedError` at `until` (s)."""
    flight.waiting += 1
    try:
        left = None if until == inf else max(until - loop_time(), 0)
        done, _pending = await asyncio.wait((flight.task,), timeout=left)
    except asyncio.CancelledError:
        if flight.waiting == 1:
            await _end(flight.task)
        raise
    finally:
        flight.waiting -= 1
    if not done:
        raise UnfinishedError


async def _end(task: asyncio.Task[T]) -> None:
    task.cancel()
    await asyncio.wait((task,))
