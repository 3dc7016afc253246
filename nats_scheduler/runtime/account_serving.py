"""Decide for each stream of an account how it is served, and start, restart or end its service.

The rule: one function decides, `Serving._decide`, from what the server and the registry say of a stream now. All other
parts only name the stream to check (`runtime.discovery`), or run what was decided.
Checks of one stream are made one after the other: an older answer must not overrule a newer one.

Cost: one request for each check, some more for a stream that has the flag.
"""

import asyncio
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from nats_scheduler.control.errors import ForbiddenError, RefusedError, RejectedError, SchedulerError
from nats_scheduler.jetstream.api import Config
from nats_scheduler.jetstream.contact import StreamContact
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.stream_rules import FLAG, check_flag
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.continuity import StreamWentBackError
from nats_scheduler.runtime.modes import EXPLANATIONS, Mode, mode_of
from nats_scheduler.runtime.served_streams import StreamServices
from nats_scheduler.runtime.stream_flags import StreamFlags
from nats_scheduler.runtime.stream_service import EngineFailedError, StreamService, key_of
from nats_scheduler.runtime.this_instance import Instances
from nats_scheduler.runtime.unserved import is_named
from nats_scheduler.runtime.work import CHANGE_CHECK_WAITS_SECONDS, Background, Setbacks
from nats_scheduler.schedule.instants import SECOND

CHECK_RETRY_WAIT_SECONDS = 1.0
"""A stream that could not be read, or that failed, is checked again after this wait: *Live* leaves 3 s."""


