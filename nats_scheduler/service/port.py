"""What the micro service asks of the sidecar: the runtime answers it, and the service imports nothing of the runtime.

The rule: only `fleet`, `stream_modes`, `examination`, `AskedStream.known` and the methods of `schedules` send requests,
and only the last ones change anything.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeVar

from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.engine.holding.flight import Failing
from nats_scheduler.engine.sharing.leases import LEASE_DURATION_NS
from nats_scheduler.engine.views.pages import Sliced
from nats_scheduler.engine.views.view import EngineView, JoinedView
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.observe.activity import Activity
from nats_scheduler.observe.documents import ReportDocument, StreamModeDocument, UnexaminedDocument
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError

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
"""How long (ns) an examination is answered before another one is made."""

RETRY_NS = 10 * SECOND
"""How long (ns) it is kept that one failed, or what one found that could not see everything."""

LIMIT_SECONDS = 60.0
"""Longest time for one examination."""

T = TypeVar("T")


class Slices(Protocol):
    """Does long work between fires; `service.turns.Turns` is one."""

    async def do(self, work: Sliced[T]) -> T:
        """Do work that is sliced, and return its result."""
        ...


@dataclass(frozen=True, slots=True)
class Examination:
    """What was found at a moment."""

    at: int
    """By the server's clock, in ns since the Unix epoch."""
    report: ReportDocument
    unexamined: Sequence[UnexaminedDocument]
    is_whole: bool = True
    """Whether all streams were read to their ends by then."""


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


View = EngineView | JoinedView
"""What is known of the schedules of a stream: what this instance holds, or that and what others fire."""


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of the schedules of a stream at a moment."""

    view: View
    """All of them, whichever part fires them."""
    read_through: int
    """The sequence up to which the stream was read for that."""


class AskedStream(Protocol):
    """A stream that this instance serves."""

    @property
    def mode(self) -> str:
        """Who fires: `emulated`, `portable`, `native` or `dormant`."""
        ...

    @property
    def is_ready(self) -> bool:
        """Whether there is contact with the stream and all that is stored has been read."""
        ...

    @property
    def last_read(self) -> int:
        """The sequence of the last message that was read."""
        ...

    @property
    def rules(self) -> StreamRules:
        """The rules of the stream that a schedule has to meet, with the operator's restrictions."""
        ...

    @property
    def view(self) -> EngineView:
        """What this instance holds of the stream, to fire it: not what the server itself fires."""
        ...

    async def known(self, within: float) -> Known:
        """Return what is known of all schedules of the stream; reading what is not held takes `within` seconds at most.

        Raises `ServiceError`, or `JetStreamError` if the server does not answer.
        """
        ...

    @property
    def failing_count(self) -> int:
        """How many schedules have a fire that the server refuses at the moment, as far as this instance fires them."""
        ...

    def failing(self, most: int) -> Sequence[tuple[int, Failing]]:
        """Return at most so many of them by sequence, those that fail longest first, and why."""
        ...


@dataclass(frozen=True, slots=True)
class Part:
    """What an instance holds of a stream."""

    stream: str
    mode: str
    shards: Sequence[int]


@dataclass(frozen=True, slots=True)
class Instance:
    """A sidecar, by its last heartbeat; `heartbeat_at` is None if it holds shards and has no heartbeat stored."""

    name: str
    since: int | None
    heartbeat_at: int | None
    serves: Sequence[str] | None
    parts: Sequence[Part]
    unable: Mapping[str, str] = field(default_factory=dict)
    """The streams that it cannot serve, by mode and name, and why."""

    def state(self, at: int) -> Literal["alive", "silent", "gone"]:
        """Return its state; one that is silent has lost its shards to other instances, if there are any."""
        if self.heartbeat_at is None:
            return "gone"
        return "alive" if at - self.heartbeat_at < LEASE_DURATION_NS else "silent"


@dataclass(frozen=True, slots=True)
class Fleet:
    """All instances at a moment of the server's clock (ns since the Unix epoch)."""

    at: int
    instances: Sequence[Instance]


class Fires(Protocol):
    """What long work has to give way to."""

    def is_burst(self) -> bool:
        """Return whether a burst of fires lasts on any stream."""
        ...

    def spare_seconds(self) -> float:
        """Return how long (s) no stream has anything to do, as far as is known: 0 while a fire is in flight."""
        ...


class Deployment(Fires, Protocol):
    """This instance, and what it knows of the others."""

    @property
    def instance(self) -> str:
        """The id of this instance."""
        ...

    def now(self) -> int:
        """Return the time by the server's clock, in ns since the Unix epoch."""
        ...

    @property
    def allows_control(self) -> bool:
        """Whether the operator allows requests that change schedules (`allow_control`)."""
        ...

    @property
    def is_draining(self) -> bool:
        """Whether the sidecar is about to end."""
        ...

    @property
    def schedules(self) -> ScheduleStore:
        """The stored schedules, as they are changed."""
        ...

    @property
    def failures_stream(self) -> str | None:
        """The stream that keeps advisories; None if none does."""
        ...

    def streams(self) -> Mapping[str, AskedStream]:
        """Return the streams that are served, by name."""
        ...

    def not_ready(self) -> list[str]:
        """Return why schedules do not all fire at this moment; nothing if they do."""
        ...

    def notes(self) -> list[str]:
        """Return what an operator should know although they do."""
        ...

    def holder(self, stream: str, subject: str) -> str | None:
        """Return the instance that fires for a subject of a stream, as this one knows it; None if none does."""
        ...

    def holders(self, stream: str) -> Collection[str]:
        """Return the instances that hold shards of a stream, as this one knows it."""
        ...

    @property
    def activity(self) -> Activity:
        """What happened in the last hour, as far as this instance did it."""
        ...

    def other_instances(self) -> Collection[str]:
        """Return the other instances that may be alive."""
        ...

    async def fleet(self) -> Fleet:
        """Read all instances of the account from the registry's bucket; raises `JetStreamError`."""
        ...

    async def stream_modes(self) -> Sequence[StreamModeDocument]:
        """Look up the streams of the account that carry schedules, served or not; raises `JetStreamError`."""
        ...

    async def examination(self, slices: Slices) -> Examination:
        """Return what the doctor finds, at most five minutes old; raises `ServiceError` if it cannot be examined."""
        ...
