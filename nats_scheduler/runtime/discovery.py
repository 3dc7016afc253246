"""Find the streams of an account that have to be checked: by listing them, and by watching the requests of others.

The rules:

- A request that was seen is a hint. The stream is checked once the request has taken effect, and nothing is written
  before: an update of ours would undo the one that was requested.
- What was missed is found by the list, at the start and every half minute.
- A client that floods the API causes no flood of ours: the number of requests that are followed at once is limited.

Cost: one list of all streams every half minute, and some requests for each request that was seen.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import assert_never

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.jetstream.api import Config
from nats_scheduler.jetstream.request_watch import (
    ConfigRequested,
    MessageRemovalRequested,
    Request,
    RestoreRequested,
    StreamDeletionRequested,
    StreamRestored,
)
from nats_scheduler.jetstream.streams import TTL_FLAG, StreamState, is_in_force
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.message.rejection import SCHEDULES_STAY
from nats_scheduler.message.stream_rules import FLAG
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.account_serving import CHECK_RETRY_WAIT_SECONDS, Serving
from nats_scheduler.runtime.canary import CANARY_STREAM
from nats_scheduler.runtime.last_requests import LastRequests
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.served_streams import StreamServices
from nats_scheduler.runtime.stream_flags import StreamFlags
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.runtime.unserved import UnservedStreams
from nats_scheduler.runtime.work import CHANGE_CHECK_WAITS_SECONDS, Background

ROUNDS_PER_FULL_CHECK = 10
"""The rounds over the list in which each stream is checked once, whatever it shows: it does not show everything."""

LIST_INTERVAL_SECONDS = 30.0
"""The interval at which all streams are listed, in case a request was missed."""

MAX_STRICT_CHECKS = 3
"""The checks at which an update has to show completely; after them, a missing field is one that the server ignores."""

MAX_REQUESTS_FOLLOWED = 256
"""The most requests of others that are followed at once."""

MAX_RESTORES_AWAITED = 256
"""The most restores of flagged streams whose end is awaited at once; what is kept of each are its flags."""

TOO_MANY = f"more than {MAX_REQUESTS_FOLLOWED} requests to configure streams at once"
TOO_MANY_RESTORES = f"more than {MAX_RESTORES_AWAITED} restores of streams with allow_msg_schedules at once"
NOT_IN_FORCE = "allow_msg_schedules was asked for with a configuration that is not in force: refused, or replaced since"


class Discovery:
    """The search for streams of one account, on one connection."""

    def __init__(
        self,
        access: Access,
        services: StreamServices,
        flags: StreamFlags,
        requests: LastRequests,
        serving: Serving,
        unserved: UnservedStreams,
        reporter: Reporter,
        background: Background,
    ) -> None:
        """Find nothing yet; what is found is checked by `serving`, and what is not served is noted in `unserved`."""
        self._access = access
        self._server = access.server
        self._served, self._left = services.by_name, services.left
        self._flags = flags
        self._flagged = access.flagged
        self._requests = requests
        self._serving = serving
        self._unserved = unserved
        self._is_looking = False
        self._reporter = reporter
        self._background = background
        self._round = -1
        """The number of the last round over all streams."""
        self._followed_count = 0
        self._restoring: dict[str, Config] = {}
        """The flags of streams that are being restored, in the order of the requests."""
        self._hinted: set[str] = set()
        """Streams that another sidecar configured, and that are about to be checked."""
        self._is_waiting = False
        """True while streams are being checked whose leaders did not answer."""

    # -- by listing ----------------------------------------------------------------------------------------------

    async def keep_listing(self, listed: asyncio.Event) -> None:
        """Check what the list of streams shows until the connection is lost; sets `listed` after the first time."""
        # What was served before is checked first: the list takes seconds while any stream of a cluster has no leader.
        self._background.begin(self._check_all(list(self._served)))
        lost = self._access.connection.lost
        while not lost.done():
            await self._list()
            listed.set()
            await asyncio.wait((lost,), timeout=LIST_INTERVAL_SECONDS)

    async def _list(self) -> None:
        try:
            infos, unanswered = await self._access.api.listed_streams()
            states = [StreamState.from_info(info) for info in infos]
        except SchedulerError as error:
            self._reporter.problem("streams_list_failed", reason=str(error))
            return
        self._begin_waiting(unanswered)
        await self._check_all(self._to_check(states))
        if not self._is_looking:
            self._is_looking = True
            self._background.begin(self._look(states))

    def _to_check(self, listed: Sequence[StreamState]) -> list[str]:
        """Return the names of the streams to check in a round; those that are served and not listed come last.

        A stream that is served, and whose entry in the list is as at its last check, needs no check: that would be some
        requests for each stream, and there may be thousands. What the registry holds about it is not listed.
        """
        self._round += 1
        found = []
        for number, state in enumerate(listed):
            service = self._served.get(state.name)
            if service is not None:
                state = replace(state, remembered=service.state.remembered)
            is_its_turn = self._round == 0 or number % ROUNDS_PER_FULL_CHECK == self._round % ROUNDS_PER_FULL_CHECK
            left = self._left.get(state.name)
            is_left = left is not None and (left.state.created, left.state.config) == (state.created, state.config)
            if is_its_turn or not (is_left or (service is not None and self._is_unchanged(state, service))):
                found.append(state.name)
            elif service is not None:
                service.update(state)
        return [*found, *sorted((self._served.keys() | self._left.keys()) - {state.name for state in listed})]

    def _is_unchanged(self, state: StreamState, service: StreamService) -> bool:
        if not service.has_contact or state.config != service.state.config:
            return False
        return service.serves_the_same(state, service.mode, self._server)

    async def _look(self, states: Sequence[StreamState]) -> None:
        """Look for schedules in those of the listed streams that are not served."""
        access = self._access
        own = (access.registry.stream, access.settings.failures_stream, CANARY_STREAM)
        known = {*self._served, *self._left, *own}
        others = [one for one in states if one.name not in known and not one.excludes_schedules]
        try:
            await self._unserved.look(access.connection, access.api, others)
        finally:
            self._is_looking = False

    def _begin_waiting(self, unanswered: list[str]) -> None:
        """Check streams whose leaders do not answer until they do, beside all others; nothing reports that one does."""
        if unanswered and not self._is_waiting:
            self._is_waiting = True
            self._background.begin(self._wait_for(unanswered))

    async def _wait_for(self, unanswered: list[str]) -> None:
        try:
            await self._check_all(unanswered)
        finally:
            self._is_waiting = False

    async def _check_all(self, names: list[str]) -> None:
        await in_turn([partial(self._serving.check, name) for name in names])

    # -- by requests of others -----------------------------------------------------------------------------------

    def receive(self, request: Request) -> None:
        """Follow a request of another client, or a report of the server."""
        match request:
            case MessageRemovalRequested():
                if (service := self._served.get(request.stream)) is not None:
                    service.recheck(request.filter, request.sequence, request.below)
            case RestoreRequested():
                self._note_restore(request)
            case StreamRestored():
                self._background.begin(self._follow_restore(request.stream))
            case ConfigRequested(by_sidecar=True):
                self._note_hint(request.stream)
            case ConfigRequested():
                self._begin_following(request)
            case StreamDeletionRequested():
                self._requests.discard(request.stream)
                self._restoring.pop(request.stream, None)
                self._background.begin(self._follow_deletion(request.stream))
            case _:
                assert_never(request)

    def _note_restore(self, request: RestoreRequested) -> None:
        """Note the flags of a stream until it is restored: the server does not keep them, whatever the backup says."""
        name, config = request.stream, request.config
        self._restoring.pop(name, None)
        if config.get(FLAG) is not True or self._server.schedules_natively:
            return
        self._restoring[name] = {key: True for key in (FLAG, TTL_FLAG) if config.get(key) is True}
        if len(self._restoring) > MAX_RESTORES_AWAITED:
            first = next(iter(self._restoring))
            del self._restoring[first]
            self._reporter.problem("request_skipped", stream=first, reason=TOO_MANY_RESTORES)

    async def _follow_restore(self, name: str) -> None:
        """Check a stream that was restored, with the flags that the request had."""
        flags = self._restoring.pop(name, None)
        for wait in CHANGE_CHECK_WAITS_SECONDS if flags else ():
            await asyncio.sleep(wait)
            with suppress(SchedulerError):
                async with self._serving.lock(name):
                    state = await self._serving.read(name)
                    if state is not None and await self._serving.apply(name, state, {**state.config, **(flags or {})}):
                        return
        await self._serving.check(name)

    def _note_hint(self, name: str) -> None:
        if name not in self._hinted and len(self._hinted) < MAX_REQUESTS_FOLLOWED:
            self._hinted.add(name)
            self._background.begin(self._check_hinted(name))

    async def _check_hinted(self, name: str) -> None:
        await asyncio.sleep(CHECK_RETRY_WAIT_SECONDS)
        self._hinted.discard(name)
        await self._serving.check(name)

    def _begin_following(self, request: ConfigRequested) -> None:
        if self._followed_count >= MAX_REQUESTS_FOLLOWED:
            self._reporter.problem("request_skipped", stream=request.stream, reason=TOO_MANY)
            return
        self._followed_count += 1
        self._requests.seen(request)
        self._background.begin(self._follow_config(request))

    async def _follow_config(self, request: ConfigRequested) -> None:
        """Check a stream that a client asked to create or change, once the change shows."""
        try:
            await self._follow_one_config(request)
        finally:
            self._followed_count -= 1
            self._requests.settled(request)

    async def _follow_one_config(self, request: ConfigRequested) -> None:
        name, wanted, stays = request.stream, request.config.get(FLAG), SCHEDULES_STAY
        service = self._served.get(name)
        if wanted is False and service is not None and service.mode is Mode.EMULATED:
            self._reporter.problem("flag_removal_ignored", stream=name, code=stays.code, reason=stays.description)
        if not await self._is_in_force_in_time(request):
            if wanted is True and name not in (*self._served, *self._left) and self._requests.is_waited_for(request):
                self._reporter.problem("flag_not_in_force", stream=name, reason=NOT_IN_FORCE)
            await self._serving.check(name)

    async def _is_in_force_in_time(self, request: ConfigRequested) -> bool:
        """Wait until a request is in force; False if it never is, or if the stream was deleted meanwhile."""
        for number, wait in enumerate(CHANGE_CHECK_WAITS_SECONDS):
            await asyncio.sleep(wait)
            if not self._requests.is_waited_for(request):
                break
            async with self._serving.lock(request.stream):
                if await self._is_in_force(request, strict=number < MAX_STRICT_CHECKS):
                    return True
        return False

    async def _is_in_force(self, request: ConfigRequested, *, strict: bool) -> bool:
        """Return whether a request is in force, after the stream's service was adapted to it."""
        name = request.stream
        state = None
        with suppress(SchedulerError):
            state = await self._serving.read(name)
        if state is None or not self._requests.is_waited_for(request):
            return False
        closely, echoed = strict and not request.creates, self._server.schedules_natively
        if is_in_force(request.config, state.config, closely=closely, echoed=echoed):
            return await self._serving.apply(name, state, self._requests.with_flag(request))
        if not strict and self._requests.may_be_undone(request):
            await self._repeat(request)
        return False

    async def _repeat(self, request: ConfigRequested) -> None:
        """Repeat a request that arrived together with an update of ours; if it was refused, it is refused again."""
        try:
            await self._flagged.repeat(request.config)
        except SchedulerError as error:
            self._reporter.problem("update_repeat_failed", stream=request.stream, reason=str(error))

    async def _follow_deletion(self, name: str) -> None:
        """Follow a request to delete a stream: the next stream of that name has the flag only if that is requested."""
        with self._flags.deletion_requested(name) as is_noted:
            await self._serving.check_when_gone(name)
            for wait in CHANGE_CHECK_WAITS_SECONDS if is_noted else ():
                await asyncio.sleep(wait)
                with suppress(SchedulerError):
                    async with self._serving.lock(name):
                        state = await self._serving.read(name)
                        if await self._flagged.note_deletion(name, state.created if state is not None else None):
                            return
