"""The requests of the sidecar for the store of schedules, over the connection of the process (`control.requests`).

Cost: one request for each method; `newest` and `backwards` read the messages on their subjects from the newest to the
oldest (`jetstream.stretches`).
Limit: on a stream with `no_ack` no publish is answered, so the outcome of each is unknown.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from functools import partial

from nats_scheduler.control.errors import StreamNotFoundError
from nats_scheduler.control.requests import Requests, told_apart
from nats_scheduler.control.store_port import StreamNow
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.denials import forbidden
from nats_scheduler.jetstream.own_permissions import OwnPermissions
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import StretchReader
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.message.user_permissions import PUBLISH, permits

BODIES_IN_FLIGHT = 32
"""Messages that are read at once for a list."""

MESSAGES_PER_TURN = 64
"""Messages that are interpreted before other work of the event loop goes on: less than a millisecond."""


class ScheduleWire(Requests):
    """The requests of one connection; the `Wire` of `control.store_port`."""

    _api: JetStreamApi

    def __init__(self, connection: Connection, api: JetStreamApi) -> None:
        super().__init__(api)
        self._connection = connection

    async def stream_of(self, subject: str) -> str:
        """Return the name of the account's stream that has a subject."""
        info = await self._answered("", partial(self._api.stream_with, subject))
        if info is None:
            raise StreamNotFoundError(f"no stream has the subject {subject}")
        return StreamState.from_info(info).name

    async def newest(
        self, stream: str, subjects: str, is_wanted: Callable[[StoredMessage], bool]
    ) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, with its body, if its headers are wanted."""
        seen: set[str] = set()
        found: list[StoredMessage] = []
        async for message in self.backwards(await self.stream(stream), subjects):
            if message.subject not in seen and subject_matches(message.subject, subjects):
                seen.add(message.subject)
                if is_wanted(message):
                    found.append(message)
        for start in range(0, len(found), BODIES_IN_FLIGHT):
            part = found[start : start + BODIES_IN_FLIGHT]
            for bare, read in zip(part, await self._bodies(stream, part), strict=True):
                if read is not None:  # an answer in JSON does not have the bytes of each subject
                    yield read._replace(subject=bare.subject)

    async def backwards(self, stream: StreamNow, subject: str) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages of a stream on a subject without their bodies, newest first."""
        reader = StretchReader(self._connection, self._api, stream.config, subject)
        with told_apart(stream.name):
            async for chunk in reader.backwards(max(stream.first_sequence, 1), stream.last_sequence):
                for place, message in enumerate(chunk):
                    if place % MESSAGES_PER_TURN == MESSAGES_PER_TURN - 1:
                        await asyncio.sleep(0)
                    yield message

    async def check_publish(self, subject: str) -> None:
        """Raise `ForbiddenError` if the server lists that the user may not publish to a subject."""
        listed = await self._connection.one(OwnPermissions).listed()
        if listed is not None and not permits(listed, PUBLISH, subject):
            raise forbidden(subject)

    async def check_request(self, request: str) -> None:
        """Raise `ForbiddenError` if the server lists that the user may not send a request."""
        await self.check_publish(f"{self._api.prefix}.{request}")

    async def advise(self, subject: str, body: bytes, block: bytes) -> None:
        """Publish an advisory, and wait for nothing."""
        self._connection.publish(subject, body, block)

    async def _bodies(self, stream: str, messages: list[StoredMessage]) -> list[StoredMessage | None]:
        return await asyncio.gather(*(self.message(stream, seq=one.sequence) for one in messages))
