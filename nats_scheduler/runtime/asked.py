"""What the micro service asks of this sidecar: its streams, its health, and what it knows of the other instances.

The rule: nothing here changes anything, but for `schedules`, which the service may change if the operator allows it;
`service.port.Deployment` is what the service sees of all this.
"""

from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from nats_scheduler.engine.sharing.leases import NO_HOLDER, Holders, Leases
from nats_scheduler.engine.sharing.shards import shard_of
from nats_scheduler.engine.views.view import EngineView, JoinedView
from nats_scheduler.jetstream.errors import Denial, JetStreamError
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.observe.activity import Activity
from nats_scheduler.observe.documents import StreamModeDocument
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.fleet import read_fleet
from nats_scheduler.runtime.modes import FIRED_BY, SharedLookup, mode_document
from nats_scheduler.runtime.schedule_store import connection_store
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.runtime.stream_service import StreamService, StreamServices
from nats_scheduler.service.port import Examination, Fleet, Known, Slices
from nats_scheduler.service.server_schedules import ServerSchedules
from nats_scheduler.service.service import serve
from nats_scheduler.service.turns import Turns
from nats_scheduler.settings.sidecar import SidecarSettings


class AskedService:
    """One stream, as the service asks it."""

    def __init__(self, service: StreamService, settings: SidecarSettings, others: ServerSchedules) -> None:
        self._service = service
        self._settings = settings
        self._others = others
        self.mode = str(service.mode)
        self.failing = service.failing

    @property
    def is_ready(self) -> bool:
        """Whether there is contact with the stream and all that is stored has been read."""
        return self._service.is_ready

    @property
    def last_read(self) -> int:
        """The sequence of the last message that was read."""
        return self._service.last_read

    @property
    def rules(self) -> StreamRules:
        """The rules that a schedule has to meet, with the operator's restrictions."""
        state = self._service.state
        return replace(state.rules, restrictions=self._settings.restrictions_on(state.name))

    @property
    def view(self) -> EngineView:
        """What is held of the stream, to fire it."""
        return self._service.view

    async def known(self, within: float) -> Known:
        """Return what is known of all schedules: what is held, and what the server itself fires, read for that."""
        if (fired_by := FIRED_BY.get(self._service.mode)) is None:
            return Known(self.view, self.last_read)
        others, through = await self._others.read(self._service.state.name, fired_by, within)
        return Known(JoinedView(self.view, others), min(through, self.last_read))

    @property
    def failing_count(self) -> int:
        """How many schedules have a fire that the server refuses, as far as this instance fires them."""
        return self._service.failing_count


class AskedStreams(Mapping[str, AskedService]):
    """The streams that are served at the moment, by name."""

    def __init__(
        self, services: Mapping[str, StreamService], settings: SidecarSettings, others: ServerSchedules
    ) -> None:
        self._services = services
        self._settings = settings
        self._others = others

    def __getitem__(self, name: str) -> AskedService:
        """Return one stream."""
        return AskedService(self._services[name], self._settings, self._others)

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._services)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._services)


class AskedSidecar:
    """This instance on one connection, as the service asks it."""

    def __init__(
        self,
        access: Access,
        leases: Leases,
        services: StreamServices,
        not_ready: Callable[[], list[str]],
        notes: Callable[[], list[str]],
        clock: Clock,
        activity: Activity,
        examination: Callable[[Slices], Awaitable[Examination]],
        is_draining: Callable[[], bool],
    ) -> None:
        settings = access.settings
        self.activity = activity
        self.turns = Turns(self)
        self.server_schedules = ServerSchedules(access.connection, access.api, clock.now, self.turns)
        self._streams = AskedStreams(services.by_name, settings, self.server_schedules)
        self._access = access
        self._leases = leases
        self._services = services.by_name
        self._clock = clock
        self._carrying = SharedLookup(access.carrying)
        self.not_ready = not_ready
        self.notes = notes
        self.now = clock.now
        self.is_burst = services.is_burst
        self.spare_seconds = services.spare_seconds
        self._examination = examination
        self._is_draining = is_draining
        self.allows_control = settings.allow_control
        # With a clock of its own: it sets it by the leaders of the streams, and fires are due by that of the bucket.
        self.schedules = connection_store(
            access.connection, access.carrying, ServerClock(clock), settings.restrictions_on
        )
        self.failures_stream = settings.failures_stream if settings.keep_failures else None

    @property
    def instance(self) -> str:
        """The id of this instance."""
        return self._leases.me

    @property
    def is_draining(self) -> bool:
        """Whether this instance is about to end."""
        return self._is_draining()

    def streams(self) -> AskedStreams:
        """Return the streams that are served, by name."""
        return self._streams

    def holder(self, stream: str, subject: str) -> str | None:
        """Return the instance that fires for a subject of a stream; None if none does."""
        holder = self._holders(stream)[shard_of(subject)]
        return None if holder == NO_HOLDER else holder

    def holders(self, stream: str) -> frozenset[str]:
        """Return the instances that hold shards of a stream."""
        return frozenset(self._holders(stream)) - {NO_HOLDER}

    def other_instances(self) -> list[str]:
        """Return the other instances that may be alive."""
        return sorted(self._leases.others)

    async def fleet(self) -> Fleet:
        """Read all instances of the account from the registry's bucket; raises `JetStreamError`."""
        return await read_fleet(self._access.registry, self._access.api, self._clock.now)

    async def stream_modes(self) -> list[StreamModeDocument]:
        """Look up the streams of the account that carry schedules, served or not; raises `JetStreamError`."""
        return [mode_document(one) for one in await self._carrying.streams()]

    async def examination(self, slices: Slices) -> Examination:
        """Return what the doctor finds; raises `ServiceError` if it cannot be examined."""
        return await self._examination(slices)

    def _holders(self, stream: str) -> Holders:
        service = self._services.get(stream)
        return self._leases.record("" if service is None else service.key).holders


async def answer_requests(sidecar: AskedSidecar, access: Access, reporter: Reporter) -> None:
    """Answer requests on a connection until cancelled."""
    async with sidecar.server_schedules.opened():
        await serve(
            access.connection,
            access.api,
            sidecar,
            sidecar.turns,
            lambda error: reporter.defect("request_failed", error),
        )


# What the sidecar gives to the doctor, so that it can examine the account with what the sidecar holds already.
#
# The rule: `runtime` does not import `doctor`. Who starts a sidecar gives it the function that examines.


@dataclass(frozen=True, slots=True)
class Examinable:
    """A sidecar on one connection."""

    instance: str
    access: Access
    services: Mapping[str, StreamService]
    """The streams that it serves at the moment, by name."""
    unserved: Mapping[str, str]
    """The subject of one schedule in each stream that holds schedules and is not served, by the stream's name."""
    denials: Collection[Denial]
    """The permissions that it has missed."""
    server_now: Callable[[], int]
    """Returns the time by the server's clock, in ns since the Unix epoch; `machine_now` by that of this machine."""
    machine_now: Callable[[], int]


Examine = Callable[[Examinable, Slices], Awaitable[Examination]]
"""Examines the account of a sidecar; raises `JetStreamError`."""


async def examine_nothing(_examinable: Examinable, _slices: Slices) -> Examination:
    """Refuse to examine."""
    raise JetStreamError("this sidecar was started without the doctor; `nats-scheduler doctor` examines the account")
