"""Read what a stream holds by single requests: the last message on a subject, on each subject, or one after the other.

The rule: every request goes to the stream's leader. If the leader cannot answer at the moment, the request is repeated
a few times within a second; only then it has failed.
Returned lists have no bodies, so that reads of large messages keep none of them in memory.

Cost: a request a message, 15,000 a second. Limit: what was removed before it was asked for is not found.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple, TypeVar

from nats_scheduler.control.errors import DeadlineError, NoRespondersError, RefusedError, SchedulerError
from nats_scheduler.engine.inputs import HistoryRead
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.message.foreign_json import inner, integer
from nats_scheduler.message.publish_answers import TEMPORARY_STATUS
from nats_scheduler.message.reading import SCHEDULE_SUBSTRING, lifetime_of
from nats_scheduler.message.stored import StoredMessage


async def last_on(api: JetStreamApi, stream: str, subject: str) -> StoredMessage | None:
    """Return the last message on a subject that JSON can name; None if there is none.

    As servers up to 2.11 do: they find nothing once the last message of a subject was deleted by its sequence, although
    an earlier one is stored, and the guard of 2.11 refuses as if there were none
    (`test_the_message_before_a_deleted_one_is_found`). `STREAM.INFO` counts it; a read of the next message on the
    subject finds it, and corrects the server's record of the last one. That takes up to three requests more.
    """
    message = await api.message(stream, last_by_subj=subject)
    if message is not None or api.finds_last:
        return message
    info = await api.call(f"STREAM.INFO.{stream}", {"subjects_filter": subject})
    if not inner(inner(info.get("state")).get("subjects")):
        return None
    first = await api.message(stream, seq=1, next_by_subj=subject)
    return first and (await api.message(stream, last_by_subj=subject) or first)


MAX_SUBJECT_LOOKUPS_IN_FLIGHT = 256
"""Look-ups of subjects in flight at once."""

MAX_RANGE_READERS = 64
"""Parts of a range that are read concurrently, each one message after the other."""

MIN_RANGE_PART = 16
"""Sequences: a shorter range is not divided."""

LOOKUP_RETRY_WAITS_SECONDS = (0.02, 0.1, 0.2, 0.3)
"""Waits before a request that the server could not answer is repeated."""

MIN_MESSAGES_PER_SUBJECT = 2
"""With more messages per subject than this, a look-up of each subject costs less than a read of all messages."""

MARK_OF_SCHEDULES = b"Nats-Schedule:"
"""Every schedule of either dialect contains it, and no generated message that is not a schedule itself."""

Answer = TypeVar("Answer")


class StreamNumbers(NamedTuple):
    """The last sequence of a stream, and the numbers of its messages and subjects."""

    last_sequence: int
    messages: int
    subjects: int

    def are_fewer_subjects(self, after: int) -> bool:
        """Return whether to look up each subject costs less than to read all messages behind a sequence."""
        return min(self.last_sequence - after, self.messages) > MIN_MESSAGES_PER_SUBJECT * self.subjects


class Lookups:
    """Reads from one stream."""

    def __init__(self, api: JetStreamApi, stream: str) -> None:
        self._api = api
        self._stream = stream

    async def state(self) -> StreamNumbers:
        """Return what the stream's leader counts; zeros if the stream does not exist."""
        state = inner((await answered(lambda: self._api.stream(self._stream)) or {}).get("state"))
        return StreamNumbers(*(integer(state.get(name)) for name in ("last_seq", "messages", "num_subjects")))

    async def last(self, subject: str) -> StoredMessage | None:
        """Return the last message on a subject, with its body."""
        message = await answered(lambda: last_on(self._api, self._stream, subject))
        # A message that was published to a wildcard is stored under it, and a look-up finds what the wildcard matches.
        return message if message is not None and message.subject == subject else None

    async def next(self, after: int, subject: str = ">") -> StoredMessage | None:
        """Return the first message behind a sequence."""
        return await answered(lambda: self._api.message(self._stream, seq=after + 1, next_by_subj=subject))

    async def walk(self, after: int, through: int, subject: str = ">") -> AsyncIterator[StoredMessage]:
        """Yield the messages behind `after` up to `through`, one after the other."""
        while after < through:
            message = await self.next(after, subject)
            if message is None or message.sequence > through:
                return
            yield message
            after = message.sequence

    async def on(self, subject: str, number: int = 2, *, is_held: bool = False) -> list[StoredMessage]:
        """Return the messages that matter on a subject with `number` messages, in stream order.

        The last one; the first one too if the last is a schedule with earlier messages before it; and all of them if
        another schedule's message is the last one, after what may be a schedule, which lives if nothing else is there.
        That may be one that is held, or the first message, since a schedule is alone on its subject when it is stored.
        """
        last = await self.last(subject)
        if last is None:
            return []
        if number < 2 or SCHEDULE_SUBSTRING not in last.block:
            return [_bare(last)]
        first = await self.next(0, subject)
        if first is None or first.subject != subject or first.sequence >= last.sequence:
            return [_bare(last)]
        if MARK_OF_SCHEDULES in last.block:
            return [_bare(first), _bare(last)]
        if not is_held and MARK_OF_SCHEDULES not in first.block:
            return [_bare(last)]
        between = self.walk(first.sequence, last.sequence - 1, subject)
        return [_bare(first), *[_bare(one) async for one in between if one.subject == subject], _bare(last)]

    async def of_all_subjects(self, after: int, holds: Callable[[str], bool]) -> list[StoredMessage]:
        """Return the messages that matter of each subject whose last message is behind a sequence, in stream order.

        `holds` returns whether there is a schedule on a subject.
        """
        counts = [counted async for counted in self._api.subject_counts(self._stream)]
        found: list[StoredMessage] = []

        async def look(subject: str, number: int) -> None:
            messages = await self.on(subject, number, is_held=holds(subject))
            if messages and messages[-1].sequence > after and SCHEDULE_SUBSTRING in messages[-1].block:
                found.extend(messages)

        await in_turn((partial(look, *counted) for counted in counts), MAX_SUBJECT_LOOKUPS_IN_FLIGHT)
        return in_order(found)

    async def between(self, after: int, through: int, holds: Callable[[str], bool]) -> list[StoredMessage]:
        """Return the messages that matter among those behind `after` up to `through`, in the order of the stream.

        Schedules, generated messages, cancels, and messages on the subject of a schedule that is held or among these.
        """
        found: list[StoredMessage] = []

        async def read(part: tuple[int, int]) -> None:
            found.extend([_without_ordinary_headers(message) async for message in self.walk(*part)])

        await in_turn((partial(read, part) for part in _parts(after, through)), MAX_RANGE_READERS)
        schedules = {message.subject for message in found if message.block}
        return in_order(
            message for message in found if message.block or message.subject in schedules or holds(message.subject)
        )


