"""Serve one account through one connection: find the streams, serve each, notice what changes.

One function decides about a stream, `_reconcile`: it reads what the server says now and starts, restarts or stops the
stream's service accordingly.
Everything else only says which stream to look at: the list, at start and every half minute, and what others ask for.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from nats_scheduler.engine.leases import Leases
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.capabilities import Capabilities, capabilities
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.contact import StreamContact
from nats_scheduler.jetstream.errors import ApiError, JetStreamError, NotPermittedError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import FlaggedStreams, StreamRefusedError, StreamState, is_in_force
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.jetstream.watch import (
    ConfigRequested,
    MessageRemovalRequested,
    Request,
    RequestWatch,
    StreamDeletionRequested,
    StreamRestored,
    watched_prefix,
)
from nats_scheduler.message.rejection import SCHEDULES_STAY
from nats_scheduler.message.stream_rules import FLAG, check_flag
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.background import Background
from nats_scheduler.runtime.continuity import StreamWentBackError
from nats_scheduler.runtime.file_streams import FileStreams
from nats_scheduler.runtime.flags import StreamFlags
from nats_scheduler.runtime.in_turn import in_turn
from nats_scheduler.runtime.instances import Instances
from nats_scheduler.runtime.last_requests import LastRequests
from nats_scheduler.runtime.modes import EXPLANATIONS, Facts, Mode, mode_of
from nats_scheduler.runtime.pace import Pace
from nats_scheduler.runtime.rounds import Rounds
from nats_scheduler.runtime.server_clock import ServerClock, keep_time, set_clock
from nats_scheduler.runtime.setbacks import Setbacks, kept_up
from nats_scheduler.runtime.stream_service import EngineBrokenError, StreamService
from nats_scheduler.runtime.wakes import Wakes
from nats_scheduler.settings.sidecar import SidecarSettings

RECONCILE_SECONDS = 30.0
"""All streams are looked at this often, in case a request was missed."""

SETTLE_SECONDS = (0.0, 0.02, 0.1, 0.3, 1.0, 3.0)
"""After a request was seen, the stream is looked at after each of these waits until the request shows."""

PATIENT_LOOKS = 3
"""So many times an update has to show completely; then a field that is not mentioned is unknown to the server."""

LOOK_AGAIN_SECONDS = 1.0
"""A stream that could not be read is looked at again after this wait: *Live* leaves 3 s."""

MAX_FOLLOWED = 256
"""Requests of others that are followed at once; a client that floods the API causes no flood of ours."""

TOO_MANY = f"more than {MAX_FOLLOWED} requests to configure streams at once"
NOT_IN_FORCE = "allow_msg_schedules was asked for with a configuration that is not in force: refused, or replaced since"


class Account:
    """The streams of one account on one connection. The services outlive it, so that a reconnect is cheap."""

    def __init__(
        self,
        connection: Connection,
        settings: SidecarSettings,
        clock: ServerClock,
        reporter: Reporter,
        services: dict[str, StreamService],
        leases: Leases,
        serving: asyncio.Event,
        shared: tuple[Wakes, Pace],
    ) -> None:
        self._connection = connection
        self._settings = settings
        self._clock = clock
        self._reporter = reporter
        self._services = services
        self._shared = shared
        self._rounds = Rounds(services)
        self._serving = serving
        asked = settings.connection
        self._api = JetStreamApi(connection, asked.api_prefix, asked.request_timeout_seconds)
        self.registry = Registry(connection, self._api, settings.registry_bucket)
        self.registry.broken = partial(reporter.registry_value_refused, self.registry.stream)
        self._requests = LastRequests(asyncio.get_running_loop().time)
        self._flags = StreamFlags(lambda: self.flagged, services, reporter, self._requests.written)
        restore = self._flags.remember_all
        self.instances = Instances(leases, self.registry, self._api, clock, services, reporter, restore)
        self._server = Capabilities("", 0, 0)
        self._running: dict[str, asyncio.Task[None]] = {}
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._followed = 0
        self._hinted: set[str] = set()
        self._background: Background | None = None
        prefix = watched_prefix(self._api.prefix, asked.js_domain, connection.server.domain)
        self._watch = RequestWatch(connection, prefix, self._seen)
        self._seen_early: list[Request] = []

    async def prepare(self) -> Capabilities:
        """Learn what the server can do and open the registry; raises `JetStreamError` without JetStream.

        When it returns, every request of others is seen: the server has taken our subscriptions before it answered.
        Only the first time the registry is waited for: it may have no leader while the streams have theirs.
        """
        server = self._connection.server
        self._server = capabilities(await self._api.info(), server.version, server.max_payload)
        if not self._clock.is_set:
            await self.registry.open()
            await set_clock(self._clock, self.registry.server_time)
        return self._server

    @property
    def flagged(self) -> FlaggedStreams:
        """The streams that carry the flag."""
        return FlaggedStreams(self._api, self.registry, self._server)

    async def serve(self, files: FileStreams) -> None:
        """Serve until cancelled, or until the connection is lost; streams of `files` are made meanwhile."""
        async with TaskGroup() as tasks:
            self._background = Background(tasks, self._reporter)
            dividing = self._begin(kept_up(self.instances.take_part, self._reporter))
            for request in self._seen_early:
                self._seen(request)
            applying = self._begin(files.apply(self.flagged, self._look_at))
            clock = self._begin(kept_up(partial(keep_time, self._clock, self.registry.server_time), self._reporter))
            # Before the list, which takes seconds while any stream of a cluster has no leader.
            self._begin(in_turn([partial(self._look_at, name) for name in self._services]))
            try:
                while not self._connection.is_lost:
                    await self._reconcile_all()
                    self._serving.set()
                    await asyncio.wait((self._connection.lost,), timeout=RECONCILE_SECONDS)
            finally:
                self._watch.end()
                for task in (clock, dividing, applying, *self._running.values()):
                    task.cancel()

    async def _reconcile_all(self) -> None:
        try:
            listed = [StreamState.from_info(info) async for info in self._api.streams()]
            names = self._rounds.to_look_at(listed, self._server)
            await in_turn([partial(self._look_at, name) for name in names])
        except JetStreamError as error:
            self._reporter.problem("streams_not_listed", reason=str(error))

    # -- one stream ----------------------------------------------------------------------------------------------

    async def _look_at(self, name: str) -> None:
        """Bring the service of a stream in line with what the server says of the stream."""
        async with self._lock(name):
            try:
                done = await self._bring_in_line(name, await self._read(name), {})
            except JetStreamError as error:
                done = self._connection.is_lost or isinstance(error, NotPermittedError)
                if not self._connection.is_lost:
                    self._reporter.problem("stream_not_read", stream=name, reason=str(error))
        if not done:
            self._begin(self._look_again(name))

    async def _bring_in_line(self, name: str, state: StreamState | None, asked: Config) -> bool:
        """Bring the service of a stream in line, and return whether that came to an end, be it a refusal.

        `asked` is the request that was just fulfilled.
        The stream's lock has to be held since `state` was read: an older answer must not overrule a newer one.
        """
        try:
            await self._reconcile(name, state, asked)
        except StreamRefusedError as refused:
            self._flags.refuse(name, refused.rejection)
            await self._stop(name, "its configuration excludes schedules")
        except JetStreamError as error:
            code = error.code if isinstance(error, ApiError) else None
            self._reporter.problem("stream_not_adopted", stream=name, reason=str(error), code=code)
            return code is not None or isinstance(error, NotPermittedError)
        return True

    async def _look_again(self, name: str) -> None:
        await asyncio.sleep(LOOK_AGAIN_SECONDS)
        self._hinted.discard(name)
        await self._look_at(name)

    async def _reconcile(self, name: str, state: StreamState | None, asked: Config) -> None:
        if state is None:
            self._flags.refuse(name, None)
            await self._stop(name, "the stream is gone")
            return
        if fault := check_flag(asked):
            self._reporter.stream_refused(name, fault)
        known = self._flags.as_served(state) if not asked else None
        if known is not None and self._serves_the_same(known, Mode.EMULATED):
            await self._serve(known, Mode.EMULATED)  # before the registry is asked
        state = await self._flags.recalled(state)
        wanted = asked.get(FLAG) is True and not self._server.schedules_natively
        facts = Facts(
            server_is_native=self._server.schedules_natively,
            echoed=state.is_native,
            remembered=wanted or state.is_flagged,
            named=name in self._settings.portable_streams,
            sealed=state.config.get("sealed") is True,
        )
        if (mode := mode_of(facts)) is None:
            await self._stop(name, "the stream is sealed" if facts.sealed else "the stream is not served")
            return
        if mode is Mode.EMULATED:
            state = await self._flags.adopt(state, asked)
        else:
            self._flags.refuse(name, None)
        await self._serve(state, mode)
        if mode is Mode.EMULATED:
            await self._flags.switch_on(self._services[name])

    def _serves_the_same(self, state: StreamState, mode: Mode) -> bool:
        service = self._services.get(state.name)
        return service is not None and service.serves_the_same(state, mode, self._server)

    async def _serve(self, state: StreamState, mode: Mode) -> None:
        name = state.name
        if not self._serves_the_same(state, mode):
            await self._stop(name, "the stream changed")
            parts = self._server, self._settings, self._clock, self._reporter.report
            self._services[name] = service = StreamService(state, mode, *parts, *self._shared)
            self.instances.stir(service.key)
            self._reporter.stream_served(name, mode, EXPLANATIONS[mode], alarming=mode is Mode.DORMANT)
        service = self._services[name]
        service.is_as(state)
        service.when_rolling_up = partial(self._look_soon, name)  # also where it is known from an earlier connection
        if (running := self._running.get(name)) is None or running.done():
            self._running[name] = self._begin(self._keep_serving(service))

    def _look_soon(self, name: str) -> None:
        with suppress(asyncio.CancelledError):
            self._begin(self._look_at(name))

    async def _keep_serving(self, service: StreamService) -> None:
        """Serve a stream; where contact with it fails but the connection lives, try again."""
        name = service.state.name
        setbacks = Setbacks(LOOK_AGAIN_SECONDS, partial(self._reporter.contact_lost, name))
        while not self._connection.is_lost:
            try:
                await service.serve(partial(StreamContact, self._connection, self._api), self.registry, self._api)
            except EngineBrokenError:
                self._reporter.defect("engine_broken", service.driver.failed.result(), stream=name)
                self._begin(self._rebuild(name, "its engine broke", LOOK_AGAIN_SECONDS))
                return
            except StreamWentBackError as error:
                self._reporter.problem("stream_went_back", stream=name, reason=str(error))
                self._begin(self._rebuild(name, "it went back to an earlier state"))
                return
            except JetStreamError as error:
                if self._connection.lost.done():
                    return
                setbacks.tell(error)
                # Whether the stream is still there is for `_look_at` to say, which may end this very task.
                self._begin(self._follow_deletion(StreamDeletionRequested(name)))
            await asyncio.wait((self._connection.lost,), timeout=setbacks.wait_seconds)

    async def _rebuild(self, name: str, reason: str, wait_seconds: float = 0.0) -> None:
        """Serve a stream with a new engine, after a while."""
        await self._stop(name, reason)
        await asyncio.sleep(wait_seconds)
        await self._look_at(name)

    async def _stop(self, name: str, reason: str) -> None:
        if (running := self._running.pop(name, None)) is not None:
            running.cancel()
            await asyncio.wait((running,))
        if (service := self._services.pop(name, None)) is not None:
            service.driver.stop()
            self._reporter.stream_not_served(name, reason)
            self._begin(self._look_again(name))  # a node that has just restarted may not know its streams yet

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    # -- what others ask for -------------------------------------------------------------------------------------

    def _begin(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        assert self._background is not None, "nothing is begun before `serve`"
        return self._background.begin(work)

    def _seen(self, request: Request) -> None:
        if self._background is None:
            self._seen_early.append(request)
        elif isinstance(request, MessageRemovalRequested):
            if (service := self._services.get(request.stream)) is not None:
                service.doubt(request.filter, request.sequence, request.below)
        elif isinstance(request, StreamRestored):
            self._begin(self._look_at(request.stream))
        elif isinstance(request, ConfigRequested) and request.by_sidecar:
            if request.stream not in self._hinted and len(self._hinted) < MAX_FOLLOWED:
                self._hinted.add(request.stream)
                self._begin(self._look_again(request.stream))
        elif isinstance(request, ConfigRequested):
            if self._followed >= MAX_FOLLOWED:
                self._reporter.problem("request_passed_over", stream=request.stream, reason=TOO_MANY)
                return
            self._followed += 1
            self._requests.seen(request)
            self._begin(self._follow_config(request))
        else:
            self._requests.forget(request.stream)
            self._begin(self._follow_deletion_asked(request))

    async def _follow_config(self, request: ConfigRequested) -> None:
        """Look at a stream that somebody asked to create or change, once the change shows.

        Before it shows nothing is written: an update of ours would undo the one that was asked for.
        """
        try:
            await self._follow_one_config(request)
        finally:
            self._followed -= 1
            self._requests.settled(request)

    async def _follow_one_config(self, request: ConfigRequested) -> None:
        name, wanted, stays = request.stream, request.config.get(FLAG), SCHEDULES_STAY
        if wanted is False and name in self._services and self._services[name].mode is Mode.EMULATED:
            self._reporter.problem("flag_stays_on", stream=name, code=stays.code, reason=stays.description)
        if not await self._settle(request):
            if wanted is True and name not in self._services and self._requests.is_waited_for(request):
                self._reporter.problem("flag_not_seen", stream=name, reason=NOT_IN_FORCE)
            await self._look_at(name)

    async def _settle(self, request: ConfigRequested) -> bool:
        """Wait until what was asked for is in force; False where it never is, or the stream was deleted meanwhile."""
        for attempt, wait in enumerate(SETTLE_SECONDS):
            await asyncio.sleep(wait)
            if not self._requests.is_waited_for(request):
                break
            async with self._lock(request.stream):
                if await self._is_fulfilled(request, patient=attempt < PATIENT_LOOKS):
                    return True
        return False

    async def _is_fulfilled(self, request: ConfigRequested, *, patient: bool) -> bool:
        """Tell whether what was asked for is in force, and then bring the stream's service in line with it."""
        name = request.stream
        state = await self._read_if_possible(name)
        if state is None or not self._requests.is_waited_for(request):
            return False
        closely, echoed = patient and not request.creates, self._server.schedules_natively
        if is_in_force(request.config, state.config, closely=closely, echoed=echoed):
            return await self._bring_in_line(name, state, self._requests.with_flag(request))
        if not patient and self._requests.may_be_undone(request):
            await self._ask_again(request)
        return False

    async def _ask_again(self, request: ConfigRequested) -> None:
        """Repeat what somebody asked for at the moment of an update of ours; refused then, it is refused again."""
        try:
            await self.flagged.repeat(request.config)
        except JetStreamError as error:
            self._reporter.problem("update_not_repeated", stream=request.stream, reason=str(error))

    async def _follow_deletion_asked(self, request: StreamDeletionRequested) -> None:
        """Follow what somebody asked to delete: the next stream of that name has the flag only if somebody asks."""
        name = request.stream
        with self._flags.deletion_asked(name) as is_noted:
            await self._follow_deletion(request)
            for wait in SETTLE_SECONDS if is_noted else ():
                await asyncio.sleep(wait)
                with suppress(JetStreamError):
                    async with self._lock(name):
                        state = await self._read(name)
                        if await self.flagged.note_deletion(name, state.created if state is not None else None):
                            return

    async def _follow_deletion(self, request: StreamDeletionRequested) -> None:
        """Look at a stream that somebody asked to delete, once it is gone or another one."""
        service = self._services.get(request.stream)
        for wait in SETTLE_SECONDS if service is not None else ():
            await asyncio.sleep(wait)
            state = await self._read_if_possible(request.stream, otherwise=service.state if service else None)
            if state is None or service is None or state.created != service.state.created:
                await self._look_at(request.stream)
                return

    async def _read(self, name: str) -> StreamState | None:
        """Return what the server says of a stream, None where it does not exist; raises `JetStreamError`."""
        return None if (info := await self._api.stream(name)) is None else StreamState.from_info(info)

    async def _read_if_possible(self, name: str, otherwise: StreamState | None = None) -> StreamState | None:
        with suppress(JetStreamError):
            return await self._read(name)
        return otherwise
