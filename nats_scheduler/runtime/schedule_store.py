"""The modes of an account's streams, for the store of schedules of the command line and of the micro service.

The rule: they are found by the same code as in a sidecar (`runtime.access`), each time they are asked for.
Cost: one request, two where the flag is in the registry.
"""

from dataclasses import replace

from nats_scheduler.control.errors import NotServedError, StreamNotFoundError
from nats_scheduler.control.requests import told_apart
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.control.store_port import Served
from nats_scheduler.jetstream.schedule_wire import ScheduleWire
from nats_scheduler.jetstream.streams import StreamState, absence_of
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.foreign_json import server_time
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.server_clock import ServerClock


def connection_store(access: Access, clock: ServerClock) -> ScheduleStore:
    """Return the schedules of the account of a connection."""
    return ScheduleStore(ScheduleWire(access.connection, access.api), _ServedByModes(access, clock))


class _ServedByModes:
    """The `ServedStreams` of a connection."""

    def __init__(self, access: Access, clock: ServerClock) -> None:
        self._access = access
        self._clock = clock

    async def served(self, stream: str) -> Served:
        """Return how a stream is served."""
        with told_apart(stream):
            state, mode = await self._access.with_mode(await self._state(stream))
        if mode is None:
            raise NotServedError(f"stream {stream} does not carry schedules: nothing fires them there")
        rules = replace(state.rules, restrictions=self._access.settings.restrictions_on(stream))
        dialects = (ADR51, PORTABLE) if mode in (Mode.EMULATED, Mode.NATIVE) else (PORTABLE,)
        return Served(rules, dialects, mode is Mode.NATIVE, self._access.server)

    def now(self) -> int:
        """Return the time by the server's clock (ns), as well as it is known."""
        return self._clock.now()

    async def _state(self, stream: str) -> StreamState:
        requested_at = self._clock.monotonic()
        info = await self._access.api.stream(stream)
        if info is None:
            raise StreamNotFoundError(await absence_of(self._access.api, stream))
        reported = server_time(info)
        if reported is not None:
            self._clock.received(reported, requested_at)
        return StreamState.from_info(info)
