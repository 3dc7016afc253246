"""The port through which the micro service reads the runtime, and what it keeps; it imports nothing of the runtime."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from nats_scheduler.engine.ownership.owners import GONE_AFTER_NS
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.observe.documents import ReportDocument, UnexaminedDocument
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError
from nats_scheduler.service.schemas import OwnsDocument, StandsByDocument

# The last examination of this sidecar: it is made when it is asked for, and at most once in five minutes.
#
# The rules:
#
# - Requests that arrive while the first one is made wait for it, and get the same. Later ones get the one before
# meanwhile, so that a page that asks every second does not fill the room for requests.
# - One that failed, or that could not see everything yet, is not kept for long; but requests do not repeat it at
#   once.
#
# Cost: nothing before the first request.

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


class KnownStream(Protocol):
    """A stream that is served, if only by other instances: `runtime.stream_service.LeftStream`."""

    @property
    def mode(self) -> str:
        """Who fires: `emulated`, `portable`, `native` or `dormant`."""
        ...

    @property
    def key(self) -> str:
        """Its name in the records of owners."""
        ...

    @property
    def state(self) -> StreamState:
        """The state of the stream in the last answer of the server."""
        ...

    @property
    def others_fired_by(self) -> FiredBy | None:
        """Who fires the schedules that sidecars do not fire; None if sidecars fire all of them."""
        ...


class AskedStream(KnownStream, Protocol):
    """A stream that this instance serves: `runtime.stream_service.StreamService`."""

    @property
    def is_ready(self) -> bool:
        """True if there is contact with the stream and all that is stored has been read."""
        ...

    @property
    def last_read(self) -> int:
        """The sequence of the last message that was read."""
        ...

    @property
    def view(self) -> EngineView:
        """The schedules of the stream that this instance holds to fire them, without those that the server fires."""
        ...

    @property
    def failing_count(self) -> int:
        """The number of schedules that this instance fires and whose fires the server refuses at the moment."""
        ...


@dataclass(frozen=True, slots=True)
class Instance:
    """A sidecar, by its last heartbeat; `heartbeat_at` is None if it owns a stream and has no heartbeat stored."""

    name: str
    since: int | None
    heartbeat_at: int | None
    serves: Sequence[str] | None
    owns: Sequence[OwnsDocument]
    """The streams that it owns, as their records say."""
    stands_by: Sequence[StandsByDocument] = ()
    """The streams that it has read and does not own."""
    unable: Mapping[str, str] = field(default_factory=dict)
    """The streams that it cannot serve, by mode and name, and why."""
    standbys: int | None = None
    """How many standbys it wants for each stream (the setting `standbys`); None if it does not say."""

    def state(self, at: int) -> Literal["alive", "silent", "gone"]:
        """Return its state; one that is silent has lost its streams to other instances, if there are any."""
        if self.heartbeat_at is None:
            return "gone"
        return "alive" if at - self.heartbeat_at < GONE_AFTER_NS else "silent"


@dataclass(frozen=True, slots=True)
class Fleet:
    """All instances at a moment of the server's clock (ns since the Unix epoch)."""

    at: int
    instances: Sequence[Instance]
