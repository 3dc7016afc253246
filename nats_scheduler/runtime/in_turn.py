"""Do much work of one kind, some of it at a time: with a thousand streams, not all requests are sent at once."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

MAX_WORKS_AT_ONCE = 64
"""How many works are in progress at a time: enough to keep a server busy, few enough that fires are answered between.

A work that waits for a leader keeps its place for seconds, and others wait for a place.
"""

Work = Callable[[], Awaitable[object]]


async def in_turn(works: Sequence[Work], at_once: int = MAX_WORKS_AT_ONCE) -> None:
    """Do all works, begun in this order, `at_once` at a time; the first error ends them and is raised."""
    left = iter(works)

    async def go_on() -> None:
        for work in left:
            await work()

    tasks = [asyncio.create_task(go_on()) for _ in range(min(at_once, len(works)))]
    if not tasks:
        return
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
