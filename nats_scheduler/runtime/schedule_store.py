"""How the streams of an account are served, for the store of schedules of the command line and of the micro service.

The rule: it is found by the same code as in a sidecar (`runtime.modes`), each time it is asked for.
Cost: one request, two where the flag is in the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from nats_scheduler.control.errors import NotServedError, StreamNotFoundError
from nats_scheduler.control.port import Served
from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.schedule_wire import ScheduleWire, translated
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.dialect import ADR51, PORTABLE
from nats_scheduler.message.foreign_json import server_time
from nats_scheduler.message.stream_rules import Restrictions
from nats_scheduler.runtime.modes import CarryingStreams, Mode
from nats_scheduler.runtime.server_clock import ServerClock


def connection_store(
    connection: Connection,
    carrying: CarryingStreams,
    clock: ServerClock,
    restrictions_on: Callable[[str], Restrictions],
) -> ScheduleStore:
    """Return the schedules of the account of a connection.

    Streams are found by `carrying`; `restrictions_on` returns the operator's restrictions on a stream.
    """
    wire = ScheduleWire(connection, carrying.api)
    return ScheduleStore(wire, _ServedByModes(carrying, clock, restrictions_on))


class _ServedByModes:
    """The `ServedStreams` of a connection."""

    def __init__(
        self, carrying: CarryingStreams, clock: ServerClock, restrictions_on: Callable[[str], Restrictions]
    ) -> None:
        self._carrying = carrying
        self._clock = clock
        self._restrictions_on = restrictions_on

    async def served(self, stream: str) -> Served:
        """Return how a stream is served."""
        with translated():
            state, mode = await self._carrying.with_mode(await self._state(stream))
        if mode is None:
            raise NotServedError(f"stream {stream} does not carry schedules: nothing fires them there")
        rules = replace(state.rules, restrictions=self._restrictions_on(stream))
        dialects = (ADR51, PORTABLE) if mode in (Mode.EMULATED, Mode.NATIVE) else (PORTABLE,)
        server = self._carrying.server
        return Served(rules, dialects, mode is Mode.NATIVE, server)

    def now(self) -> int:
        """Return the time by the server's clock (ns), as well as it is known."""
        return self._clock.now()

    async def _state(self, stream: str) -> StreamState:
        requested_at = self._clock.monotonic()
        info = await self._carrying.api.stream(stream)
        if info is None:
            raise StreamNotFoundError(f"stream {stream} does not exist")
        reported = server_time(info)
        if reported is not None:
            self._clock.received(reported, requested_at)
        return StreamState.from_info(info)
