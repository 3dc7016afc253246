"""Read what a stream holds behind a sequence, once and as fast as the caller takes it: nothing is followed.

For questions that are answered beside the work of the sidecar (`jetstream.follow` reads as fast as the server sends).
A chunk is asked for when the caller takes it, so a caller that works in slices holds one chunk in memory.

The rules: nothing but a short-lived consumer is created, and none where a consumer changes what the stream keeps.
There, and where the account allows no further consumer, the messages are looked up. What is stored while it is read may
be missing, and what is removed meanwhile may be there.
The node of a consumer may be behind the stream's leader. Then another consumer reads the rest after a short wait; if
that does not help soon, it is an error.

Cost: two requests, one for each chunk, and about 6 µs a message. Where look-ups are needed it is one request for each
message, 8,000 a second.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing

from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.consumers import PulledConsumer, consumer_from, reads_all
from nats_scheduler.jetstream.contact import CONSUMER_LIMIT_REACHED
from nats_scheduler.jetstream.errors import ApiError, NoAnswerError
from nats_scheduler.jetstream.lookups import MIN_RANGE_PART, Lookups
from nats_scheduler.message.stored import StoredMessage

CHUNK_MESSAGES = 100
"""Messages of a chunk: they are parsed together when they arrive, in about half a millisecond."""

BEHIND_WAITS_SECONDS = (0.01, 0.05, 0.1, 0.2)
"""Waits before another consumer is created because the node of the one before was behind the leader."""

MAX_NOT_DELIVERED = 1_000
"""Sequences that are looked up if no consumer delivers them: none does where only subjects with a DEL follow."""

LOOKUPS_IN_FLIGHT = 8
"""Look-ups whose answers may arrive together: half a millisecond of work."""


class ForwardReader:
    """Reads one stream; `config` is the stream's configuration as the server returned it."""

    def __init__(self, connection: Connection, api: JetStreamApi, config: Config) -> None:
        self._connection = connection
        self._api = api
        self._config = config
        self._stream = str(config["name"])

    async def chunks(
        self, after: int, through: int, holds: Callable[[str], bool]
    ) -> AsyncGenerator[list[StoredMessage], None]:
        """Yield the messages behind `after`, at least up to `through`, which the leader has; in chunks, oldest first.

        `holds` returns whether there is a schedule on a subject: if look-ups are needed, ordinary messages on others
        are passed over.
        Raises `JetStreamError` if the server does not answer as expected.
        """
        last = after
        for wait in (*BEHIND_WAITS_SECONDS, None):
            if last >= through:
                return
            consumer = await self._consumer(last)
            if consumer is None:
                async for chunk in self._looked_up(last, through, holds):
                    yield chunk
                return
            async with aclosing(self._pulled(consumer)) as pulled:
                async for chunk in pulled:
                    last = chunk[-1].sequence
                    yield chunk
            if await self._is_all(last, through):
                return
            if wait is not None:
                await asyncio.sleep(wait)
        if through - last <= MAX_NOT_DELIVERED:
            async for chunk in self._looked_up(last, through, holds):
                yield chunk
            return
        raise NoAnswerError(f"stream {self._stream}: the consumer's node is behind the leader")

    async def _pulled(self, consumer: PulledConsumer) -> AsyncGenerator[list[StoredMessage], None]:
        """Yield what a consumer delivers until it has nothing more, and delete it."""
        try:
            is_more = consumer.pending > 0
            while is_more:
                is_more = await consumer.pull(CHUNK_MESSAGES)
                chunk, consumer.messages = consumer.messages, []
                if chunk:
                    yield chunk
        finally:
            consumer.close()

    async def _consumer(self, after: int) -> PulledConsumer | None:
        """Create a consumer; None if there is to be none."""
        if not reads_all(self._config):
            return None
        consumer = PulledConsumer(self._connection, self._api, self._stream)
        try:
            await consumer.open({**consumer_from(after + 1, self._config), "headers_only": True})
        except ApiError as error:
            if error.code == CONSUMER_LIMIT_REACHED:
                return None
            raise
        return consumer

    async def _is_all(self, last: int, through: int) -> bool:
        """Return whether the leader has no message up to `through` that was not delivered.

        It is checked on a single server too: a pull may end early there, and what is missing would stay so.
        """
        if last >= through:
            return True
        following = await self._api.message(self._stream, seq=last + 1, next_by_subj=">")
        return following is None or following.sequence > through

    async def _looked_up(
        self, after: int, through: int, holds: Callable[[str], bool]
    ) -> AsyncGenerator[list[StoredMessage], None]:
        lookups = Lookups(self._api, self._stream)
        while after < through and (following := await lookups.next(after)) is not None:
            end = min(following.sequence - 1 + LOOKUPS_IN_FLIGHT * MIN_RANGE_PART, through)
            yield await lookups.between(following.sequence - 1, end, holds)
            after = end
