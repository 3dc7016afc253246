"""The requests of a program to JetStream: what is the client's own of `control.requests`.

No request of JetStream reads backwards. So the messages on a subject in a range of sequences at the end are read, in
parts side by side, then those of the range before it, which is longer if there were few. Each message is a request,
bodies included.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial

from nats_scheduler.client.client_wire import ClientWire
from nats_scheduler.control.errors import StreamNotFoundError
from nats_scheduler.control.requests import DEFAULT_PREFIX, Requests, StreamApi
from nats_scheduler.control.store_port import StreamNow
from nats_scheduler.message.advisory_messages import ADVISORY_PREFIX
from nats_scheduler.message.stored import StoredMessage

MAX_LOOKUPS_IN_FLIGHT = 64
"""Messages of a list that are asked for at once."""

FIRST_RANGE = 512
"""Sequences of the first range that is read backwards."""

MAX_RANGE = 65_536
RANGE_GROWTH = 4
READERS = 16
"""Parts of a range that are read side by side."""


class JetStreamRequests(Requests):
    """Requests to the JetStream of an account: the `Wire` of `control.store_port`."""

    def __init__(self, wire: ClientWire, prefix: str = DEFAULT_PREFIX) -> None:
        super().__init__(StreamApi(wire, prefix))
        self._wire = wire
        self._may_advise = True

    async def stream_of(self, subject: str) -> str:
        """Return the name of the stream that has a subject; raises `StreamNotFoundError`."""
        names = (await self._answered("", partial(self._api.call, "STREAM.NAMES", {"subject": subject}))).get("streams")
        if not isinstance(names, list) or not names:
            raise StreamNotFoundError(f"no stream has the subject {subject}")
        return str(names[0])

    async def newest(
        self, stream: str, subjects: str, is_wanted: Callable[[StoredMessage], bool]
    ) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, with its body, if its headers are wanted."""
        asked: deque[asyncio.Task[StoredMessage | None]] = deque()
        try:
            async for subject, _number in self.subjects(stream, subjects):
                asked.append(asyncio.ensure_future(self.last(stream, subject)))
                if len(asked) >= MAX_LOOKUPS_IN_FLIGHT and (found := await asked.popleft()) and is_wanted(found):
                    yield found
            while asked:
                if (found := await asked.popleft()) and is_wanted(found):
                    yield found
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def backwards(self, stream: StreamNow, subject: str) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages of a stream on a subject without their bodies, newest first."""
        first, end, length = stream.first_sequence, stream.last_sequence + 1, FIRST_RANGE
        while end > first:
            start = max(first, end - length)
            found = await self._range(stream.name, subject, start, end)
            for message in reversed(found):
                yield message
            end = start
            if len(found) * RANGE_GROWTH <= FIRST_RANGE:
                length = min(length * RANGE_GROWTH, MAX_RANGE)

    async def check_publish(self, subject: str) -> None:
        """Raise nothing: to ask what the user may needs a permission that programs do not have."""

    async def check_request(self, request: str) -> None:
        """Raise nothing: the same."""

    async def advise(self, subject: str, body: bytes, block: bytes) -> None:
        """Publish an advisory, and wait for nothing.

        Each attempt of a user who may not publish there is an error of the connection, so none follows the first.
        """
        self._may_advise = self._may_advise and not self._wire.was_denied_below(ADVISORY_PREFIX)
        if self._may_advise:
            await self._wire.publish(subject, body, block)

    async def _range(self, stream: str, subject: str, start: int, end: int) -> list[StoredMessage]:
        """Return the messages on a subject in a range of sequences, in their order."""
        step = max(-(-(end - start) // READERS), 1)
        parts = [(at, min(at + step, end)) for at in range(start, end, step)]
        read = await asyncio.gather(*(self._part(stream, subject, *part) for part in parts))
        return [message for part in read for message in part]

    async def _part(self, stream: str, subject: str, at: int, end: int) -> list[StoredMessage]:
        found: list[StoredMessage] = []
        while at < end:
            message = await self.message(stream, seq=at, next_by_subj=subject)
            if message is None or message.sequence >= end:
                break
            found.append(message._replace(body=None))
            at = message.sequence + 1
        return found
