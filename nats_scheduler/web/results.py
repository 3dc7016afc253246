"""The results of the last changes, so that a form can answer with the address of a page that shows one.

The rules:

- A result is found by an id that nobody guesses, and by the login that asked for the change: the address alone shows
  nothing to another person.
- Results are in the memory of this process, at most `MAX_RESULTS` with `MAX_ROWS` schedules and fires together, each
  for `KEPT_SECONDS`; the oldest is dropped first. What was done is recorded by the sidecars, and does not depend on it.

Cost: about a kilobyte for each schedule that was changed, and a tenth of that for each fire that was stored.
"""

import asyncio
import secrets
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nats_scheduler.observe.documents import ScheduleDocument
from nats_scheduler.service.change_endpoints import ChangeAnswer

MAX_RESULTS = 256
MAX_ROWS = 10_000
"""Schedules and their fires in all results together."""

KEPT_SECONDS = 900.0
"""The time for which a result is shown."""


@dataclass(frozen=True, slots=True)
class FormRow:
    """One schedule of a page, and what was answered to its change."""

    subject: str
    sequence: int
    schedule: ScheduleDocument | None = None
    answer: ChangeAnswer | None = None
    refusal: str = ""
    is_unknown: bool = False
    """True if it may be done or not."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a form."""

    words: str
    """The operation."""
    stream: str
    rows: Sequence[FormRow]

    @property
    def size(self) -> int:
        """The number of schedules, and of the fires that were stored."""
        return sum(1 + len(one.answer["fires"] if one.answer else ()) for one in self.rows)

    @property
    def title(self) -> str:
        """Say how many changes were done, refused, or are not known."""
        unknown = sum(one.is_unknown for one in self.rows)
        done = sum(one.answer is not None for one in self.rows)
        counts = [f"{done} done, {len(self.rows) - done - unknown} refused"] if unknown < len(self.rows) else []
        return f"{self.words}: {', '.join([*counts, *([f'outcome of {unknown} unknown'] if unknown else [])])}"


class Results:
    """The last results of all who change schedules."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        """Keep none yet; `clock` returns the time in s, that of the event loop unless given."""
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, str, Result]] = OrderedDict()

    def keep(self, login: str, result: Result) -> str:
        """Keep a result for a login, and return its id."""
        name = secrets.token_urlsafe(16)
        self._kept[name] = self._now() + KEPT_SECONDS, login, result
        self._discard_old()
        return name

    def result(self, login: str, name: str) -> Result | None:
        """Return a result that was kept for this login; None if there is none any more."""
        self._discard_old()
        _until, owner, result = self._kept.get(name, (0.0, "", None))
        return result if owner == login else None

    def _discard_old(self) -> None:
        rows = sum(result.size for _until, _login, result in self._kept.values())
        while self._kept:
            name, (until, _login, result) = next(iter(self._kept.items()))
            if until > self._now() and len(self._kept) <= MAX_RESULTS and rows <= MAX_ROWS:
                return
            del self._kept[name]
            rows -= result.size

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self._clock is None else self._clock()
