"""The parts that one process runs: the real `StreamService`, and the real `Instances` where a stream has one owner.

Its rule: only the few lines around them are modelled here, by the rules of `runtime.sidecar` and
`runtime.account_serving`: connections that end and are made again, contacts that end on one that lives, hints about
requests of others to remove messages, a stream that is left to other instances and read again, and the order of a
drain.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Any, NamedTuple

from nats_scheduler.control.errors import ConnectionLostError, RefusedError, SchedulerError
from nats_scheduler.engine.actions import PurgeSchedule, RemoveExpired, purge_after
from nats_scheduler.engine.events import Event, FireNotDone, ScheduleRejected
from nats_scheduler.engine.fire import Fire, Question
from nats_scheduler.engine.holding.contents import ContentMemory
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContentFetched,
    FireLookedFor,
    FiresStored,
    Input,
    PublishConcluded,
    PurgeConcluded,
    RemovalRequested,
)
from nats_scheduler.engine.ownership.order import Order
from nats_scheduler.engine.ownership.owners import Owners
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import CONSUMER_NOT_FOUND, Config, Removed
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import GUARD_LEVEL, Capabilities
from nats_scheduler.message.rejection import FAILED
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.continuity import StreamWentBackError
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.sidecar import leave
from nats_scheduler.runtime.stream_service import EngineFailedError, LeftStream, StreamService
from nats_scheduler.runtime.this_instance import CHECK_INTERVAL_SECONDS, Instances
from nats_scheduler.schedule.calendars import NOT_READ
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from nats_scheduler.testing.network import Fate
from tests.simulation.buckets import SimulatedBucket
from tests.simulation.files import Machine, MachineFile
from tests.simulation.network import USUAL, Link, Weather
from tests.simulation.process import Point, Process
from tests.simulation.scenario import MILLISECOND
from tests.simulation.server import ELSEWHERE, AgreedContact, Server
from tests.simulation.timeline import Event as Happening

FOLLOWS_ANEW_SECONDS = 1.0
"""Wait before a stream is followed again through a live connection (`runtime.account_serving`)."""

RECONNECT_AFTER = 500 * MILLISECOND
"""Longest wait (ns) between two attempts to connect."""

CONTENT_MEMORIES = (64 << 20, 64 << 20, 256)
"""Bytes; in the smallest one every content is large, and goes alone."""

CATCH_UP_RATES = ("500", "500", "100")
"""Missed fires a second: with the last one, some of the few here wait for their turn."""

SETTINGS = {
    rate: SidecarSettings(allowed_targets_elsewhere=(f"SIM={ELSEWHERE}>",), catch_up_rate=(rate,))
    for rate in CATCH_UP_RATES
}

V2_10 = Capabilities("2.10.0", 0, 1 << 20)
V2_11 = Capabilities("2.11.0", GUARD_LEVEL, 1 << 20)

ANSWERS: dict[type[Any], Point] = {
    CaughtUp: Point.CAUGHT_UP,
    ContentFetched: Point.CONTENT_READ,
    FireLookedFor: Point.CONTENT_READ,
    FiresStored: Point.PUBLISHED,
    PublishConcluded: Point.PUBLISHED,
    PurgeConcluded: Point.PURGED,
}
"""Points at which a process may die before it acts on what it received."""


class Traces:
    """A reporter of which each report is a line of the trace, and nothing else."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def __getattr__(self, report: str) -> Callable[..., None]:
        return lambda *given, **fields: self._note(f"{report} {given or ''}{fields or ''}")


