"""Read what a stream holds on a subject, from the newest message to the oldest.

No request of JetStream reads backwards. So a range of sequences at the end is read forwards, then the range before it.
A range is as long as it has to be: a consumer that begins at its first sequence reports how many messages match, before
any is read, so a range with too many is shortened, and after one with few the next one is longer.

The rules: nothing but short-lived consumers is created, and none where a consumer changes what the stream keeps; there,
and where none may be created, one request is sent for each message on the subject.
What the caller has not asked for is not read: a chunk is read when the caller takes it.

Cost: per chunk two requests, and 10 µs for each message that matches; other messages are skipped by the server. Without
consumers some 5,000 messages a second, bodies included.
Limit: what is removed meanwhile may be missing; what is stored meanwhile is not read.
"""

from collections.abc import AsyncIterator

from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.consumers import PulledConsumer, consumer_from, reads_all
from nats_scheduler.jetstream.errors import ApiError, NoAnswerError, NotPermittedError
from nats_scheduler.message.stored import StoredMessage

FIRST_RANGE = 1_024
"""Sequences of the first range; also the most messages of a chunk, as far as a range can be divided."""

RANGE_GROWTH = 8
"""After a range with few messages the next one is so many times as long."""

FEW_MESSAGES = FIRST_RANGE // RANGE_GROWTH


class BackwardReader:
    """Reads one stream; `config` is the stream's configuration as the server returned it."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        subject: str,
        *,
        headers_only: bool = True,
    ) -> None:
        """Read the messages on `subject`, which may contain wildcards."""
        self._connection = connection
        self._api = api
        self._config = config
        self._stream = str(config["name"])
        self._subject = subject
        self._headers_only = headers_only
        self._may_consume = reads_all(config)

    async def chunks(self, first: int, last: int) -> AsyncIterator[list[StoredMessage]]:
        """Yield the messages between two sequences in chunks, newest first; a chunk may be empty.

        Raises `JetStreamError` if the server does not answer, or refuses.
        """
        end, length, behind = last + 1, FIRST_RANGE, 0
        while end > first:
            start = max(first, end - length)
            opened = await self._open(start)
            messages: list[StoredMessage] | None
            if opened is None:
                messages = await self._requested(start, end)
            else:
                messages = await self._consumed(opened, opened.pending - behind, start, end)
            if messages is None:
                length = max(FIRST_RANGE, (end - start) // RANGE_GROWTH)
                continue
            if opened is not None:
                behind = opened.pending
            yield messages[::-1]
            end = start
            length = (length * RANGE_GROWTH) if len(messages) <= FEW_MESSAGES else length

    async def _open(self, start: int) -> PulledConsumer | None:
        """Create a consumer from a sequence on; None if there is to be none."""
        if not self._may_consume:
            return None
        consumer = PulledConsumer(self._connection, self._api, self._stream)
        wanted = {"headers_only": self._headers_only, "filter_subject": self._subject}
        try:
            await consumer.open({**consumer_from(start, self._config), **wanted})
        except (ApiError, NotPermittedError, NoAnswerError):
            self._may_consume = False
            return None
        return consumer

    async def _consumed(self, consumer: PulledConsumer, count: int, start: int, end: int) -> list[StoredMessage] | None:
        """Read a range through a consumer, about `count` messages; None if the range is to be shorter."""
        messages = consumer.messages
        try:
            if _is_too_much(count, start, end):
                return None
            # Until one behind the range, or none at all, comes: a count may be out of date.
            while not (messages and messages[-1].sequence >= end):
                expected = max(count + 1 - len(messages), 1)
                if not await consumer.pull(min(expected, FIRST_RANGE)):
                    break
        finally:
            consumer.close()
        return [message for message in messages if message.sequence < end]

    async def _requested(self, start: int, end: int) -> list[StoredMessage] | None:
        """Read a range by one request for each message; None if the range is to be shorter."""
        found: list[StoredMessage] = []
        after = start
        while after < end:
            message = await self._api.message(self._stream, seq=after, next_by_subj=self._subject)
            if message is None or message.sequence >= end:
                break
            found.append(message._replace(body=None) if self._headers_only else message)
            if _is_too_much(len(found), start, end):
                return None
            after = message.sequence + 1
        return found


def _is_too_much(count: int, start: int, end: int) -> bool:
    """Return whether so many messages are too many for a range that can be divided."""
    return count > FIRST_RANGE and end - start > FIRST_RANGE
