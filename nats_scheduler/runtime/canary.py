"""Fire a schedule of this instance's own, again and again, to prove that it can: the canary.

Every interval an `@at` schedule is published into a stream of ours, and fired from there by the same engine, driver,
contact and connection as every other schedule. What is read back of it is recorded (`observe.canary_record`).

The rules:

- It is tested whether *this* instance fires. So the stream is read by an engine of the canary's own, which owns it
  and rejects the canaries of other instances, because they have other targets. No other instance fires ours.
- Nobody else is disturbed. The stream is in no list of served streams, in no record and in no checkpoint, its events
  are neither logged nor counted with those of users, and its headers are the portable ones, which work on every server
  and need no flag.
- It begins again after every failure, whatever it is: what is missing then is the canary, and that is the point of it.

Cost: at each interval four requests and their answers. Limit: records and heartbeats are not tested by it;
`Sidecar.not_ready` says whether all streams have owners.
"""

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any

from nats_scheduler.control.errors import ConnectionLostError, RefusedError, SchedulerError
from nats_scheduler.engine.events import Event, FireConfirmed
from nats_scheduler.jetstream.api import JetStreamApi, stored_sequence
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.contact import StreamContact
from nats_scheduler.jetstream.own_streams import DOES_NOT_FIT, create_own
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.headers import with_headers
from nats_scheduler.message.publish_answers import answer_of
from nats_scheduler.observe.canary_record import CanaryRecord
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.continuity import StreamWentBackError
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.served_streams import StreamServices
from nats_scheduler.runtime.stream_service import EngineFailedError, StreamService
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.sidecar_settings import SidecarSettings

CANARY_STREAM = "nats_scheduler_canary"
"""The stream of all canaries of an account."""

CANARY_SUBJECTS = "nats_scheduler.canary.>"

MAX_LEAD_NS = 500 * MILLISECOND
"""The longest time (ns) before its due time at which a canary is published: more than a server takes to store it."""

RETRY_WAIT_SECONDS = 0.25
"""Wait after a failure; *Live* allows 3 s from the end of a fault, and the grace of a canary not much more."""

PUBLISH_LIMIT_SECONDS = 1.0
"""Longest wait for a canary to be stored."""

LEAVE_LIMIT_SECONDS = 1.0
"""Longest wait at the end for what the canary leaves to be removed."""


