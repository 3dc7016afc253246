"""The values and functions of this sidecar that the micro service and the doctor are given.

The rule: nothing here changes anything, but for the store, whose schedules requests may change if the operator allows
it. The service imports nothing of the runtime, so it gets values and functions.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from nats_scheduler.control.errors import NoRespondersError, SchedulerError
from nats_scheduler.engine.ownership.owners import Owners
from nats_scheduler.engine.stored_schedules import StoredSchedules
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.denials import Denial
from nats_scheduler.jetstream.single_flight import SingleFlight, loop_time
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.foreign_json import Object, read_object
from nats_scheduler.message.rejection import Failing
from nats_scheduler.observe.activity import Activity
from nats_scheduler.observe.documents import StreamModeDocument
from nats_scheduler.observe.fire_counts import FireMetrics
from nats_scheduler.observe.texts import SERVER_ALONE
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.clock import Clock, SystemClock
from nats_scheduler.runtime.fleet import read_fleet
from nats_scheduler.runtime.modes import Mode, SharedLookup, mode_document
from nats_scheduler.runtime.schedule_store import connection_store
from nats_scheduler.runtime.served_streams import StreamServices
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.runtime.stream_service import LeftStream, StreamService
from nats_scheduler.service.endpoint import Asked
from nats_scheduler.service.endpoints import ENDPOINTS
from nats_scheduler.service.last_examination import Examination
from nats_scheduler.service.sidecar_port import AskedStream
from nats_scheduler.service.turns import Turns, reusable
from nats_scheduler.service.watched_streams import MAX_STREAMS
from nats_scheduler.settings.sidecar_settings import SidecarSettings


def asked_sidecar(
    access: Access,
    owners: Owners,
    services: StreamServices,
    not_ready: Callable[[], list[str]],
    notes: Callable[[], list[str]],
    clock: Clock,
    activity: Activity,
    examination: Callable[[Turns], Awaitable[Examination]],
    is_draining: Callable[[], bool],
) -> Asked:
    """Return this instance on one connection, as the service asks it."""
    settings, carrying = access.settings, SharedLookup(access.served_streams)

    async def stream_modes() -> list[StreamModeDocument]:
        return [mode_document(one) for one in await carrying.streams()]

    return Asked(
        access.connection,
        access.api,
        Turns(services, services.views),
        instance=owners.me,
        now=clock.now,
        streams=services.by_name,
        left=services.left,
        owners=owners,
        activity=activity,
        calendars=access.calendars,
        # With a clock of its own: it sets it by the leaders of the streams, and fires are due by that of the bucket.
        store=connection_store(access, ServerClock(clock)),
        restrictions_on=settings.restrictions_on,
        shows_contents=settings.show_contents,
        allows_control=settings.allow_control,
        control_rules=settings.control_rules,
        failures_stream=settings.failures_stream if settings.keep_failures else None,
        is_draining=is_draining,
        not_ready=not_ready,
        notes=notes,
        fleet=lambda: read_fleet(access.registry, access.api, clock.now),
        stream_modes=stream_modes,
        examination=examination,
    )


READ_SECONDS = 60.0
"""Longest wait, where no sidecar runs, until all streams are read: 10,000 to 20,000 messages a second."""


@dataclass(frozen=True, slots=True)
class UnservedStream:
    """A stream on which the server fires, and that no sidecar serves: nothing of it is held."""

    state: StreamState
    view: EngineView
    mode: str = Mode.NATIVE
    key: str = ""
    others_fired_by: FiredBy | None = FiredBy.SERVER
    is_ready: bool = True
    last_read: int = sys.maxsize
    failing_count: int = 0

    def failing(self, _most: int) -> Sequence[tuple[int, Failing]]:
        """Return nothing: no sidecar fires."""
        return ()


class ServerAlone:
    """Answers as a sidecar would, where none runs, about the streams on which the server itself fires.

    Of these streams it has what the server fires, and nothing that has the portable headers. Cost: that of reading them
    (`service.watched_streams`), and the list of all streams for each answer; a long one is reused.
    """

    def __init__(self, connection: Connection, settings: SidecarSettings) -> None:
        """Read nothing yet."""
        access, clock = Access.through(connection, settings), SystemClock()
        services = StreamServices(access.settings, clock, lambda _stream, _event: None)
        activity = Activity(FireMetrics())
        activity.since = 0  # it fires nothing, and what the server fired is read from the streams
        self._asked = asked_sidecar(
            access, Owners(""), services, list, lambda: [SERVER_ALONE], clock, activity, examine_nothing, lambda: False
        )
        self._api = access.api
        self._listed = SingleFlight[list[StreamState]]()
        self._answering = {one.name: one.answering(self._asked) for one in ENDPOINTS}
        self.opened = self._asked.watched_streams.opened

    async def answer(self, endpoint: str, request: Mapping[str, object]) -> Object:
        """Return the answer of an endpoint that reads; raises `SchedulerError`.

        That is `NoRespondersError` if the server fires on no stream, or does not let its streams be listed, and
        for an endpoint that only a sidecar has, such as that of one instance.
        """
        answering = self._answering.get(endpoint)
        if answering is None:
            raise NoRespondersError("none runs")
        streams: dict[str, AskedStream] = {}
        with suppress(SchedulerError):
            for one in await self._listed.get(lambda: reusable(self._native_streams()), since=loop_time()):
                streams[one.name] = self._asked.streams.get(one.name) or UnservedStream(one, _nothing_of(one))
        self._asked.streams = streams
        answer = read_object(await answering(json.dumps(request).encode())) if streams else None
        if answer is None:
            raise NoRespondersError("none runs, and the server itself fires on no stream")
        return answer

    async def have_read(self) -> bool:
        """Wait until the streams that were asked about are read, `READ_SECONDS` at most; return whether there are any.

        Answers wait for a moment only, and name what is not read by then.
        """
        fires, names = self._asked.watched_streams.fires, sorted(self._asked.streams)[:MAX_STREAMS]
        await asyncio.gather(*(fires(name, READ_SECONDS) for name in names), return_exceptions=True)
        return bool(names)

    async def _native_streams(self) -> list[StreamState]:
        states = [StreamState.from_info(info) async for info in self._api.streams()]
        return [state for state in states if state.is_native]


def _nothing_of(state: StreamState) -> EngineView:
    return StoredSchedules(state.rules, (), FiredBy.SERVER).view


@dataclass(frozen=True, slots=True)
class Examinable:
    """The parts of a sidecar that the doctor gets, so that it can examine the account with what is held already."""

    instance: str
    access: Access
    services: Mapping[str, StreamService]
    """The streams that it serves at the moment, by name."""
    left: Mapping[str, LeftStream]
    """The streams that it leaves to others."""
    unserved: Mapping[str, str]
    """The subject of one schedule in each stream that holds schedules and is not served, by the stream's name."""
    denials: Collection[Denial]
    """The permissions that it has missed."""
    server_now: Callable[[], int]
    """Returns the time by the server's clock, in ns since the Unix epoch; `machine_now` by that of this machine."""
    machine_now: Callable[[], int]


Examine = Callable[[Examinable, Turns], Awaitable[Examination]]
"""Examines the account of a sidecar; raises `SchedulerError`.

`runtime` does not import `doctor`: who starts a sidecar gives it this function.
"""


async def examine_nothing(*_given: object) -> Examination:
    """Refuse to examine."""
    raise SchedulerError("this sidecar was started without the doctor; `nats-scheduler doctor` examines the account")
