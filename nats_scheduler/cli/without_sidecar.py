"""What a command reads itself if no sidecar answers: schedules, contents, fires, failures, instances and streams.

Rule: nothing is changed, and what is returned is what a sidecar would answer: `Source` is what both can be asked.
Cost: a stream is read once, headers only; a content takes one request; fires and failures as `control.past` and
`service.stored_advisories` say; for instances two requests for each, and one for each stream.
"""

from typing import Protocol

from nats_scheduler.cli.output import CommandError
from nats_scheduler.cli.process import progress_bar
from nats_scheduler.control.past import FireQuery
from nats_scheduler.engine.views.view import Query
from nats_scheduler.jetstream.streams import StreamState, absence_of, reading_progress
from nats_scheduler.observe.documents import FailuresDocument, StreamModeDocument
from nats_scheduler.observe.message_contents import ContentDocument, content_document
from nats_scheduler.runtime.access import Access
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.fleet import read_fleet
from nats_scheduler.runtime.modes import mode_document
from nats_scheduler.runtime.stored_listing import read_listing
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.client import Listed
from nats_scheduler.service.past_answers import FiresDocument, find_fires
from nats_scheduler.service.schemas import InstancesDocument
from nats_scheduler.service.stored_advisories import AdvisoryQuery, find_failures
from nats_scheduler.service.stream_endpoints import instance_documents
from nats_scheduler.service.stream_owners import instances_document


class Source(Protocol):
    """Who can be asked what is stored: a running sidecar (`service.client.ServiceClient`), or `StoredSource`.

    `ServiceClient` raises `SchedulerError`, or `SchedulerError`, `ValueError` or `LookupError` if an answer cannot be
    had or read; `StoredSource` ends the command, or raises `SchedulerError`.
    """

    async def schedules(self, stream: StreamState, query: Query) -> Listed:
        """Return the schedules of a stream that a query wants, as they are stored there or later."""
        ...

    async def unfinished(self, stream: str) -> frozenset[int]:
        """Return the sequences of the schedules that wait until their fire before is finished, as far as is known."""
        ...

    async def fires(self, stream: str, query: FireQuery) -> FiresDocument:
        """Return the past fires of a schedule."""
        ...

    async def content(
        self, stream: str, subject: str, sequence: int, *, fire_in: str | None = None
    ) -> ContentDocument | None:
        """Return what is stored of a schedule with a sequence, or of its fire in the stream `fire_in`.

        None if that is not stored any more.
        """
        ...

    async def failures(self, kept_in: str, query: AdvisoryQuery) -> FailuresDocument:
        """Return what went wrong, of what the stream `kept_in` keeps."""
        ...

    async def instances(self) -> InstancesDocument:
        """Return the instances of the account by id, and the owner and the standbys of each stream."""
        ...

    async def modes(self) -> list[StreamModeDocument]:
        """Return the streams of the account that carry schedules, by name."""
        ...


class StoredSource:
    """Reads what is stored."""

    def __init__(self, access: Access) -> None:
        self._access = access

    async def schedules(self, stream: StreamState, query: Query) -> Listed:
        """Read a stream as a sidecar would."""
        state, mode = await self._access.with_mode(stream)
        if mode is None:
            raise CommandError(f"stream {stream.name} does not carry schedules any more")
        with progress_bar() as bar:
            show, now = reading_progress(bar.show, stream.name, state), SystemClock().now
            listed, _at = await read_listing(self._access, state, mode, now, query=query, notify_read=show)
        return listed

    async def unfinished(self, _stream: str) -> frozenset[int]:
        """Return nothing: only the sidecar that holds a schedule knows that its fire before is unfinished."""
        return frozenset()

    async def fires(self, stream: str, query: FireQuery) -> FiresDocument:
        """Read the past fires of a schedule; end the command with 1 if its stream does not exist."""
        access = self._access
        state, _mode = await access.with_mode(await self._stream(stream))
        return await find_fires(access.connection, access.api, state, query)

    async def content(
        self, stream: str, _subject: str, sequence: int, *, fire_in: str | None = None
    ) -> ContentDocument | None:
        """Read a message."""
        message = await self._access.api.message(fire_in or stream, seq=sequence)
        return None if message is None else content_document(message, is_fire=fire_in is not None)

    async def failures(self, kept_in: str, query: AdvisoryQuery) -> FailuresDocument:
        """Read what went wrong; end the command with 1 if no stream keeps it."""
        return await find_failures(self._access.connection, self._access.api, await self.keeping(kept_in), query)

    async def keeping(self, name: str) -> StreamState:
        """Return the stream that keeps advisories, as it is now; end the command with 1 if it does not exist."""
        return await self._stream(name, ": a sidecar creates it, unless keep_failures is false")

    async def instances(self) -> InstancesDocument:
        """Read the registry's bucket."""
        fleet = await read_fleet(self._access.registry, self._access.api, SystemClock().now)
        return instances_document(format_rfc3339(fleet.at), instance_documents(fleet))

    async def modes(self) -> list[StreamModeDocument]:
        """Look the streams up."""
        return [mode_document(one) for one in await self._access.served_streams()]

    async def _stream(self, name: str, hint: str = "") -> StreamState:
        info = await self._access.api.stream(name)
        if info is None:
            absence = f"stream {name} does not exist{hint}" if hint else await absence_of(self._access.api, name)
            raise CommandError(absence)
        return StreamState.from_info(info)
