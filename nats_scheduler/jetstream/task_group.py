"""A task group that never loses the cancellation of the task that waits for it.

If a child fails while the parent is cancelled, `asyncio.TaskGroup` raises the child's error and drops the cancellation.
A parent that retries after such an error then goes on for ever, and so does each task that waits for its end. Both
happen together whenever a connection is lost: all requests fail, and all work is cancelled.

The rule: the package uses this group everywhere (`tests/house` holds it). Cost: a wait and a comparison for each group.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterable
from contextvars import Context
from operator import length_hint
from types import TracebackType
from typing import Any, Self, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=BaseException)


class TaskGroup(asyncio.TaskGroup):
    """An `asyncio.TaskGroup` in which a cancellation from outside has priority over the errors of children."""

    def __init__(self) -> None:
        super().__init__()
        self._children: set[asyncio.Task[Any]] = set()
        self._cancelled_before = 0

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: str | None = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Begin a child, as the base class does."""
        child = super().create_task(coro, name=name, context=context)
        self._children.add(child)
        child.add_done_callback(self._children.discard)
        return child

    async def __aenter__(self) -> Self:
        self._cancelled_before = _cancellations()
        return await super().__aenter__()

    async def __aexit__(
        self, et: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        # The base class cancels the parent for a child that failed, and takes that back only if it was done before its
        # exit began: so the parent waits here, and what is counted behind the exit came from outside.
        try:
            while exc is None and self._children:
                await asyncio.wait(self._children)
        except asyncio.CancelledError as cancelled:
            et, exc, tb = type(cancelled), cancelled, cancelled.__traceback__
        try:
            await super().__aexit__(et, exc, tb)
        except BaseExceptionGroup as errors:
            if _cancellations() > self._cancelled_before:
                raise asyncio.CancelledError from errors
            raise


def _cancellations() -> int:
    """Return how often the current task was cancelled from outside."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


def first_of(errors: BaseExceptionGroup[E]) -> E:
    """Return the first error of a group that may have groups in it."""
    first = errors.exceptions[0]
    return first_of(first) if isinstance(first, BaseExceptionGroup) else first


MAX_WORKS_AT_ONCE = 64
"""The largest number of works in progress: enough to keep a server busy, few enough that fires are answered between.

A work that waits for a leader keeps its place for seconds, and others wait for a place.
"""

Work = Callable[[], Awaitable[object]]


async def in_turn(works: Iterable[Callable[[], Awaitable[T]]], at_once: int = MAX_WORKS_AT_ONCE) -> list[T]:
    """Do all works, begun in this order, `at_once` at a time, and return their results in the same order.

    The first error ends them and is raised. So with a thousand streams not all requests are sent at once.
    """
    count, left, results = length_hint(works, at_once), iter(works), list[Any]()

    async def go_on() -> None:
        for work in left:
            place = len(results)
            results.append(None)
            results[place] = await work()

    try:
        async with TaskGroup() as tasks:
            for _ in range(min(at_once, count)):
                tasks.create_task(go_on())
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None
    return results
