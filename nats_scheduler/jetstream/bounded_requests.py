"""Many requests, a limited number at a time, each answered exactly once.

Reads and purges have in common that they come in bursts of thousands, and that the server should get some hundreds at
once. The engine must receive an answer to each of them, also if the contact ends first.
`task_group.in_turn` ends with the works that it was given; here requests come for as long as a contact lasts, and in a
burst not every one costs a task.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from nats_scheduler.control.errors import ConnectionLostError, ForbiddenError, SchedulerError
from nats_scheduler.engine.inputs import Input, Unanswered
from nats_scheduler.engine.stream_port import Notify

Request = TypeVar("Request")


def unanswered(question: Any, error: SchedulerError) -> Input:
    """Return the answer to a question about a fire that failed."""
    return Unanswered(question, str(error), denied=isinstance(error, ForbiddenError))


class BoundedRequests(Generic[Request]):
    """Sends requests in the order in which they were begun, at most `limit` at a time."""

    def __init__(
        self,
        notify: Notify,
        tasks: asyncio.TaskGroup,
        *,
        ask: Callable[[Request], Awaitable[Input]],
        limit: int,
        failed: Callable[[Any, SchedulerError], Input] | None = None,
    ) -> None:
        """Send at most `limit` requests at a time.

        `ask` sends one; `failed` returns the answer to one of which `ask` raised `SchedulerError`, or that is still
        open at the end, `Unanswered` if it is None.
        """
        self._notify = notify
        self._tasks = tasks
        self._ask = ask
        self._failed = failed or unanswered
        self._limit = limit
        self._waiting: deque[Request] = deque()
        self._asked: dict[int, Request] = {}
        self._number = 0
        self._workers = 0
        self._ended: ConnectionLostError | None = None

    def begin(self, request: Request) -> None:
        """Send a request as soon as fewer than `limit` are in flight."""
        if self._ended is not None:
            self._notify(self._failed(request, self._ended))
            return
        self._waiting.append(request)
        self._start_worker()

    def _start_worker(self) -> None:
        if self._workers < self._limit and start_in_group(self._work(), self._tasks):
            self._workers += 1

    def end(self, reason: str) -> None:
        """Answer everything that is still open with `reason`, and discard what the server answers later.

        That includes requests in flight: the tasks that send them may have been cancelled, and then never answer.
        """
        if self._ended is not None:
            return
        self._ended = ConnectionLostError(reason)
        opened = [*self._asked.values(), *self._waiting]
        self._asked.clear()
        self._waiting.clear()
        for request in opened:
            self._notify(self._failed(request, self._ended))

    async def _work(self) -> None:
        try:
            while self._waiting:
                self._number += 1
                number, request = self._number, self._waiting.popleft()
                self._asked[number] = request
                try:
                    answer = await self._ask(request)
                except SchedulerError as error:
                    answer = self._failed(request, error)
                if self._asked.pop(number, None) is not None:
                    self._notify(answer)
        finally:
            self._workers -= 1


def start_in_group(work: Coroutine[Any, Any, None], tasks: asyncio.TaskGroup) -> bool:
    """Start work in a task group; return False if the group is ending, whose end answers what still waits."""
    try:
        tasks.create_task(work)
    except RuntimeError:
        work.close()
        return False
    return True
