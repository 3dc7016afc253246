"""Work that runs beside the serving of an account, and ends with it.

The rule: an error of the sidecar itself ends the piece of work that raised it, and nothing else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine

from nats_scheduler.control.errors import ForbiddenError, SchedulerError
from nats_scheduler.jetstream.denials import Denial
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


RETRY_WAIT_LIMIT_SECONDS = 16.0
"""Longest wait (s) after a permission was granted until it is used."""

CHANGE_CHECK_WAITS_SECONDS = (0.0, 0.02, 0.1, 0.3, 1.0, 3.0)
"""After a request to change a stream was seen, it is checked after each of these waits until it has taken effect."""

DEFECT_RETRY_WAIT_SECONDS = 1.0
"""Wait after an error of the sidecar itself: *Live* leaves 3 s."""


async def kept_up(work: Callable[[], Awaitable[None]], reporter: Reporter) -> None:
    """Do work that lasts as long as a connection; after an error of the sidecar itself it begins again.

    An instance that no longer takes part in dividing the streams would look healthy and lose all that it holds.
    """
    while True:
        try:
            return await work()
        except Exception as error:
            reporter.defect("task_failed", error)
        await asyncio.sleep(DEFECT_RETRY_WAIT_SECONDS)


class Setbacks:
    """The failures of one piece of work, one after the other: how long to wait after each, and whether to report it.

    What may heal by itself is tried again soon, since *Live* leaves 3 s, and each failure is reported.
    A missing permission is reported once, until another one is missing, and tried again after longer and longer waits:
    only the operator can help.
    """

    def __init__(self, wait_seconds: float, problem: Callable[[str], None]) -> None:
        """Wait `wait_seconds` after a failure that may heal by itself; `problem` is called with the reason of each."""
        self._problem = problem
        self._shortest = wait_seconds
        self._lacks: Denial | None = None
        self.wait_seconds = wait_seconds
        """The time to wait before it is tried again."""

    def failed(self, error: SchedulerError) -> None:
        """Note a failure, and report it if it is news."""
        lacks = Denial(True, error.subject).permission if isinstance(error, ForbiddenError) else None
        if lacks is not None and lacks == self._lacks:
            self.wait_seconds = min(2 * self.wait_seconds, RETRY_WAIT_LIMIT_SECONDS)
            return
        self._lacks, self.wait_seconds = lacks, self._shortest
        self._problem(str(error))
