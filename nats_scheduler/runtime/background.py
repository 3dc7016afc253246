"""Work that runs beside the serving of an account, and ends with it.

The rule: an error of the sidecar itself ends the piece of work that raised it, and nothing else.
"""

import asyncio
from collections.abc import Coroutine

from nats_scheduler.observe.reporter import Reporter


class Background:
    """Begins pieces of work in one task group."""

    def __init__(self, group: asyncio.TaskGroup, reporter: Reporter) -> None:
        self._group = group
        self._reporter = reporter

    def begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Begin a piece of work; raises `CancelledError` if the group ends, because its members are cancelled then."""
        survives = self._survive(work)
        try:
            task = self._group.create_task(survives)
        except RuntimeError:
            survives.close()
            work.close()
            raise asyncio.CancelledError from None
        task.add_done_callback(lambda _task: work.close())  # a task that is cancelled before it runs never awaits it
        return task

    async def _survive(self, work: Coroutine[None, None, None]) -> None:
        try:
            await work
        except Exception as error:
            self._reporter.defect("task_failed", error)
