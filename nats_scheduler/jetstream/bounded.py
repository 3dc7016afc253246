"""Many requests, some at a time, each answered exactly once.

What reads and purges have in common: they come in herds of thousands, the server should see some hundreds at once,
and the engine must hear of every one of them, also when the contact ends first.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nats_scheduler.engine.inputs import Input
from nats_scheduler.engine.port import Tell

Request = TypeVar("Request")


class BoundedRequests(Generic[Request]):
    """Makes requests in the order in which they were begun, at most `limit` at a time."""

    def __init__(
        self,
        tell: Tell,
        tasks: asyncio.TaskGroup,
        *,
        ask: Callable[[Request], Awaitable[Input]],
        give_up: Callable[[Request, str], Input],
        limit: int,
    ) -> None:
        self._tell = tell
        self._tasks = tasks
        self._ask = ask
        self._give_up = give_up
        self._limit = limit
        self._waiting: deque[Request] = deque()
        self._workers = 0
        self._ended: str | None = None

    def begin(self, request: Request) -> None:
        """Make a request as soon as there is room for it."""
        if self._ended is not None:
            self._tell(self._give_up(request, self._ended))
            return
        self._waiting.append(request)
        if self._workers < self._limit:
            self._workers += 1
            self._tasks.create_task(self._work())

    def end(self, reason: str) -> None:
        """Make no further request; those that wait are answered with `reason`."""
        self._ended = reason
        while self._waiting:
            self._tell(self._give_up(self._waiting.popleft(), reason))

    async def _work(self) -> None:
        while self._waiting:
            self._tell(await self._ask(self._waiting.popleft()))
        self._workers -= 1
