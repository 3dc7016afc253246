"""Look up what a stream holds, message by message: the last on a subject, all that have one, all behind a sequence.

The rule: every question is asked of the stream's leader, and one that it cannot answer at this moment is asked again,
some times within a second; only then it has failed.
What is told has no body, so that a look at large messages keeps none of them.

Cost: a request a message, 15,000 a second. Limit: what was removed before it was asked for is not found.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import NamedTuple, TypeVar

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import ApiError, JetStreamError, NoAnswerError, NoJetStreamError
from nats_scheduler.jetstream.foreign_json import inner, integer
from nats_scheduler.jetstream.last import last_on
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.message.reading import MARK
from nats_scheduler.message.stored import StoredMessage

MAX_SUBJECT_LOOKUPS_IN_FLIGHT = 256
"""Look-ups in flight at once."""

MAX_RANGE_READERS = 64
"""Parts of a range that are walked through at once, each one message after the other."""

MIN_RANGE_PART = 16
"""Sequences: a shorter range is not divided."""

LOOKUP_RETRY_WAITS_SECONDS = (0.02, 0.1, 0.2, 0.3)
"""Waits before a question that the server could not answer is asked again."""

TEMPORARY_STATUS = 503
"""The server's status for "not now": no leader, a shutdown, a lack of resources."""

MARK_OF_SCHEDULES = b"Nats-Schedule:"
"""Stands in every schedule of either dialect, and in no generated message that is none itself."""

Answer = TypeVar("Answer")


class StreamNumbers(NamedTuple):
    """How much a stream holds."""

    last_sequence: int
    messages: int
    subjects: int


class Lookups:
    """Questions to one stream."""

    def __init__(self, api: JetStreamApi, stream: str) -> None:
        self._api = api
        self._stream = stream

    async def state(self) -> StreamNumbers:
        """Return what the stream's leader counts; zeros where the stream does not exist."""
        state = inner((await answered(lambda: self._api.stream(self._stream)) or {}).get("state"))
        return StreamNumbers(*(integer(state.get(name)) for name in ("last_seq", "messages", "num_subjects")))

    async def last(self, subject: str) -> StoredMessage | None:
        """Return the last message on a subject, with its body."""
        message = await answered(lambda: last_on(self._api, self._stream, subject))
        # What was published to a wildcard is stored as it stands, and the look-up finds what the wildcard matches.
        return message if message is not None and message.subject == subject else None

    async def next(self, after: int, subject: str = ">") -> StoredMessage | None:
        """Return the first message behind a sequence."""
        return await answered(lambda: self._api.message(self._stream, seq=after + 1, next_by_subj=subject))

    async def first_and_last(self, subject: str, number: int = 2) -> list[StoredMessage]:
        """Return what matters of the messages on a subject, of which there are so many.

        The last one, and the first one too where a schedule lies on others.
        """
        last = await self.last(subject)
        if last is None:
            return []
        if number < 2 or MARK_OF_SCHEDULES not in last.block:
            return [_bare(last)]
        first = await self.next(0, subject)
        is_alone = first is None or first.subject != subject or first.sequence >= last.sequence
        return [_bare(last)] if first is None or is_alone else [_bare(first), _bare(last)]

    async def of_all_subjects(self, after: int) -> list[StoredMessage]:
        """Return what matters of each subject whose last message lies behind a sequence, in the order of the stream."""
        counts = [counted async for counted in self._api.subject_counts(self._stream)]
        found: list[StoredMessage] = []

        async def look(subject: str, number: int) -> None:
            messages = await self.first_and_last(subject, number)
            if messages and messages[-1].sequence > after:
                found.extend(message for message in messages if MARK in message.block)

        await _side_by_side((look(*counted) for counted in counts), MAX_SUBJECT_LOOKUPS_IN_FLIGHT)
        return in_order(found)

    async def between(self, after: int, through: int, holds: Callable[[str], bool]) -> list[StoredMessage]:
        """Return what matters of all that is stored behind `after` up to `through`, in the order of the stream.

        Schedules, what is generated, cancels, and what lies on the subject of a schedule that is held or among them.
        """
        found: list[StoredMessage] = []

        async def walk(before: int, end: int) -> None:
            while before < end and (message := await self.next(before)) is not None and message.sequence <= end:
                before = message.sequence
                found.append(_bare(message) if MARK in message.block else message._replace(block=b"", body=None))

        await _side_by_side((walk(*part) for part in _parts(after, through)), MAX_RANGE_READERS)
        schedules = {message.subject for message in found if message.block}
        return in_order(
            message for message in found if message.block or message.subject in schedules or holds(message.subject)
        )


def is_temporary(error: JetStreamError) -> bool:
    """Tell whether a question may be answered if it is asked again."""
    if isinstance(error, ApiError):
        return error.status == TEMPORARY_STATUS
    return isinstance(error, NoAnswerError | NoJetStreamError)


async def answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Return the answer to a question, which is asked again some times where the server says "not now".

    Where it says nothing the connection asks again, until it gives up.
    """
    for wait in LOOKUP_RETRY_WAITS_SECONDS:
        try:
            return await ask()
        except JetStreamError as error:
            if isinstance(error, NoAnswerError) or not is_temporary(error):
                raise
        await asyncio.sleep(wait)
    return await ask()


async def _side_by_side(work: Iterable[Awaitable[None]], most: int) -> None:
    """Do all of it, so many at a time; raises the first error, having ended the rest."""
    left: Iterator[Awaitable[None]] = iter(work)

    async def worker() -> None:
        for one in left:
            await one

    async with TaskGroup() as tasks:
        for _ in range(most):
            tasks.create_task(worker())


def _parts(after: int, through: int) -> Iterator[tuple[int, int]]:
    """Divide the sequences behind `after` up to `through` into ranges of the same length."""
    size = max(-(-(through - after) // MAX_RANGE_READERS), MIN_RANGE_PART)
    for start in range(after, through, size):
        yield start, min(start + size, through)


def _bare(message: StoredMessage) -> StoredMessage:
    return message._replace(body=None)


def in_order(messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    """Return messages in the order of their stream."""
    return sorted(messages, key=lambda message: message.sequence)
