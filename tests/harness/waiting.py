"""Waiting for a condition within a deadline, the one place in the tests that may sleep, and for many cases.

Its rule: a test waits for what it wants to see, never for an amount of time.
"""

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar, overload

PATIENCE_SECONDS = 90.0
"""The longest wait for what should take milliseconds: a busy machine may stop a process for many seconds.

Only what a promise limits has another deadline.
"""
POLL_SECONDS = 0.02
"""Pause between two looks: short beside any deadline, long beside one look."""

MAX_CASES_AT_ONCE = 12
"""Cases that two cores can serve beside each other: each has a stream and a consumer on several servers."""

T = TypeVar("T")
Described = str | Callable[[], str]


@overload
async def eventually(
    condition: Callable[[], Coroutine[Any, Any, T | None]], *, within_seconds: float = ..., describe: Described = ...
) -> T: ...
@overload
async def eventually(
    condition: Callable[[], T | None], *, within_seconds: float = ..., describe: Described = ...
) -> T: ...
async def eventually(
    condition: Callable[[], Any],
    *,
    within_seconds: float = PATIENCE_SECONDS,
    describe: Described = "the condition",
) -> Any:
    """Look at the condition, plain or async, until it is true, and return what it gave.

    An AssertionError inside the condition counts as "not yet" and is shown when the deadline passes; any
    other error ends the wait at once. `describe` may be a function, called only on failure, that shows the
    state reached.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within_seconds
    last: AssertionError | None = None
    while True:
        try:
            seen = condition()
            found = await seen if inspect.isawaitable(seen) else seen
            if found:
                return found
        except AssertionError as error:
            last = error
        if loop.time() >= deadline:
            said = describe() if callable(describe) else describe
            raise AssertionError(f"{said} did not hold within {within_seconds:g} s") from last
        await asyncio.sleep(POLL_SECONDS)


async def instant_reached(instant: int, now: Callable[[], int]) -> None:
    """Return when the clock `now` shows `instant` (ns), give or take a millisecond: for acts that have to meet."""
    await asyncio.sleep(max(instant - now(), 0) / 1e9)


async def time_reached(time: float) -> None:
    """Return when the loop's clock shows `time` (seconds): for what has to be slow, such as a bad network."""
    await asyncio.sleep(max(time - asyncio.get_running_loop().time(), 0))


async def one_turn() -> None:
    """Let what is ready in the event loop run, once."""
    await asyncio.sleep(0)


async def few_at_once(cases: Iterable[Coroutine[Any, Any, T]], most: int = MAX_CASES_AT_ONCE) -> list[T]:
    """Run cases that wait for most of their time, at most `most` at once; return what each gave, in their order.

    The first one that fails ends those that have begun, and the others do not begin.
    """
    room, all_cases = asyncio.Semaphore(most), list(cases)

    async def run(case: Coroutine[Any, Any, T]) -> T:
        async with room:
            return await case

    tasks = [asyncio.create_task(run(case)) for case in all_cases]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for case in all_cases:
            case.close()  # one that was not begun would be reported as never awaited
