"""Results of long work that are given to several requesters: a page that is open asks the same every other second.

The rule: a result is reused for `REUSE_FACTOR` times as long as its work took, so that requests for the same take at
most a tenth of the time, however many requesters there are; and not for longer than `REUSE_LIMIT_SECONDS`. Work that
took less than `SHORT_WORK_SECONDS` is done for each request. Requesters of the same wait for the same work.

Cost: a look-up for each request. Limit: results of `MAX_RESULTS` requests are kept.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")

REUSE_FACTOR = 10
REUSE_LIMIT_SECONDS = 30.0
SHORT_WORK_SECONDS = 0.02
MAX_RESULTS = 64
"""Different requests whose results are kept; the least recent one is dropped first."""


class _Result(Generic[T]):
    """What is known of one request."""

    __slots__ = ("lock", "until", "value")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.value: list[T] = []
        self.until = 0.0
        """Until when (s, by the loop's clock) the value may be reused."""


class Reused(Generic[T]):
    """The results of one kind of work."""

    def __init__(self) -> None:
        self._results: OrderedDict[Hashable, _Result[T]] = OrderedDict()

    async def get(self, key: Hashable, work: Callable[[], Awaitable[T]]) -> T:
        """Return the result for a key, of work that was done before or is done now; raises as the work does."""
        result = self._results.setdefault(key, _Result())
        self._results.move_to_end(key)
        if len(self._results) > MAX_RESULTS:
            self._results.popitem(last=False)
        async with result.lock:
            loop = asyncio.get_running_loop()
            began = loop.time()
            if began >= result.until:
                result.value = [await work()]
                took = loop.time() - began
                is_long = took >= SHORT_WORK_SECONDS
                result.until = loop.time() + min(REUSE_FACTOR * took, REUSE_LIMIT_SECONDS) if is_long else 0.0
            return result.value[0]