class Canary:
    """The canary of one instance."""

    def __init__(
        self,
        settings: SidecarSettings,
        instance: str,
        services: StreamServices,
        clock: Clock,
        reporter: Reporter,
        record: CanaryRecord,
    ) -> None:
        """Fire nothing yet; what is fired is kept in `record`."""
        assert settings.canary_interval is not None, "there is a canary only if it has an interval"
        self._interval = settings.canary_interval
        self._lead = min(MAX_LEAD_NS, self._interval // 2)
        self._schedule = f"nats_scheduler.canary.due.{instance}"
        self._target = f"nats_scheduler.canary.fired.{instance}"
        self._instance = instance
        ours = f"{CANARY_STREAM}={self._target}"
        none = dict.fromkeys(("allowed_sources", "allowed_targets_elsewhere", "max_schedules"), ())
        self._settings = settings.model_copy(update={"allowed_targets": (ours,), **none})
        self._services = services
        self._clock = clock
        self._reporter = reporter
        self._record = record
        self._service: StreamService | None = None
        self._reported_setback = ""
        self._next_due = 0
        """The instant (ns) at which the next canary is due."""

    # -- on one connection ---------------------------------------------------------------------------------------

    async def keep_firing(self, access: Access) -> None:
        """Fire the canary through one connection until it is lost, or until cancelled."""
        lost = access.connection.lost
        while not lost.done():
            try:
                await self._fire(access)
            except EngineFailedError as error:
                self._reporter.defect("engine_failed", error.cause, stream=CANARY_STREAM)
                self._discard_service()
            except StreamWentBackError:
                self._discard_service()
            except SchedulerError as error:
                self._failed(error)
            await asyncio.wait((lost,), timeout=RETRY_WAIT_SECONDS)

    async def leave(self, access: Access, *, is_last: bool) -> None:
        """Remove what the canary leaves in the account: all of it if no other instance `is_last`."""
        self._discard_service()
        with suppress(SchedulerError, TimeoutError):
            async with asyncio.timeout(LEAVE_LIMIT_SECONDS):
                if is_last:
                    await access.api.call(f"STREAM.DELETE.{CANARY_STREAM}")
                else:
                    mine = {"filter": f"nats_scheduler.canary.*.{self._instance}"}
                    await access.api.call(f"STREAM.PURGE.{CANARY_STREAM}", mine)

    async def _fire(self, access: Access) -> None:
        """Fire the canary for as long as the stream's contact lasts."""
        state = await _stream(access.connection, access.api)
        service = self._serving(state, access.server)
        await service.own(True, None, access.api)
        publishing = asyncio.create_task(self._keep_publishing(access.connection))
        try:
            contacts = partial(StreamContact, access.connection, access.api)
            await service.serve(contacts, None, access.api)
        finally:
            publishing.cancel()
            await asyncio.wait((publishing,))

    def _serving(self, state: StreamState, server: Capabilities) -> StreamService:
        service = self._service
        if service is None or not service.serves_the_same(state, Mode.PORTABLE, server):
            self._discard_service()
            service = self._services.aside(state, Mode.PORTABLE, server, self._settings, self._reported)
            self._service = service
        service.update(state)
        service.limited(server.max_payload)
        return service

    def _discard_service(self) -> None:
        if self._service is not None:
            self._service.end()
        self._service, self._next_due = None, 0

    # -- one canary after the other ------------------------------------------------------------------------------

    async def _keep_publishing(self, connection: Connection) -> None:
        """Publish each canary a little before it is due, until cancelled."""
        while True:
            now = self._clock.now()
            wait = self._next_due - self._lead - now
            if 0 < wait <= self._interval:  # else the server's clock went back
                await asyncio.sleep(wait / SECOND)
                continue
            try:
                await self._publish(connection, now + self._lead)
            except SchedulerError as error:
                self._failed(error)
                await asyncio.sleep(RETRY_WAIT_SECONDS)

    async def _publish(self, connection: Connection, due: int) -> None:
        """Store a canary that is due at an instant (ns); raises `SchedulerError` if that fails."""
        pattern = f"@at {format_rfc3339(due)}".encode()
        block = with_headers(b"", [(PORTABLE.schedule, pattern), (PORTABLE.target, self._target.encode())])
        own = answer_of(CANARY_STREAM)
        reply = await connection.request(self._schedule, b"", block, PUBLISH_LIMIT_SECONDS, accepts=own)
        stored_sequence(reply, CANARY_STREAM, f"publish {self._schedule}")
        self._next_due = due + self._interval

    def _reported(self, _stream: str, event: Event) -> None:
        """Record a fire that was read back; whatever else happens on the stream is of no interest to users."""
        if isinstance(event, FireConfirmed) and event.schedule == self._schedule:
            self._record.setback = self._reported_setback = ""
            self._record.fired(event.send_time, event.stored_at)

    def _failed(self, error: SchedulerError) -> None:
        """Note why the canary cannot be fired, and report that once, if it lasts; a lost connection is no news."""
        if isinstance(error, ConnectionLostError):
            return
        self._record.setback = reason = str(error)
        if self._record.not_ready() and reason != self._reported_setback:
            self._reported_setback = reason
            self._reporter.problem("canary_failed", reason=reason)


async def _stream(connection: Connection, api: JetStreamApi) -> StreamState:
    """Return the stream of the canaries, which is created if it does not exist; raises `SchedulerError`."""
    info = await api.stream(CANARY_STREAM)
    if info is None:
        try:
            info = await create_own(connection, api, _config("memory"))
        except RefusedError as error:
            if error.code not in DOES_NOT_FIT:
                raise
            info = await create_own(connection, api, _config("file"))  # there is some memory, and not enough
        info = info or await api.stream(CANARY_STREAM)
    if info is None:
        raise SchedulerError(f"stream {CANARY_STREAM} was deleted just after it was created")
    return StreamState.from_info(info)


def _config(storage: str) -> dict[str, Any]:
    return {
        "name": CANARY_STREAM,
        "description": "nats-scheduler: schedules by which instances test themselves",
        "subjects": [CANARY_SUBJECTS],
        "max_msgs": 1_000,
        "max_bytes": 1024 * 1024,
        "max_age": 5 * MINUTE,
        "duplicate_window": 2 * MINUTE,
        "discard": "old",
        "storage": storage,
        "allow_direct": True,
    }
