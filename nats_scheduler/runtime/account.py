"""Serve one account through one connection: put its parts together, run them, and end them.

The parts: `runtime.discovery` finds the streams to check, `runtime.stream_flags` keeps what is known of their flags,
`runtime.account_serving` decides how each is served and runs that, and `runtime.this_instance` decides which sidecar
owns which.

The rule: requests of others are watched before anything is read, so that none is missed in between.
"""

import asyncio
from dataclasses import replace
from functools import partial

from nats_scheduler.engine.ownership.owners import Owners
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.request_watch import Request, RequestWatch, StreamDeletionRequested, watched_prefix
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.message.capabilities import capabilities
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.account_serving import Serving
from nats_scheduler.runtime.calendar_updates import follow_calendars
from nats_scheduler.runtime.discovery import Discovery
from nats_scheduler.runtime.file_streams import FileStreams
from nats_scheduler.runtime.last_requests import LastRequests
from nats_scheduler.runtime.served_streams import StreamServices
from nats_scheduler.runtime.server_clock import ServerClock, keep_time, set_clock
from nats_scheduler.runtime.stream_flags import StreamFlags
from nats_scheduler.runtime.this_instance import Instances
from nats_scheduler.runtime.unserved import UnservedStreams
from nats_scheduler.runtime.work import Background, kept_up
from nats_scheduler.service.endpoint import SUBJECTS
from nats_scheduler.service.instance_questions import Questions
from nats_scheduler.service.sidecar_answers import HEALTH
from nats_scheduler.settings.sidecar_settings import SidecarSettings

LOOK_WAIT_SECONDS, LOOK_WAIT_LIMIT_SECONDS = 2.0, 10.0
"""The wait, at first and at most, between two looks at what the server takes of a message while something is larger."""


class Account:
    """The streams of one account on one connection; their services outlive it."""

    def __init__(
        self,
        connection: Connection,
        settings: SidecarSettings,
        clock: ServerClock,
        reporter: Reporter,
        services: StreamServices,
        owners: Owners,
        unserved: UnservedStreams,
    ) -> None:
        """Watch the requests of others from now on; `prepare` and `serve` do the rest."""
        self._clock = clock
        self._reporter = reporter
        self._services = services
        self._unserved = unserved
        self.access = access = Access.through(connection, settings)
        access.registry.broken = partial(reporter.registry_value_ignored, access.registry.stream)
        access.registry.adapted = reporter.bucket_adapted
        self._requests = LastRequests(asyncio.get_running_loop().time)
        self._flags = StreamFlags(lambda: self.access.flagged, services.by_name, reporter, self._requests.written)
        restore = self._flags.remember_all
        self.instances = Instances(
            owners,
            access.registry,
            access.api,
            clock,
            services.by_name,
            reporter,
            restore,
            self._is_there,
            services.left,
        )
        prefix = watched_prefix(access.api.prefix, settings.connection.js_domain, connection.server.domain)
        self._watch = RequestWatch(connection, prefix, self._received)
        self._received_early: list[Request] = []
        self._discovery: Discovery | None = None

    async def prepare(self) -> None:
        """Find out what the server supports, and open the registry; raises `SchedulerError` without JetStream.

        When it returns, every request of others is seen: the server has taken our subscriptions before it answered.
        The registry is waited for on the first connection only: it may have no leader while the streams have theirs.
        """
        access = self.access
        server = access.connection.server
        known = capabilities(await access.api.info(), server.version, server.max_payload)
        self.access = replace(access, server=known)
        if not self._clock.is_set:
            await access.registry.open()
            await set_clock(self._clock, access.registry.server_time)

    async def serve(self, files: FileStreams, listed: asyncio.Event) -> None:
        """Serve until cancelled, or until the connection is lost; streams of `files` are created meanwhile.

        `listed` is set when the streams of the account are known.
        """
        access, reporter = self.access, self._reporter
        async with TaskGroup() as tasks:
            background = Background(tasks, reporter)
            services, flags = self._services, self._flags
            serving = Serving(access, services, flags, self.instances, reporter, background)
            self.instances.decide = serving.begin_check
            works = [background.begin(kept_up(self.instances.take_part, reporter))]
            self._discovery = discovery = Discovery(
                access, services, flags, self._requests, serving, self._unserved, reporter, background
            )
            for request in self._received_early:
                discovery.receive(request)
            works.append(background.begin(kept_up(partial(follow_calendars, access, services, reporter), reporter)))
            works.append(background.begin(files.apply(access.flagged, serving.check)))
            ask = partial(services.answer_at_once, access.registry.server_time)
            works.append(background.begin(kept_up(partial(keep_time, self._clock, ask), reporter)))
            works.append(background.begin(kept_up(self._keep_looking, reporter)))
            try:
                await discovery.keep_listing(listed)
            finally:
                self._watch.end()
                for task in works:
                    task.cancel()
                serving.end_all()

    async def _keep_looking(self) -> None:
        """Look at what the server takes of a message, for as long as something is larger: nothing else shows a change.

        A server that reloads its configuration says so only to new connections.
        """
        connection, services = self.access.connection, self._services.by_name

        def limited(max_payload: int) -> None:
            for service in services.values():
                service.limited(max_payload)

        connection.when_limited(limited)
        oversized, wait = 0, LOOK_WAIT_SECONDS
        while True:
            await asyncio.sleep(wait)
            before, oversized = oversized, sum(service.engine.oversized for service in services.values())
            if oversized == before and not connection.lacks_room:
                wait = LOOK_WAIT_SECONDS
                continue
            await connection.look_again()
            wait = min(2 * wait, LOOK_WAIT_LIMIT_SECONDS)

    async def _is_there(self, instance: str) -> bool | None:
        """Return whether an instance has a connection: its end ends the subscriptions by which the service answers."""
        return await self.access.connection.one(Questions).is_subscribed(f"{SUBJECTS}.{HEALTH.endpoint}.{instance}")

    def _received(self, request: Request) -> None:
        if request == StreamDeletionRequested(self.access.registry.stream):
            self.instances.bucket_deletion_requested()
        if self._discovery is None:
            self._received_early.append(request)
        else:
            self._discovery.receive(request)
