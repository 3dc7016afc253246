"""Have a stream keep the advisories, for as long as the process runs, over all its connections.

The rule: what is wrong with the stream is reported once, until something else is wrong. A missing permission has been
reported by then (`permission_denied`).
Cost: see `jetstream.failures`. Limit: what is published while the stream is missing is not kept.
"""

import asyncio

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import JetStreamError, NotPermittedError
from nats_scheduler.jetstream.failures import FailureLimits, FailuresStream
from nats_scheduler.message.advisory_messages import AdvisoryMessage
from nats_scheduler.message.rejection import MAX_KEPT_CHARS
from nats_scheduler.observe.reporter import Reporter
from nats_scheduler.settings.sidecar import SidecarSettings

FAILURES_CHECK_INTERVAL_SECONDS = 60.0
"""How often it is checked whether the stream exists: it may have been deleted, or could not be created."""


class FailureKeeping:
    """What keeps failures; `begin` is called for each connection."""

    def __init__(self, settings: SidecarSettings, reporter: Reporter) -> None:
        self._is_wanted = settings.keep_failures
        self._limits = FailureLimits(
            settings.failures_stream,
            settings.failures_max_age,
            settings.failures_max_bytes,
            settings.failures_per_schedule,
        )
        self._reporter = reporter
        self._reported = {"stream": "", "advisory": ""}
        """What was reported last, of the stream and of an advisory that it refused."""
        self._stream: FailuresStream | None = None

    def begin(self, connection: Connection, api: JetStreamApi) -> None:
        """Publish advisories through a connection from now on."""
        if not self._is_wanted:
            self._stream = None
            self._reporter.advise = lambda message: connection.publish(*message)
            return
        self._stream = stream = FailuresStream(connection, api, self._limits, self._advisory_lost)

        def advise(message: AdvisoryMessage) -> None:
            stream.publish(*message)

        self._reporter.advise = advise

    async def keep(self) -> None:
        """Have the stream exist, until cancelled."""
        stream = self._stream
        if stream is None:
            return
        while True:
            try:
                await stream.ensure()
                self._reported["stream"] = ""
            except NotPermittedError:
                pass
            except JetStreamError as error:
                self._failed("stream", str(error))
            stream.release()
            await asyncio.sleep(FAILURES_CHECK_INTERVAL_SECONDS)

    def _advisory_lost(self, reason: str) -> None:
        self._reporter.failure_not_kept()
        if reason:
            self._failed("advisory", reason)

    def _failed(self, what: str, reason: str) -> None:
        if reason != self._reported[what]:
            self._reported[what] = reason
            shown = reason[:MAX_KEPT_CHARS]
            self._reporter.problem("failures_not_kept", stream=self._limits.name, reason=shown)
