"""Work that fails and is tried again: how long to wait before, and whether to tell of it.

The rule: what may heal by itself is tried again soon, since *Live* leaves 3 s, and told each time.
What our user lacks the permission for is told once, until it is another one, and tried more and more seldom: the
operator acts, or nobody.
"""

import asyncio
from collections.abc import Awaitable, Callable

from nats_scheduler.jetstream.denied import Denial
from nats_scheduler.jetstream.errors import JetStreamError, NotPermittedError
from nats_scheduler.observe.reporter import Reporter

RETRY_WAIT_LIMIT_SECONDS = 16.0
"""Whoever was given a permission waits no longer for what it is for."""

DEFECT_RETRY_WAIT_SECONDS = 1.0
"""Wait after an error of our own making: *Live* leaves 3 s."""


async def kept_up(work: Callable[[], Awaitable[None]], reporter: Reporter) -> None:
    """Do work that lasts as long as a connection; after an error of our own making it is begun anew.

    Who takes no part in dividing the streams any more would else look healthy, and be relieved of all that it holds.
    """
    while True:
        try:
            return await work()
        except Exception as error:
            reporter.defect("work_broken", error)
        await asyncio.sleep(DEFECT_RETRY_WAIT_SECONDS)


class Setbacks:
    """The failures of one piece of work, one after the other."""

    def __init__(self, wait_seconds: float, problem: Callable[[str], None]) -> None:
        """Begin; `wait_seconds` is how long to wait where it may heal by itself, `problem` is told why it failed."""
        self._problem = problem
        self._shortest = wait_seconds
        self._lacks: Denial | None = None
        self.wait_seconds = wait_seconds
        """How long to wait before it is tried again."""

    def tell(self, error: JetStreamError) -> None:
        """Take note of a failure, and tell of it if it is news."""
        lacks = Denial(True, error.subject).permission if isinstance(error, NotPermittedError) else None
        if lacks is not None and lacks == self._lacks:
            self.wait_seconds = min(2 * self.wait_seconds, RETRY_WAIT_LIMIT_SECONDS)
            return
        self._lacks, self.wait_seconds = lacks, self._shortest
        self._problem(str(error))
