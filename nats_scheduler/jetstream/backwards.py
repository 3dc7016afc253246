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

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from nats_scheduler.jetstream.api import CONSUMER_DEADLINE_SECONDS, Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.consumers import consumer_from, consumer_name
from nats_scheduler.jetstream.contact import reads_all
from nats_scheduler.jetstream.errors import ApiError, ConnectionLostError, NoAnswerError, NotPermittedError
from nats_scheduler.jetstream.foreign_json import inner, integer
from nats_scheduler.message.stored import StoredMessage

FIRST_RANGE = 1_024
"""Sequences of the first range; also the most messages of a chunk, as far as a range can be divided."""

RANGE_GROWTH = 8
"""After a range with few messages the next one is so many times as long."""

FEW_MESSAGES = FIRST_RANGE // RANGE_GROWTH

READ_SILENCE_LIMIT_SECONDS = 5.0
"""After so long without a message that was asked for, the consumer counts as lost."""


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

    async def _open(self, start: int) -> _Consumer | None:
        """Create a consumer from a sequence on; None if there is to be none."""
        if not self._may_consume:
            return None
        name = consumer_name()
        wanted = {"headers_only": self._headers_only, "filter_subject": self._subject}
        config = {**consumer_from(start, self._config), **wanted}
        consumer = _Consumer(name, self._connection.inbox(f"b.{name}"))
        consumer.sid = self._connection.subscribe(consumer.inbox, consumer.received)
        try:
            info = await self._api.create_consumer(self._stream, name, config, CONSUMER_DEADLINE_SECONDS)
        except (ApiError, NotPermittedError, NoAnswerError):
            self._connection.unsubscribe(consumer.sid)
            self._may_consume = False
            return None
        consumer.pending = integer(info.get("num_pending"))
        consumer.max_pull = integer(inner(info.get("config")).get("max_batch")) or FIRST_RANGE
        return consumer

    def _close(self, consumer: _Consumer) -> None:
        self._connection.unsubscribe(consumer.sid)
        self._api.abandon_consumer(self._stream, consumer.name)

    async def _consumed(self, consumer: _Consumer, count: int, start: int, end: int) -> list[StoredMessage] | None:
        """Read a range through a consumer, about `count` messages; None if the range is to be shorter."""
        try:
            if _is_too_much(count, start, end):
                return None
            # Until one behind the range, or none at all, comes: a count may be out of date.
            while not consumer.has_reached(end):
                expected = max(count + 1 - len(consumer.messages), 1)
                self._pull(consumer, min(expected, consumer.max_pull))
                if not await self._until_pulled(consumer):
                    break
        finally:
            self._close(consumer)
        return [message for message in consumer.messages if message.sequence < end]

    def _pull(self, consumer: _Consumer, count: int) -> None:
        consumer.to_come, consumer.is_pull_over = count, asyncio.get_running_loop().create_future()
        body = json.dumps({"batch": count, "no_wait": True}).encode()
        request = f"{self._api.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{consumer.name}"
        self._connection.write(frame(request, consumer.inbox, b"", body))

    async def _until_pulled(self, consumer: _Consumer) -> bool:
        """Wait for what was pulled; return whether all of it came."""
        over = consumer.is_pull_over
        assert over is not None
        to_come = -1
        while not over.done() and to_come != consumer.to_come and not self._connection.is_lost:
            to_come = consumer.to_come
            waited_for = (over, self._connection.lost)
            await asyncio.wait(waited_for, timeout=READ_SILENCE_LIMIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if over.done():
            return over.result()
        if self._connection.is_lost:
            raise ConnectionLostError(self._connection.lost.result())
        raise NoAnswerError(f"stream {self._stream}: no message came within {READ_SILENCE_LIMIT_SECONDS} s")

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


@dataclass(slots=True)
class _Consumer:
    """A consumer, and what it has delivered."""

    name: str
    inbox: str
    sid: int = 0
    pending: int = 0
    """How many messages matched when it was created."""
    max_pull: int = FIRST_RANGE
    """A server may limit the pulls of all consumers (`max_request_batch`), and refuses larger ones."""
    to_come: int = 0
    messages: list[StoredMessage] = field(default_factory=list)
    is_pull_over: asyncio.Future[bool] | None = None
    """Resolves to whether all that was pulled came."""

    def has_reached(self, end: int) -> bool:
        """Return whether a message at or behind a sequence was delivered."""
        return bool(self.messages) and self.messages[-1].sequence >= end

    def received(self, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        """Receive a message, or a status of the server, after which nothing more comes."""
        if not reply.startswith(b"$JS.ACK."):
            self._end(is_complete=False)
            return
        fields = reply.split(b".")
        at = 5 if len(fields) == 9 else 7  # a domain and the account's hash put two more in front
        stored_on = subject.decode("utf-8", "surrogateescape")
        self.messages.append(StoredMessage(stored_on, int(fields[at]), int(fields[at + 2]), block, body or None))
        self.to_come -= 1
        if self.to_come == 0:
            self._end(is_complete=True)

    def _end(self, *, is_complete: bool) -> None:
        if self.is_pull_over is not None and not self.is_pull_over.done():
            self.is_pull_over.set_result(is_complete)
