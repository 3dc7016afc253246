"""The last examination of this sidecar: it is made when it is asked for, and at most once in five minutes.

The rules:

- Requests that arrive while the first one is made wait for it, and get the same. Later ones get the one before
  meanwhile, so that a page that asks every second does not fill the room for requests.
- One that failed, or that could not see everything yet, is not kept for long; but requests do not repeat it at once.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.observe.documents import ReportDocument, UnexaminedDocument
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError

KEPT_NS = 5 * MINUTE
"""An examination is answered for this time (ns) before another one is made."""

RETRY_NS = 10 * SECOND
"""A failed examination, or one that could not see everything, is kept for this time (ns)."""

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

    def __init__(self, monotonic: Callable[[], int]) -> None:
        """Examine nothing yet; `monotonic` returns ns that never go back."""
        self._monotonic = monotonic
        self._turn = asyncio.Lock()
        self._last: Examination | str | None = None
        """The last one, or why it failed."""
        self._made_at = 0

    async def latest(self, examine: Callable[[], Awaitable[Examination]]) -> Examination:
        """Return the last examination, or make one; raises `ServiceError` if it fails, or failed a moment ago."""
        if self._turn.locked() and isinstance(self._last, Examination):
            return self._last
        async with self._turn:
            if self._last is None or self._monotonic() - self._made_at >= _kept_for(self._last):
                await self._make(examine)
            if isinstance(self._last, Examination):
                return self._last
            raise ServiceError(UNAVAILABLE, f"the examination failed: {self._last}")

    async def _make(self, examine: Callable[[], Awaitable[Examination]]) -> None:
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                self._last = await examine()
        except TimeoutError:
            self._last = f"it was not finished within {LIMIT_SECONDS:.0f} s"
        except JetStreamError as error:
            self._last = str(error)
        except ServiceError as error:
            self._last = error.sentence
        except Exception:
            self._last = "the log of the sidecar has the error"
            raise
        finally:
            self._made_at = self._monotonic()


def _kept_for(last: Examination | str) -> int:
    return KEPT_NS if isinstance(last, Examination) and last.is_whole else RETRY_NS
