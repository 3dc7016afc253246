"""One request for all that ask the same at the same moment.

The rule: an answer comes from a request that was sent after the question was asked, so it is never older than that.

Cost: at most two requests for any number of questions that come during one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from nats_scheduler.jetstream.bounded import is_started
from nats_scheduler.jetstream.errors import ConnectionLostError, JetStreamError

Answer = TypeVar("Answer")


class Combined(Generic[Answer]):
    """A question that many ask."""

    def __init__(self, tasks: asyncio.TaskGroup, ask: Callable[[], Awaitable[Answer]]) -> None:
        """Answer with what `ask` returns or raises; it runs in the task group."""
        self._tasks = tasks
        self._ask = ask
        self._waiting: list[asyncio.Future[Answer]] = []
        self._is_asking = False

    async def answer(self) -> Answer:
        """Return the answer of a request that is sent after this call began; raises `JetStreamError` as that does."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        if not self._is_asking:
            self._is_asking = is_started(self._answer_all(), self._tasks)
        if not self._is_asking:
            raise ConnectionLostError("the contact with the stream is ending")
        return await answer

    @property
    def is_idle(self) -> bool:
        """Whether no question waits for its answer."""
        return not self._is_asking

    async def _answer_all(self) -> None:
        """Ask once for all that wait, and again for all that came meanwhile."""
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                try:
                    found = await self._ask()
                except JetStreamError as error:
                    for answer in asked:
                        answer.set_exception(error)
                    continue
                for answer in asked:
                    answer.set_result(found)
        finally:
            self._is_asking = False
