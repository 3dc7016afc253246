"""Have a stream keep the advisories, so that what went wrong can still be read a week later.

The rule: nothing waits for it, and nothing depends on it. Advisories are published as they are without it; the stream
takes them as it takes any message on its subjects. Each is published with a reply subject, so that a refusal is seen.
The first advisories of a connection wait in memory until the stream exists, or for `RELEASE_AFTER_SECONDS`.
A stream that exists stays as it is: an operator may have edited it, and another sidecar may have other settings.
What is wrong with the stream is reported once, until something else is wrong. A missing permission has been reported
by then (`permission_denied`).

Cost: one request when the connection is made and one a minute; one short answer for each advisory.
Limit: if the stream is full of other schedules' failures (`max_bytes`), the oldest are discarded. What is published
while the stream is missing is not kept.
"""

import asyncio
from collections import deque
from typing import Any

from nats_scheduler.control.errors import ForbiddenError, SchedulerError
from nats_scheduler.control.transport import NO_RESPONDERS
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.own_streams import create_own
from nats_scheduler.message.advisory_messages import AdvisoryMessage
from nats_scheduler.message.foreign_json import inner, read_object
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.runtime.access import Access
from nats_scheduler.schedule.instants import HOUR
from nats_scheduler.settings.sidecar_settings import SidecarSettings

ADVISORY_SUBJECTS = "nats_scheduler.advisory.>"
"""The subjects that the stream keeps."""

DUPLICATE_WINDOW_NS = HOUR
"""The time (ns) within which the same advisory is stored once, for instance if a sidecar restarts again and again."""

RELEASE_AFTER_SECONDS = 2.0
"""Longest wait of an advisory for the stream to exist."""

MAX_WAITING = 1_000
"""The most advisories that wait; beyond that the oldest is published."""

FAILURES_CHECK_INTERVAL_SECONDS = 60.0
"""The interval at which it is checked whether the stream exists: it may have been deleted, or could not be created."""


class FailureKeeping:
    """Keeps failures for as long as the process runs; `begin` is called for each connection."""

    def __init__(self, settings: SidecarSettings, reporter: Reporter) -> None:
        self._settings = settings
        self._reporter = reporter
        self._reported = {"stream": "", "advisory": ""}
        """The last reports about the stream, and about an advisory that it refused."""
        self._connection: Connection | None = None
        self._inbox = ""
        self._waiting: deque[bytes] | None = None
        """Advisories that wait for the stream to exist; None if none has to wait any more."""
        self._release_timer: asyncio.TimerHandle | None = None

    def begin(self, connection: Connection) -> None:
        """Publish advisories through a connection from now on."""
        if not self._settings.keep_failures:
            self._reporter.advise = lambda message: connection.publish(*message)
            return
        self._connection = connection
        self._inbox = connection.inbox("advised")
        connection.subscribe(self._inbox, self._answered)
        self._waiting = deque()
        if self._release_timer is not None:
            self._release_timer.cancel()
        self._release_timer = asyncio.get_running_loop().call_later(RELEASE_AFTER_SECONDS, self._release)
        self._reporter.advise = self._publish

    async def keep(self, access: Access) -> None:
        """Have the stream exist, until cancelled."""
        if not self._settings.keep_failures:
            return
        while True:
            try:
                await self._ensure(access)
                self._reported["stream"] = ""
            except ForbiddenError:
                pass
            except SchedulerError as error:
                self._failed("stream", str(error))
            self._release()
            await asyncio.sleep(FAILURES_CHECK_INTERVAL_SECONDS)

    def _publish(self, message: AdvisoryMessage) -> None:
        """Publish an advisory, now or when the stream exists; one that the server does not take is left out."""
        assert self._connection is not None, "there are advisories from the first connection on"
        subject, body, block = message
        if len(block) + len(body) > self._connection.server.max_payload:
            self._lost("it is larger than the server's max_payload")
            return
        published = frame(subject, self._inbox, block, body)
        if self._waiting is None:
            self._connection.write(published)
            return
        self._waiting.append(published)
        if len(self._waiting) > MAX_WAITING:
            self._connection.write(self._waiting.popleft())

    def _release(self) -> None:
        """Publish what waits, and from now on at once."""
        if self._waiting and self._connection is not None and not self._connection.is_lost:
            self._connection.write(b"".join(self._waiting))
        self._waiting = None

    async def _ensure(self, access: Access) -> None:
        """Create the stream if it does not exist; raises `SchedulerError` if it cannot be used."""
        name, api = self._settings.failures_stream, access.api
        info = await api.stream(name)
        if info is None:
            storage = self._settings.bucket_storage
            info = await create_own(access.connection, api, self._config(), storage) or await api.stream(name)
        subjects = inner(inner(info).get("config")).get("subjects")
        taken = subjects if isinstance(subjects, list) else ()
        if not any(subject_matches(ADVISORY_SUBJECTS, str(subject)) for subject in taken):
            raise SchedulerError(
                f"stream {name} exists and does not have the subject {ADVISORY_SUBJECTS}: name another one"
            )

    def _config(self) -> dict[str, Any]:
        settings = self._settings
        return {
            "name": settings.failures_stream,
            "description": "nats-scheduler: advisories about what went wrong",
            "subjects": [ADVISORY_SUBJECTS],
            "max_age": settings.failures_max_age,
            "max_bytes": settings.failures_max_bytes,
            "max_msgs_per_subject": settings.failures_per_schedule,
            "duplicate_window": min(DUPLICATE_WINDOW_NS, settings.failures_max_age),
            "discard": "old",
            "storage": "file",
            "allow_direct": True,
        }

    def _answered(self, _subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        if block.startswith(NO_RESPONDERS):
            self._lost("")
            return
        error = inner((read_object(body) or {}).get("error"))
        if error:
            self._lost(f"{error.get('description')} ({error.get('err_code')})")

    def _lost(self, reason: str) -> None:
        """Count an advisory that is not kept; without a reason no stream took it, and why is reported elsewhere."""
        self._reporter.failure_not_kept()
        if reason:
            self._failed("advisory", reason)

    def _failed(self, what: str, reason: str) -> None:
        if reason != self._reported[what]:
            self._reported[what] = reason
            shown = reason[:MAX_KEPT_CHARS]
            self._reporter.problem("failures_not_kept", stream=self._settings.failures_stream, reason=shown)
