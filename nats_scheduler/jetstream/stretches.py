"""Read a stretch of a stream once, forwards or backwards, through short-lived consumers: nothing is followed.

What the caller has not asked for is not read, so one that works in slices holds one chunk in memory.

No request of JetStream reads backwards. So a range of sequences at the end is read forwards, then the range before it.
A range is as long as it has to be: a consumer that begins at its first sequence reports how many messages match, before
any is read, so a range with too many is shortened, and after one with few the next one is longer.

The rules: a pull is asked for when the one before is over, and nothing is acknowledged. No consumer is created where
one changes what the stream keeps. There, and where none may be created, messages are looked up (`jetstream.lookups`).
The node of a consumer may be behind the stream's leader, or die. Forwards another consumer then reads the rest after a
short wait; if that does not help soon, it is an error.

Cost: that of a consumer for each range (`jetstream.pulled_consumer`). Look-ups read 5,000 to 8,000 messages a second;
where many messages are on few subjects, those that matter of each subject are looked up.
Limit: what is stored while it is read may be missing, and what is removed meanwhile may be missing or there.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing

from nats_scheduler.control.errors import DeadlineError, ForbiddenError, RefusedError
from nats_scheduler.jetstream.api import CONSUMER_LIMIT_REACHED, Config, JetStreamApi, consumer_from, reads_all
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.lookups import MIN_RANGE_PART, Lookups
from nats_scheduler.jetstream.pulled_consumer import PulledConsumer
from nats_scheduler.message.foreign_json import inner, integer
from nats_scheduler.message.stored import StoredMessage

CHUNK_MESSAGES = 100
"""The most messages of a chunk forwards: those that arrive together are parsed together, in half a millisecond."""

LONG_CHUNK_MESSAGES = 1_000
"""The most where nothing else waits, as in a command: reading takes a third less time."""

BEHIND_WAITS_SECONDS = (0.01, 0.05, 0.1, 0.2)
"""Waits before another consumer is created because the node of the one before was behind the leader."""

MAX_NOT_DELIVERED = 1_000
"""Sequences that are looked up if no consumer delivers them: none does where only subjects with a DEL follow."""

LOOKUPS_IN_FLIGHT = 8
"""Look-ups whose answers may arrive together: half a millisecond of work."""

FIRST_RANGE = 1_024
"""Sequences of the first range backwards; also the most messages of a chunk, as far as a range can be divided."""

RANGE_GROWTH = 8
"""The factor by which the next range is longer after one with few messages."""

FEW_MESSAGES = FIRST_RANGE // RANGE_GROWTH


class StretchReader:
    """Reads what one stream has on a subject; `config` is the stream's configuration as the server returned it."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        subject: str = ">",
        *,
        headers_only: bool = True,
    ) -> None:
        """Read the messages on `subject`, which may contain wildcards."""
        self._connection = connection
        self._api = api
        self._config = config
        self._stream = str(config["name"])
        self._lookups = Lookups(api, self._stream)
        self._subject = subject
        self._headers_only = headers_only
        self._may_consume = reads_all(config)

    async def _open(self, first: int) -> PulledConsumer:
        """Create a consumer from a sequence on."""
        consumer = PulledConsumer(self._connection, self._api, self._stream)
        wanted: Config = {"headers_only": self._headers_only}
        if self._subject != ">":
            wanted["filter_subject"] = self._subject
        await consumer.open({**consumer_from(first, self._config), **wanted})
        return consumer

    # -- forwards ------------------------------------------------------------------------------------------------

    async def read_all(
        self, take: Callable[[Sequence[StoredMessage]], None], after: int = 0, chunk: int = LONG_CHUNK_MESSAGES
    ) -> None:
        """Give what the stream holds behind a sequence to `take`, at most `chunk` messages at a time, oldest first.

        If look-ups are needed, ordinary messages on subjects without a schedule are passed over.
        Raises `SchedulerError` if the stream cannot be read.
        """
        info = await self._api.call(f"STREAM.INFO.{self._stream}")
        through = integer(inner(info.get("state")).get("last_seq"))
        async with aclosing(self.forwards(after, through, lambda _subject: False, chunk)) as chunks:
            async for messages in chunks:
                take(messages)

    async def forwards(
        self, after: int, through: int, holds: Callable[[str], bool], chunk: int = CHUNK_MESSAGES
    ) -> AsyncGenerator[list[StoredMessage], None]:
        """Yield the messages behind `after`, at least up to `through`, which the leader has; in chunks, oldest first.

        `holds` returns whether there is a schedule on a subject: if look-ups are needed, ordinary messages on others
        are passed over.
        Raises `SchedulerError` if the server does not answer as expected.
        """
        last = after
        if last >= through:
            return
        for wait in (*BEHIND_WAITS_SECONDS, None):
            async with aclosing(self._delivered(last, chunk, is_tried_again=wait is not None)) as delivered:
                async for messages in delivered:
                    last = messages[-1].sequence
                    yield messages
            if await self._is_all(last, through):
                return
            if wait is None or not self._may_consume:
                break
            await asyncio.sleep(wait)
        if self._may_consume and through - last > MAX_NOT_DELIVERED:
            raise DeadlineError(f"stream {self._stream}: the consumer's node is behind the leader")
        # Which schedules lie before what a consumer delivered is not known here: then nothing is passed over.
        async with aclosing(self._one_by_one(last, through, holds if last == after else lambda _subject: True)) as rest:
            async for messages in rest:
                yield messages

    async def _delivered(
        self, after: int, chunk: int, *, is_tried_again: bool
    ) -> AsyncGenerator[list[StoredMessage], None]:
        """Yield what a consumer delivers; nothing where there is to be none."""
        if not self._may_consume:
            return
        try:
            consumer = await self._open(after + 1)
        except RefusedError as error:
            if error.code != CONSUMER_LIMIT_REACHED:
                raise
            self._may_consume = False
            return
        try:
            async with aclosing(self._pulled(consumer, chunk)) as pulled:
                async for messages in pulled:
                    yield messages
        except DeadlineError:  # its node may have died
            if not is_tried_again:
                raise

    async def _one_by_one(
        self, after: int, through: int, holds: Callable[[str], bool]
    ) -> AsyncGenerator[list[StoredMessage], None]:
        """Yield what is looked up: by subject if there are few, else message by message."""
        if (await self._lookups.state()).are_fewer_subjects(after):
            yield await self._lookups.of_all_subjects(after, holds)
            return
        schedules: set[str] = set()
        while after < through and (following := await self._lookups.next(after)) is not None:
            end = min(following.sequence - 1 + LOOKUPS_IN_FLIGHT * MIN_RANGE_PART, through)
            messages = await self._lookups.between(
                following.sequence - 1, end, lambda subject: subject in schedules or holds(subject)
            )
            schedules.update(message.subject for message in messages if message.block)
            yield messages
            after = end

    async def _pulled(self, consumer: PulledConsumer, count: int) -> AsyncGenerator[list[StoredMessage], None]:
        """Yield what a consumer delivers until it has nothing more, and delete it."""
        try:
            is_more = consumer.matched > 0
            while is_more:
                async with aclosing(consumer.parts(count)) as parts:
                    async for messages in parts:
                        yield messages
                is_more = consumer.is_complete
        finally:
            consumer.close()

    async def _is_all(self, last: int, through: int) -> bool:
        """Return whether the leader has no message up to `through` that was not delivered.

        It is checked on a single server too: a pull may end early there, and what is missing would stay so.
        """
        if last >= through:
            return True
        following = await self._api.message(self._stream, seq=last + 1, next_by_subj=">")
        return following is None or following.sequence > through

    # -- backwards -----------------------------------------------------------------------------------------------

    async def backwards(self, first: int, last: int) -> AsyncIterator[list[StoredMessage]]:
        """Yield the messages between two sequences in chunks, newest first; a chunk may be empty.

        Raises `SchedulerError` if the server does not answer, or refuses.
        """
        end, length, behind = last + 1, FIRST_RANGE, 0
        while end > first:
            start = max(first, end - length)
            messages: list[StoredMessage] | None
            consumer = await self._opened(start)
            if consumer is None:
                messages = await self._looked_up(start, end)
            else:
                messages = await self._consumed(consumer, consumer.matched - behind, start, end)
            if messages is None:
                length = max(FIRST_RANGE, (end - start) // RANGE_GROWTH)
                continue
            if consumer is not None:
                behind = consumer.matched
            yield messages[::-1]
            end = start
            length = (length * RANGE_GROWTH) if len(messages) <= FEW_MESSAGES else length

    async def _opened(self, start: int) -> PulledConsumer | None:
        """Create a consumer from a sequence on; None if there is to be none."""
        if not self._may_consume:
            return None
        try:
            return await self._open(start)
        except (RefusedError, ForbiddenError, DeadlineError):
            self._may_consume = False
            return None

    async def _consumed(self, consumer: PulledConsumer, count: int, start: int, end: int) -> list[StoredMessage] | None:
        """Read a range through a consumer, about `count` messages; None if the range is to be shorter."""
        messages: list[StoredMessage] = []
        try:
            if _is_too_much(count, start, end):
                return None
            # Until one behind the range, or none at all, comes: a count may be out of date.
            while not (messages and messages[-1].sequence >= end):
                expected = max(count + 1 - len(messages), 1)
                messages += await consumer.pull(min(expected, FIRST_RANGE))
                if not consumer.is_complete:
                    break
        finally:
            consumer.close()
        return [message for message in messages if message.sequence < end]

    async def _looked_up(self, start: int, end: int) -> list[StoredMessage] | None:
        """Look up the messages of a range; None if the range is to be shorter."""
        found: list[StoredMessage] = []
        async for message in self._lookups.walk(start - 1, end - 1, self._subject):
            found.append(message._replace(body=None) if self._headers_only else message)
            if _is_too_much(len(found), start, end):
                return None
        return found


def _is_too_much(count: int, start: int, end: int) -> bool:
    """Return whether `count` messages are too many for a range that can be divided."""
    return count > FIRST_RANGE and end - start > FIRST_RANGE
