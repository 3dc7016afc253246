"""Which headers are served on a stream, and by whom.

    the stream carries the flag    the server schedules natively    headers of ADR-51            portable headers
    yes, and the server echoes it  yes                              NATIVE: the server fires     we fire
    yes, as we remember it         no                               EMULATED: we fire            we fire
    yes, as we remember it         yes                              DORMANT: none               we fire
    no, but the settings name it   either                           PORTABLE: none               we fire
    no                             either                           not served                   none

A sealed stream stores nothing any more, so it is not served in any mode.
The sidecar and the commands both ask `mode_of`, so that `ls` lists what the sidecar serves.

DORMANT is what an upgrade leaves: the stored schedules wait until the flag is switched on in the server.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import StrEnum

from nats_scheduler.engine.views.view import FiredBy
from nats_scheduler.jetstream.single_flight import SingleFlight, loop_time
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.observe.documents import StreamModeDocument
from nats_scheduler.schedule.rfc3339 import format_rfc3339


class Mode(StrEnum):
    """Who serves the headers of ADR-51 on a stream."""

    EMULATED = "emulated"
    NATIVE = "native"
    DORMANT = "dormant"
    PORTABLE = "portable"


BY_SIDECAR = frozenset({Mode.EMULATED, Mode.PORTABLE})
"""The modes in which nothing fires without a sidecar."""


def mode_of(
    state: StreamState, server: Capabilities, portable: Collection[str], *, is_asked_for: bool = False
) -> Mode | None:
    """Return the mode of a stream with its registry entry, None if it is not served.

    `portable` are the streams that the settings name for portable headers; `is_asked_for` says that a request for the
    flag has just taken effect.
    """
    if state.config.get("sealed") is True:
        return None
    if state.is_native:
        return Mode.NATIVE
    if is_asked_for or state.is_flagged:
        return Mode.DORMANT if server.schedules_natively else Mode.EMULATED
    return Mode.PORTABLE if state.name in portable else None


def dialects_of(mode: Mode) -> tuple[Dialect, ...]:
    """Return the headers that we fire for; the first one found in a message decides."""
    return (ADR51, PORTABLE) if mode is Mode.EMULATED else (PORTABLE,)


FIRED_BY = {Mode.NATIVE: FiredBy.SERVER, Mode.DORMANT: FiredBy.NONE}
"""Who fires for the headers of ADR-51 on a flagged stream if it is not the sidecar."""


EXPLANATIONS = {
    Mode.EMULATED: "the sidecar fires for Nats-Schedule and X-Nats-Schedule",
    Mode.NATIVE: "the server fires for Nats-Schedule, the sidecar for X-Nats-Schedule",
    Mode.DORMANT: "the server is native but the stream's flag is not switched on: Nats-Schedule does not fire, "
    "the sidecar fires for X-Nats-Schedule only",
    Mode.PORTABLE: "the sidecar fires for X-Nats-Schedule",
}


LOOKUP_INTERVAL_SECONDS = 0.5
"""Time between two look-ups for requests."""


@dataclass(frozen=True, slots=True)
class ServedStream:
    """A stream that carries schedules, and its mode: what fires them."""

    state: StreamState
    mode: Mode

    @property
    def name(self) -> str:
        """Its name."""
        return self.state.name


class SharedLookup:
    """Looks the streams up for requests: once for all that wait when it begins, and not more often than allowed.

    A page of the server's list takes milliseconds to read, and no fire is sent meanwhile.
    """

    def __init__(self, look_up: Callable[[], Awaitable[list[ServedStream]]]) -> None:
        self._look_up = look_up
        self._lookup = SingleFlight[list[ServedStream]]()
        self._began_at = -math.inf

    async def streams(self) -> list[ServedStream]:
        """Return what is stored when this is called or later; raises `SchedulerError`."""
        asked_at = loop_time()
        await asyncio.sleep(max(self._began_at + LOOKUP_INTERVAL_SECONDS - asked_at, 0))
        return await self._lookup.get(self._found, since=asked_at)

    async def _found(self) -> tuple[list[ServedStream], float]:
        self._began_at = loop_time()
        return await self._look_up(), 0.0


def mode_document(one: ServedStream) -> StreamModeDocument:
    """Return a stream, and who fires its schedules."""
    remembered = one.state.remembered
    since = None if remembered is None else remembered.since
    return {
        "stream": one.name,
        "mode": str(one.mode),
        "served": EXPLANATIONS[one.mode],
        "retention": str(one.state.config.get("retention", "limits")),
        "created": one.state.created,
        "since": None if since is None else format_rfc3339(since),
    }