class Information:
    """The information about the stream, requested through a connection: a `runtime.server_port.StreamInformation`."""

    def __init__(self, server: Server, link: Link) -> None:
        self._server = server
        self._link = link

    async def stream(self, _name: str) -> Any:
        """Return the stream's information."""
        return await self._link.ask_again(Point.LOOK_AT_STREAM, self._server.information, then=Point.LOOKED_AT_STREAM)

    async def message(self, _name: str, *, seq: int) -> StoredMessage | None:
        """Return the message with a sequence."""
        return await self._link.ask_again(Point.LOOK_AT_STREAM, lambda: self._server.stream.message(seq))

    async def removed(self, _name: str, most: int) -> Removed | None:
        """Return which messages were removed."""
        first, gone = await self._link.ask_again(Point.LOOK_AT_STREAM, self._server.removed)
        return Removed(first, gone) if len(gone) <= most else None


class SimulatedContact(AgreedContact):
    """Contact with the stream; the process may die at each request, and before it receives each answer."""

    def __init__(self, server: Server, link: Link, tell: Notify, clock: Clock) -> None:
        self._link = link
        self._machine_clock = clock
        self._server = server
        self.agreement = server.agreement
        self._tell, others = tell, (server.other,)
        super().__init__(server.stream, self._heard, server.timeline.clock, link.weather, others=others)

    def publish(self, fires: Sequence[Fire]) -> None:
        """Begin to store these fires, until the process dies."""
        for fire in fires:
            self._link.process.point(Point.PUBLISH, f"{fire.schedule}@{fire.sequence} for {fire.fire_time}")
            self._server.is_sent(self._link.process.name, fire, self._machine_clock.now())
            super().publish([fire])

    def ask(self, question: Question) -> None:
        """Begin to find out something about one fire, or to read its content."""
        one: Any = getattr(question, "fire", question)
        self._link.process.point(Point.READ, f"{type(question).__name__} of {one.schedule}")
        super().ask(question)

    def purge(self, request: PurgeSchedule) -> None:
        """Begin to purge a schedule's versions; the other instances receive the request."""
        self._link.process.point(Point.PURGE, f"{request.schedule} through {request.through}")
        super().purge(request)
        hint = RemovalRequested(request.schedule, below=request.through + 1)
        self._server.tell_of_removal(hint, besides=self._link.process)

    def remove(self, request: RemoveExpired) -> None:
        """Begin to remove a message whose TTL has run out."""
        self._link.process.point(Point.PURGE, f"expired {request.sequence}")
        super().remove(request)

    async def follow(self, after: int) -> None:
        """Deliver what is stored until the connection is lost."""
        self._link.process.point(Point.FOLLOW, f"after {after}")
        if not after:
            self._server.is_read_by(self._link.process.name)
            await self._link.process.rest(self._server.reads_for / SECOND)
        stop, process = self.begin_following(after), self._link.process
        gone: asyncio.Future[None] = process.loop.create_future()
        news = partial(process.receive, lambda: None if gone.done() else gone.set_result(None))
        self._server.followers.append(lambda: self._after(self._link.weather.way_back(), news))
        try:
            await asyncio.wait((self._link.lost, gone), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop()
        if not self._link.lost.done():
            raise RefusedError(404, CONSUMER_NOT_FOUND, "consumer not found", "follow")
        raise ConnectionLostError(self._link.lost.result())

    def end(self, reason: str) -> None:
        """End the contact; a process that died is not notified."""
        if self._link.process.is_alive:
            super().end(reason)

    def _begin(self, fate: Fate, request: Any) -> int:
        """Send a request; one on a connection that was just cut is lost."""
        return super()._begin(fate._replace(arrives=fate.arrives and not self._link.lost.done()), request)

    def _after(self, duration: int, event: Happening) -> None:
        self._server.timeline.after(duration, event)

    def _heard(self, fact: Input) -> None:
        self._link.process.receive(partial(self._told, fact))

    def _acknowledged(self, fire: Fire, sequence: int) -> None:
        def take() -> None:
            self._told(FiresStored((fire,), (sequence,)))
            self.purge(purge_after(fire))

        self._link.process.receive(take)

    def _told(self, fact: Input) -> None:
        if type(fact) in ANSWERS:
            self._link.process.point(ANSWERS[type(fact)])
        self._tell(fact)


class Parts(NamedTuple):
    """What a sidecar is made of: the real parts, unless a world gets one with a mistake in its place."""

    contact: type[SimulatedContact] = SimulatedContact
    bucket: type[SimulatedBucket] = SimulatedBucket
    service: type[StreamService] = StreamService
    owners: type[Owners] = Owners
    order: type[Order] = Order
    clock: Callable[[Clock], Clock] = lambda clock: clock


REAL = Parts()


class Sidecar:
    """The parts that one process runs, from its start to its end."""

    def __init__(
        self,
        name: str,
        process: Process,
        clock: Clock,
        server: Server,
        weather: Weather,
        random: Random,
        memory: str,
        machine: Machine | None,
        parts: Parts = REAL,
    ) -> None:
        self._process = process
        self._parts = parts
        clock = parts.clock(clock)
        self.file = None if machine is None else MachineFile(machine, process, clock, self._file_is_lost)
        self._reporter: Any = Traces(process.note)
        self._writing: asyncio.Task[None] | None = None
        self.notify_of_loss: Callable[[], object] = lambda: None
        """Called when the file is given up."""
        self._server = server
        self._weather = weather
        self._random = random
        self._memory = memory
        self._able = V2_11 if server.stream.guard else V2_10
        self._owners = parts.owners(name, order=parts.order(server.standbys))
        # Drawn from the state, and not the generator, so that the worlds of existing seeds do not change.
        self._content_memory = Random(f"contents {name} {random.getstate()}").choice(CONTENT_MEMORIES)
        self._settings = SETTINGS[Random(f"catch up {name} {random.getstate()}").choice(CATCH_UP_RATES)]
        self._clock = clock
        self._calendars = NOT_READ
        self.service = self._new_service(StreamState.from_info(server.information()))
        self._services = {} if server.some_read else {"SIM": self.service}
        self._left: dict[str, LeftStream] = {}
        self._instances: Instances | None = None
        self._decided = asyncio.Event()
        """Set when the stream is to be read from now on, or is left to others from now on."""
        self._has_opened = False
        self._is_to_begin_anew = False
        """True if the engine of the stream is of no use any more."""
        self._bucket: SimulatedBucket
        self.link: Link | None = None
        """The connection of the moment."""

    @property
    def is_reading(self) -> bool:
        """True if it reads the stream."""
        return bool(self._services)

    @property
    def fires_beside(self) -> bool:
        """True if it fires in addition to the owner: on trial, or because it passes over the owner as idle."""
        owners, key, now = self._owners, self.service.key, self._clock.monotonic()
        is_passed_over = owners.ability.is_passed_over(key, owners.record(key).owner, now)
        is_beside = is_passed_over or self.service.is_on_trial
        return self.service.is_owner and not owners.is_owner(key) and is_beside

    async def run(self) -> None:
        """Connect and serve, again and again."""
        if self.file is not None:
            self._writing = asyncio.create_task(self.file.keep_writing())
        while True:
            self.link = link = await self._connected()
            if self._server.has_calendars:
                self._server.calendars.deliver_all(lambda: self._process.receive(self.read_calendars))
            serving = asyncio.create_task(self._serve(link))
            await asyncio.wait((serving, link.lost), return_when=asyncio.FIRST_COMPLETED)
            serving.cancel()
            await asyncio.wait((serving,))
            self.service.read_calendars(self._calendars, is_followed=False)
            if not serving.cancelled() and serving.exception() is not None:
                serving.result()
            self.link = self._instances = None

    def close(self) -> None:
        """Close the file, as the last thing that is done."""
        if self._writing is not None and self.file is not None:
            self._writing.cancel()
            self.file.close()

    def _file_is_lost(self, reason: str) -> None:
        self._process.note(f"its file is given up: {reason}")
        self.notify_of_loss()

    async def leave(self) -> None:
        """Hand the stream over and finish what is in flight, for as long as there is a connection."""
        if self.link is None:
            return
        draining = asyncio.create_task(self._drain())
        await asyncio.wait((draining, self.link.lost), return_when=asyncio.FIRST_COMPLETED)
        if draining.done():
            draining.result()

    async def _drain(self) -> None:
        self._process.point(Point.DRAIN)
        await leave(list(self._services.values()), self._instances, self._bucket, self._settings.drain_timeout / SECOND)
        if self.file is not None:
            self.file.write_all()

    def recheck(self, request: RemovalRequested) -> None:
        """Receive a request to remove messages, as seen on the API."""
        if self.link is not None and not self.link.lost.done():
            self.service.recheck(request.filter, request.sequence, request.below)

    def look_at_bucket(self) -> None:
        """Receive a request to delete the bucket, as seen on the API."""
        if self._instances is not None:
            self._instances.bucket_deletion_requested()

    def list_streams(self) -> None:
        """Receive what the list of all streams says of this one."""
        self.service.update(StreamState.from_info(self._server.information()))

    async def _connected(self) -> Link:
        while True:
            wait = int(self._random.random() * RECONNECT_AFTER) + self._weather.way()
            await self._process.rest(wait / SECOND)
            self._process.point(Point.CONNECT)
            if self._weather.cut_until <= self._server.timeline.now:
                return Link(self._process, self._weather)

    async def _serve(self, link: Link) -> None:
        self._bucket = bucket = self._parts.bucket(self._server.bucket, link, self._memory, self._random)
        bucket.broken = self._broken
        api = Information(self._server, link)
        if not await self._is_prepared(bucket):
            await self._process.rest(RECONNECT_AFTER / SECOND)
            return
        async with asyncio.TaskGroup() as tasks:
            if self._server.elects:
                self._server.links[self._owners.me] = link
                shared = self._clock, self._services, self._reporter, self._restore, self._is_there
                self._instances = Instances(self._owners, bucket, api, *shared, self._left)
                self._instances.decide = lambda _name: self._decided.set()
                tasks.create_task(self._instances.take_part())
            else:
                tasks.create_task(self._own_it(bucket, api))
            keep = self._keep_deciding if self._server.some_read else self._keep_serving
            tasks.create_task(keep(link, bucket, tasks))

    async def _is_there(self, name: str) -> bool | None:
        """Ask whether another one is there: for one without a connection the server answers, for a stalled one nobody.

        In bad weather there is no answer. Nothing is drawn, so that the worlds of existing seeds do not change by it.
        """
        await self._process.rest(USUAL / SECOND)
        self._process.point(Point.TELL, f"asks for {name}")
        link = self._server.links.get(name)
        if not self._server.asks or self._weather.kinds or (link is not None and link.process.is_stalled):
            return None
        return link is not None and link.process.is_alive and not link.lost.done()

    async def _is_prepared(self, bucket: SimulatedBucket) -> bool:
        """Open the registry, for which only the first connection of a process waits."""
        try:
            if not self._has_opened:
                await bucket.open()
        except SchedulerError:
            return False
        self._has_opened = True
        return True

    async def _own_it(self, bucket: SimulatedBucket, api: Information) -> None:
        while not self.service.is_owner:
            try:
                await self.service.own(True, bucket, api)
            except SchedulerError:
                await self._process.rest(CHECK_INTERVAL_SECONDS)

    async def _keep_deciding(self, link: Link, bucket: SimulatedBucket, tasks: asyncio.TaskGroup) -> None:
        """Read the stream, or leave it to others, as the instances decide."""
        serving: asyncio.Task[None] | None = None
        instances = self._instances
        assert instances is not None, "they agree on an owner"
        while not link.lost.done():
            self._decided.clear()
            if instances.reads(self.service.key, is_reading=self.is_reading):
                if not self.is_reading:
                    self._process.note("reads the stream")
                    self._left.clear()
                    self._services["SIM"] = self.service
                    instances.check_soon(self.service.key)
                serving = serving or tasks.create_task(self._keep_serving(link, bucket, tasks))
            else:
                if self.is_reading:
                    if not await instances.may_end_reading(self.service.key):
                        continue
                    await self._leave_to_others(serving)
                    serving = None
                self._left["SIM"] = LeftStream(self.service.state, self.service.mode)
            await self._decided.wait()

    async def _leave_to_others(self, serving: asyncio.Task[None] | None) -> None:
        """Finish what is in flight, and hold nothing of the stream any more."""
        try:
            await self.service.drain(self._settings.drain_timeout / SECOND)
        finally:
            if serving is not None:
                serving.cancel()
                await asyncio.wait((serving,))
            self._process.note("leaves the stream to others")
            self.service.end()
            del self._services["SIM"]
            self.service = self._new_service(self.service.state)

    async def _keep_serving(self, link: Link, bucket: SimulatedBucket, tasks: asyncio.TaskGroup) -> None:
        """Serve the stream; if contact with it fails but the connection lives, try again."""
        api = Information(self._server, link)
        while not link.lost.done():
            try:
                await self._look_at_stream(bucket, api, tasks)
                await self.service.serve(partial(self._contact, link), bucket, api, self._reporter)
            except StreamWentBackError as error:
                self._process.note(f"the stream went back: {error}")
                self._is_to_begin_anew = True
                continue
            except EngineFailedError as error:
                if not error.is_of_file:
                    raise error.cause from error
                self._is_to_begin_anew = True
                continue
            except SchedulerError as error:
                self._process.note(f"lost contact: {error}")
            await asyncio.wait((link.lost,), timeout=FOLLOWS_ANEW_SECONDS)

    async def _look_at_stream(self, bucket: SimulatedBucket, api: Information, tasks: asyncio.TaskGroup) -> None:
        """Serve the stream, with a new engine if it is another stream or went back, or the file is lost."""
        if not self._is_to_begin_anew and not self._server.has_gone_back:
            return
        state = StreamState.from_info(await api.stream("SIM"))
        if not self._is_to_begin_anew and self.service.serves_the_same(state, Mode.EMULATED, self._able):
            return
        self._is_to_begin_anew = False
        self.service.end()
        self.service = self._services["SIM"] = self._new_service(state)
        if self._instances is not None:
            self._instances.check_soon(self.service.key)
        else:
            tasks.create_task(self._own_it(bucket, api))

    def _new_service(self, state: StreamState) -> StreamService:
        process = self._able, self._settings, self._clock, self._report
        memory = ContentMemory(self._content_memory)
        service = self._parts.service(state, Mode.EMULATED, *process, memory=memory, file=self.file)
        service.read_calendars(self._calendars, is_followed=False)
        return service

    def read_calendars(self) -> None:
        """Receive the calendars as they are, if there is a connection."""
        if self.link is not None and not self.link.lost.done():
            self._calendars = self._server.calendars.known
            self.service.read_calendars(self._calendars)

    def _contact(
        self, link: Link, config: Config, tell: Notify, tasks: asyncio.TaskGroup, **_how: Any
    ) -> SimulatedContact:
        return self._parts.contact(self._server, link, tell, self._clock)

    async def _restore(self) -> None:
        self.service.report_again()

    def _broken(self, key: str, reason: str) -> None:
        """Trace a value that is not accepted: only values of a stream that went back are not."""
        assert self._server.has_gone_back, f"{key}: {reason}"
        self._process.note(f"does not accept {key}: {reason}")

    def _report(self, _stream: str, event: Event) -> None:
        self._process.note(str(event))
        if isinstance(event, ScheduleRejected):
            assert event.rejection.code != FAILED.code, f"a mistake of the program: {event}"
        if isinstance(event, FireNotDone):
            self._server.history.not_done.setdefault(event.stored_as, []).append(self._server.timeline.now)