def is_temporary(error: SchedulerError) -> bool:
    """Return whether a request may succeed if it is repeated."""
    if isinstance(error, RefusedError):
        return error.status == TEMPORARY_STATUS
    return isinstance(error, DeadlineError | NoRespondersError)


async def answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return the answer to a request, which is repeated a few times if the server answers "not now".

    If no answer comes, the connection itself repeats the request until its deadline.
    """
    for wait in LOOKUP_RETRY_WAITS_SECONDS:
        try:
            return await ask()
        except SchedulerError as error:
            if isinstance(error, DeadlineError) or not is_temporary(error):
                raise
        await asyncio.sleep(wait)
    return await ask()


def _parts(after: int, through: int) -> Iterator[tuple[int, int]]:
    """Divide the sequences behind `after` up to `through` into ranges of the same length."""
    size = max(-(-(through - after) // MAX_RANGE_READERS), MIN_RANGE_PART)
    for start in range(after, through, size):
        yield start, min(start + size, through)


def _bare(message: StoredMessage) -> StoredMessage:
    return message._replace(body=None)


def _without_ordinary_headers(message: StoredMessage) -> StoredMessage:
    return _bare(message) if SCHEDULE_SUBSTRING in message.block else message._replace(block=b"", body=None)


def in_order(messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Return messages in the order of their stream."""
    return sorted(messages, key=lambda message: message.sequence)


MAX_HISTORY_BATCH = 1_000
"""Messages that are read before what was found is delivered."""

HISTORY_RETRY_INTERVAL_SECONDS = 1.0
"""Pause after a request that failed."""


async def walk_through(api: JetStreamApi, stream: str, after: int, notify: Notify) -> None:
    """Deliver the messages above sequence `after` that have a TTL; ends when all that is stored was read.

    `jetstream.scan_follower` looks up the last message of every subject and no more, and an earlier generated message
    may have a TTL too. So on a server that does not act on TTLs the whole stream is read once; nothing waits for it.
    If another sidecar stores a message and a later one follows at once, the earlier is found at the next connect.
    """
    found: list[StoredMessage] = []
    count = 0
    while True:
        try:
            message = await api.message(stream, seq=after + 1, next_by_subj=">")
        except SchedulerError:
            await asyncio.sleep(HISTORY_RETRY_INTERVAL_SECONDS)  # a lost connection cancels this task
            continue
        if message is not None:
            after, count = message.sequence, count + 1
            found += [] if lifetime_of(message.block) is None else [_bare(message)]
        if message is None or count == MAX_HISTORY_BATCH:
            notify(HistoryRead(found, after))
            found, count = [], 0
        if message is None:
            return
