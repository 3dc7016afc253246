"""Work that goes on beside the serving of an account, and ends with it.

The rule: an error of our own making ends the piece of work that raised it, and nothing else.
"""

import asyncio
from collections.abc import Coroutine

from nats_scheduler.observe.reporter import Reporter


class Background:
    """The pieces of work of one task group."""

    def __init__(self, group: asyncio.TaskGroup, reporter: Reporter) -> None:
        self._group = group
        self._reporter = reporter

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin a piece of work; raises `CancelledError` where the group ends, since its members are cancelled then."""
        survives = self._survive(work)
        try:
            task = self._group.create_task(survives)
        except RuntimeError:
            survives.close()
            work.close()
            raise asyncio.CancelledError from None
        task.add_done_callback(lambda _task: work.close())  # a task that is cancelled at once never awaits it
        return task

    async def _survive(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:
            self._reporter.defect("task_failed", error)
