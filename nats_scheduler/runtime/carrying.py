"""The streams of an account that carry schedules, as the server and the registry have them at the moment.

The rule: a sidecar that is asked and a command that reads find them by the same code. Whether a sidecar serves them is
another question.
Cost: the list of streams, and a request to the registry for each stream where the server does not keep the flag.
"""

import asyncio
import math
from collections.abc import Collection
from dataclasses import dataclass

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.errors import NotPermittedError
from nats_scheduler.jetstream.streams import FlaggedStreams, StreamState
from nats_scheduler.observe.documents import StreamModeDocument
from nats_scheduler.runtime.modes import EXPLANATIONS, Facts, Mode, mode_of
from nats_scheduler.schedule.rfc3339 import format_rfc3339

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


@dataclass(frozen=True, slots=True)
class CarryingStreams:
    """Finds the streams that carry schedules: those with the flag, and those that the settings name (`portable`)."""

    api: JetStreamApi
    flagged: FlaggedStreams
    server: Capabilities
    portable: Collection[str]

    async def all(self) -> list[ServedStream]:
        """Return all of them, by name; raises `JetStreamError`."""
        states = [StreamState.from_info(info) async for info in self.api.streams()]
        served = [await self.with_mode(state) for state in sorted(states, key=lambda state: state.name)]
        return [ServedStream(state, mode) for state, mode in served if mode is not None]

    async def with_mode(self, state: StreamState) -> tuple[StreamState, Mode | None]:
        """Return a stream with its registry entry, and its mode by the sidecar's own rules.

        The mode is None if the stream is not served.
        """
        try:
            state = await self.flagged.recall(state)
        except NotPermittedError:
            if not state.is_native and not state.has_metadata_flag:  # these are flagged without a registry entry
                raise
        facts = Facts(
            server_is_native=self.server.schedules_natively,
            echoed=state.is_native,
            remembered=state.is_flagged,
            named=state.name in self.portable,
            sealed=state.config.get("sealed") is True,
        )
        mode = mode_of(facts)
        return state, None if mode is Mode.EMULATED and state.excludes_schedules else mode


class SharedLookup:
    """Looks the streams up for requests: once for all that wait when it begins, and not more often than allowed.

    A page of the server's list takes milliseconds to read, and no fire is sent meanwhile.
    """

    def __init__(self, carrying: CarryingStreams) -> None:
        self._carrying = carrying
        self._turn = asyncio.Lock()
        self._found: list[ServedStream] = []
        self._found_from = self._began_at = -math.inf
        """When the look-up of `_found`, and the last one, began (seconds, by the clock of the event loop)."""

    async def streams(self) -> list[ServedStream]:
        """Return what is stored when this is called or later; raises `JetStreamError`."""
        now = asyncio.get_running_loop().time
        asked_at = now()
        async with self._turn:
            if self._found_from < asked_at:
                await asyncio.sleep(max(self._began_at + LOOKUP_INTERVAL_SECONDS - now(), 0))
                self._began_at = began_at = now()
                self._found = await self._carrying.all()
                self._found_from = began_at
            return self._found


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
