"""Many requests, some at a time, each answered exactly once.

What reads and purges have in common: they come in herds of thousands, the server should see some hundreds at once,
and the engine must hear of every one of them, also when the contact ends first.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from nats_scheduler.engine.inputs import Input
from nats_scheduler.engine.port import Notify

Request = TypeVar("Request")


class BoundedRequests(Generic[Request]):
    """Makes requests in the order in which they were begun, at most `limit` at a time."""

    def __init__(
        self,
        notify: Notify,
        tasks: asyncio.TaskGroup,
        *,
        ask: Callable[[Request], Awaitable[Input]],
        give_up: Callable[[Request, str], Input],
        limit: int,
    ) -> None:
        self._notify = notify
        self._tasks = tasks
        self._ask = ask
        self._give_up = give_up
        self._limit = limit
        self._waiting: deque[Request] = deque()
        self._asked: dict[int, Request] = {}
        self._number = 0
        self._workers = 0
        self._ended: str | None = None

    def begin(self, request: Request) -> None:
        """Make a request as soon as there is room for it."""
        if self._ended is not None:
            self._notify(self._give_up(request, self._ended))
            return
        self._waiting.append(request)
        if self._workers < self._limit and is_started(self._work(), self._tasks):
            self._workers += 1

    def end(self, reason: str) -> None:
        """Answer everything that was begun with `reason`; what the server says of it later is not told any more.

        That holds for requests under way too: the tasks that make them may have been cancelled and never answer.
        """
        if self._ended is not None:
            return
        self._ended = reason
        opened = [*self._asked.values(), *self._waiting]
        self._asked.clear()
        self._waiting.clear()
        for request in opened:
            self._notify(self._give_up(request, reason))

    async def _work(self) -> None:
        try:
            while self._waiting:
                self._number += 1
                number, request = self._number, self._waiting.popleft()
                self._asked[number] = request
                answer = await self._ask(request)
                if self._asked.pop(number, None) is not None:
                    self._notify(answer)
        finally:
            self._workers -= 1


def is_started(work: Coroutine[Any, Any, None], tasks: asyncio.TaskGroup) -> bool:
    """Start work in a task group; False where the group is ending, and whoever ends it answers what waits."""
    try:
        tasks.create_task(work)
    except RuntimeError:
        work.close()
        return False
    return True
