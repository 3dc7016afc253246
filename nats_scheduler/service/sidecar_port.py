"""The port through which the micro service reads the runtime; it imports nothing of the runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from nats_scheduler.engine.ownership.owners import GONE_AFTER_NS
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.service.schemas import OwnsDocument, StandsByDocument


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
