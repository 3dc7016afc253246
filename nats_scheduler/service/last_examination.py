"""The last examination of this sidecar: it is made when it is asked for, and at most once in five minutes.

The rules:

- Requests that arrive while the first one is made wait for it, and get the same. Later ones get the one before
  meanwhile, so that a page that asks every second does not fill the room for requests.
- One that failed, or that could not see everything yet, is not kept for long; but requests do not repeat it at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.jetstream.single_flight import SingleFlight
from nats_scheduler.observe.documents import ReportDocument, UnexaminedDocument
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError

KEPT_SECONDS = 300.0
"""An examination is answered for this time before another one is made."""

RETRY_SECONDS = 10.0
"""A failed examination, or one that could not see everything, is kept for this time."""

LIMIT_SECONDS = 60.0
"""Longest time for one examination."""


@dataclass(frozen=True, slots=True)
class Examination:
    """The findings of an examination at a moment."""

    at: int
    """By the server's clock, in ns since the Unix epoch."""
    report: ReportDocument
    unexamined: Sequence[UnexaminedDocument]
    is_whole: bool = True
    """True if all streams were read to their ends by then."""


class Examinations:
    """The examinations of one process, over all its connections."""

    def __init__(self, monotonic: Callable[[], int], defect: Callable[[Exception], None]) -> None:
        """Examine nothing yet; `monotonic` returns ns that never go back, `defect` takes errors of our own making."""
        self._examination = SingleFlight[Examination | str](lambda: monotonic() / SECOND)
        self._defect = defect

    async def latest(self, examine: Callable[[], Awaitable[Examination]]) -> Examination:
        """Return the last examination, or make one; raises `ServiceError` if it fails, or failed a moment ago."""
        found = self._examination.last if self._examination.is_running else None
        if not isinstance(found, Examination):
            found = await self._examination.get(lambda: self._made(examine))
        if isinstance(found, Examination):
            return found
        raise ServiceError(UNAVAILABLE, f"the examination failed: {found}")

    async def _made(self, examine: Callable[[], Awaitable[Examination]]) -> tuple[Examination | str, float]:
        """Examine; return what was found, or why it failed, and for how long (s) that is kept."""
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                found = await examine()
        except TimeoutError:
            return f"it was not finished within {LIMIT_SECONDS:.0f} s", RETRY_SECONDS
        except SchedulerError as error:
            return str(error), RETRY_SECONDS
        except Exception as error:
            self._defect(error)
            return "the log of the sidecar has the error", RETRY_SECONDS
        return found, KEPT_SECONDS if found.is_whole else RETRY_SECONDS
