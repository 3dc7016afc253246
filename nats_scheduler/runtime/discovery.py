"""Find the streams of an account that have to be checked: by listing them, and by watching the requests of others.

The rules:

- A request that was seen is a hint. The stream is checked once the request has taken effect, and nothing is written
  before: an update of ours would undo the one that was requested.
- What was missed is found by the list, at the start and every half minute.
- A client that floods the API causes no flood of ours: the number of requests that are followed at once is limited.

Cost: one list of all streams every half minute (`runtime.rounds`), and some requests for each request that was seen.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import assert_never

from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.streams import FlaggedStreams, StreamState, is_in_force
from nats_scheduler.jetstream.watch import (
    ConfigRequested,
    MessageRemovalRequested,
    Request,
    StreamDeletionRequested,
    StreamRestored,
)
from nats_scheduler.message.rejection import SCHEDULES_STAY
from nats_scheduler.message.stream_rules import FLAG
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.background import Background
from nats_scheduler.runtime.flags import StreamFlags
from nats_scheduler.runtime.in_turn import in_turn
from nats_scheduler.runtime.last_requests import LastRequests
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.rounds import Rounds
from nats_scheduler.runtime.serving import CHANGE_CHECK_WAITS_SECONDS, CHECK_RETRY_WAIT_SECONDS, Serving
from nats_scheduler.runtime.stream_services import StreamServices

LIST_INTERVAL_SECONDS = 30.0
"""How often all streams are listed, in case a request was missed."""

MAX_STRICT_CHECKS = 3
"""At so many checks an update has to show completely; after that, a missing field is one that the server ignores."""

MAX_REQUESTS_FOLLOWED = 256
"""How many requests of others are followed at once."""

TOO_MANY = f"more than {MAX_REQUESTS_FOLLOWED} requests to configure streams at once"
NOT_IN_FORCE = "allow_msg_schedules was asked for with a configuration that is not in force: refused, or replaced since"


class Discovery:
    """The search for streams of one account, on one connection."""

    def __init__(
        self,
        access: Access,
        server: Capabilities,
        services: StreamServices,
        flags: StreamFlags,
        flagged: FlaggedStreams,
        requests: LastRequests,
        serving: Serving,
        look_at: Callable[[Sequence[StreamState]], Awaitable[None]],
        reporter: Reporter,
        background: Background,
    ) -> None:
        """Find nothing yet; what is found is checked by `serving`, and then `look_at` gets all that is listed."""
        self._access = access
        self._server = server
        self._served = services.by_name
        self._flags = flags
        self._flagged = flagged
        self._requests = requests
        self._serving = serving
        self._look_at = look_at
        self._is_looking = False
        self._reporter = reporter
        self._background = background
        self._rounds = Rounds(self._served)
        self._followed_count = 0
        self._hinted: set[str] = set()
        """Streams that another sidecar configured, and that are about to be checked."""
        self._is_waiting = False
        """Whether streams are being checked whose leaders did not answer."""

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
        except JetStreamError as error:
            self._reporter.problem("streams_list_failed", reason=str(error))
            return
        self._begin_waiting(unanswered)
        await self._check_all(self._rounds.to_check(states, self._server))
        if not self._is_looking:
            self._is_looking = True
            self._background.begin(self._look(states))

    async def _look(self, states: Sequence[StreamState]) -> None:
        try:
            await self._look_at(states)
        finally:
            self._is_looking = False

    def _begin_waiting(self, unanswered: list[str]) -> None:
        """Check streams whose leaders do not answer until they do, beside all others; nobody tells that one is back."""
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
            case StreamRestored():
                self._background.begin(self._serving.check(request.stream))
            case ConfigRequested(by_sidecar=True):
                self._note_hint(request.stream)
            case ConfigRequested():
                self._begin_following(request)
            case StreamDeletionRequested():
                self._requests.discard(request.stream)
                self._background.begin(self._follow_deletion(request.stream))
            case _:
                assert_never(request)

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
            if wanted is True and name not in self._served and self._requests.is_waited_for(request):
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
        with suppress(JetStreamError):
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
        except JetStreamError as error:
            self._reporter.problem("update_repeat_failed", stream=request.stream, reason=str(error))

    async def _follow_deletion(self, name: str) -> None:
        """Follow a request to delete a stream: the next stream of that name has the flag only if that is requested."""
        with self._flags.deletion_requested(name) as is_noted:
            await self._serving.check_when_gone(name)
            for wait in CHANGE_CHECK_WAITS_SECONDS if is_noted else ():
                await asyncio.sleep(wait)
                with suppress(JetStreamError):
                    async with self._serving.lock(name):
                        state = await self._serving.read(name)
                        if await self._flagged.note_deletion(name, state.created if state is not None else None):
                            return