class Serving:
    """The services of one account, on one connection."""

    def __init__(
        self,
        access: Access,
        services: StreamServices,
        flags: StreamFlags,
        instances: Instances,
        reporter: Reporter,
        background: Background,
    ) -> None:
        """Serve nothing through this connection yet."""
        self._access = access
        self._server = access.server
        self._services = services
        self._flags = flags
        self._instances = instances
        self._portable_streams = frozenset(access.settings.portable_streams)
        self._reporter = reporter
        self._background = background
        self._running: dict[str, asyncio.Task[None]] = {}
        self._checked_later: set[str] = set()
        """Streams that are about to be checked again."""
        self._decided: set[str] = set()
        """Streams that are being checked because other instances came or went."""
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    # -- what others ask for -------------------------------------------------------------------------------------

    async def check(self, name: str) -> None:
        """Serve a stream as the server and the registry say now."""
        connection = self._access.connection
        async with self.lock(name):
            try:
                done = await self.apply(name, await self.read(name), {})
            except SchedulerError as error:
                done = connection.is_lost or isinstance(error, ForbiddenError)
                if not connection.is_lost:
                    self._reporter.problem("stream_read_failed", stream=name, reason=str(error))
        if not done:
            self._begin_checking_later(name)

    def begin_check(self, name: str) -> None:
        """Begin to check a stream, unless that has begun."""
        if name not in self._decided:
            self._decided.add(name)
            self._background.begin(self.check(name)).add_done_callback(lambda _task: self._decided.discard(name))

    def lock(self, name: str) -> asyncio.Lock:
        """Return the lock of a stream, which has to be held from when it is read until that was applied."""
        return self._locks.setdefault(name, asyncio.Lock())

    async def read(self, name: str) -> StreamState | None:
        """Return what the server says of a stream, None if it does not exist; raises `SchedulerError`."""
        info = await self._access.api.stream(name)
        return None if info is None else StreamState.from_info(info)

    async def apply(self, name: str, state: StreamState | None, requested: Config) -> bool:
        """Serve a stream as `state` demands, and return whether that is finished, if only by a refusal.

        `requested` is the request that has just taken effect. The stream's lock has to be held since `state` was read.
        """
        try:
            await self._decide(name, state, requested)
        except RejectedError as refused:
            self._flags.refuse(name, refused.rejection)
            await self._end(name, "its configuration excludes schedules")
        except SchedulerError as error:
            code = error.code if isinstance(error, RefusedError) else None
            self._reporter.problem("stream_adopt_failed", stream=name, reason=str(error), code=code)
            return code is not None or isinstance(error, ForbiddenError)
        return True

    async def check_when_gone(self, name: str) -> None:
        """Check a stream as soon as it is gone or another one; its deletion was requested, or is suspected."""
        known = self._services.by_name.get(name) or self._services.left.get(name)
        for wait in CHANGE_CHECK_WAITS_SECONDS if known is not None else ():
            await asyncio.sleep(wait)
            state = known.state if known else None
            with suppress(SchedulerError):
                state = await self.read(name)
            if state is None or known is None or state.created != known.state.created:
                await self.check(name)
                return

    def end_all(self) -> None:
        """Do not serve through this connection any more; the services stay for the next one."""
        for task in self._running.values():
            task.cancel()

    # -- one stream ----------------------------------------------------------------------------------------------

    async def _decide(self, name: str, state: StreamState | None, requested: Config) -> None:
        if state is None:
            self._flags.refuse(name, None)
            await self._end(name, "the stream is gone")
            return
        if fault := check_flag(requested):
            self._reporter.stream_refused(name, fault)
        known = self._flags.as_served(state) if not requested else None
        if known is not None and self._serves_the_same(known, Mode.EMULATED):
            await self._serve(known, Mode.EMULATED)  # before the registry is asked
        state = await self._flags.recalled(state)
        if not state.is_flagged and is_named(state, self._access.settings.adopt_streams):
            requested = {**state.config, FLAG: True}
        wanted = requested.get(FLAG) is True and not self._server.schedules_natively
        mode = mode_of(state, self._server, self._portable_streams, is_asked_for=wanted)
        if mode is None:
            is_sealed = state.config.get("sealed") is True
            await self._end(name, "the stream is sealed" if is_sealed else "the stream is not served")
            return
        if mode is Mode.EMULATED:
            state = await self._flags.adopt(state, requested)
        else:
            self._flags.refuse(name, None)
        service = await self._serve(state, mode)
        if mode is Mode.EMULATED and service is not None:
            await self._flags.switch_on(service)

    def _serves_the_same(self, state: StreamState, mode: Mode) -> bool:
        service = self._services.by_name.get(state.name)
        return service is not None and service.serves_the_same(state, mode, self._server)

    async def _serve(self, state: StreamState, mode: Mode) -> StreamService | None:
        """Serve a stream, and return its service; None if it is left to other instances."""
        name = state.name
        await self._instances.know_others()
        if not self._instances.reads(key_of(name, mode), is_reading=name in self._services.by_name):
            await self._leave(state, mode)
            return None
        if not self._serves_the_same(state, mode):
            await self._end(name, "the stream changed")
            service = self._services.start(state, mode, self._server)
            self._instances.check_soon(service.key)
            self._reporter.stream_served(name, mode, EXPLANATIONS[mode], alarming=mode is Mode.DORMANT)
        service = self._services.by_name[name]
        service.update(state)
        service.limited(self._access.connection.server.max_payload)
        if (running := self._running.get(name)) is None or running.done():
            self._running[name] = self._background.begin(self._keep_serving(service))
        return service

    async def _leave(self, state: StreamState, mode: Mode) -> None:
        """Leave a stream to other instances: what we held of it is theirs by now, and what is in flight is finished."""
        name = state.name
        if (service := self._services.by_name.get(name)) is not None:
            if not await self._instances.may_end_reading(service.key):
                return  # what it holds again would have to be read anew
            try:
                await service.drain(self._access.settings.drain_timeout / SECOND)
            finally:  # also if the connection is lost meanwhile: a service that drains fires nothing any more
                await self._stop(name)
                self._services.end(name)
        if self._services.leave(state, mode):
            self._reporter.stream_left(name, mode)

    async def _stop(self, name: str) -> None:
        if (running := self._running.pop(name, None)) is not None:
            running.cancel()
            await asyncio.wait((running,))

    async def _end(self, name: str, reason: str) -> None:
        await self._stop(name)
        if self._services.end(name):
            self._reporter.stream_not_served(name, reason)
            # A node that has just restarted may not list its streams yet.
            self._begin_checking_later(name)

    # -- its contacts --------------------------------------------------------------------------------------------

    async def _keep_serving(self, service: StreamService) -> None:
        """Serve a stream; if contact with it fails but the connection lives, try again."""
        name, lost = service.state.name, self._access.connection.lost
        setbacks = Setbacks(CHECK_RETRY_WAIT_SECONDS, partial(self._reporter.contact_lost, name))
        contacts = partial(StreamContact, self._access.connection, self._access.api)
        while not self._access.connection.is_lost:
            try:
                access = self._access
                await service.serve(contacts, access.registry, access.api, self._reporter)
            except EngineFailedError as error:
                if error.is_of_file:
                    self._background.begin(self._serve_anew(name, "the file of schedules cannot be used"))
                    return
                self._reporter.defect("engine_failed", error.cause, stream=name)
                self._background.begin(self._serve_anew(name, "its engine broke", CHECK_RETRY_WAIT_SECONDS))
                return
            except StreamWentBackError as error:
                self._reporter.problem("stream_rolled_back", stream=name, reason=str(error))
                self._background.begin(self._serve_anew(name, "it went back to an earlier state"))
                return
            except SchedulerError as error:
                if lost.done():
                    return
                setbacks.failed(error)
                # The stream may be gone. A check finds that out, and may cancel this very task.
                self._background.begin(self.check_when_gone(name))
            await asyncio.wait((lost,), timeout=setbacks.wait_seconds)

    async def _serve_anew(self, name: str, reason: str, wait_seconds: float = 0.0) -> None:
        """Serve a stream with a new engine, after a wait."""
        await self._end(name, reason)
        await asyncio.sleep(wait_seconds)
        await self.check(name)

    def _begin_checking_later(self, name: str) -> None:
        """Check a stream after a wait, once, however many ask for it."""
        if name not in self._checked_later:
            self._checked_later.add(name)
            self._background.begin(self._check_later(name))

    async def _check_later(self, name: str) -> None:
        try:
            await asyncio.sleep(CHECK_RETRY_WAIT_SECONDS)
        finally:
            self._checked_later.discard(name)
        await self.check(name)
