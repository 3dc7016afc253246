"""Follow a stream on which a consumer would do harm: work queue and interest retention, and few places for consumers.

There a consumer would be refused, or would keep others from being created, or would count as interest and so change
what the stream keeps.
So nothing is attached to the stream.
A plain subscription on its subjects tells that something was published; what was stored of it is looked up.
At start, the last message of every subject is looked up, and the first one too where a schedule lies on others: older
versions of it, which somebody stored while nobody followed, are to be removed.

The rule: a publish that was seen is a hint, and only the look-up is believed.
What was removed is noticed at the look before each fire, which the engine orders anyway.
Where the stream transforms subjects, a publish does not tell where to look: then all that was stored since is read.

Cost: one request a subject at start (15,000 a second) and one for each schedule published; nothing for other messages.
With a subject transform, one request for each message that is stored, one after the other.
Limit: a generated message that a consumer removed before we looked, or that a later one on its target covers at start,
cannot be found again.
Older versions that lie on an ordinary message of before stay with it.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from nats_scheduler.engine.inputs import CaughtUp, MessagesRead
from nats_scheduler.engine.port import Tell
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.message.stored import StoredMessage

LOOKUPS_AT_ONCE = 256
"""Subjects looked up together at start."""

LOOKUP_RETRY_SECONDS = (0.0, 0.002, 0.01, 0.05, 0.1, 0.1, 0.2, 0.3)
"""Waits before each attempt to find what was seen: it is stored a moment after it is published, or it was refused.

Close to each other, because a schedule may be due at once, and a busy server takes tenths of a second to store.
"""

MARK = b"Nats-Schedule"
"""Stands in every header that makes a message a schedule, in either dialect, or a generated one."""


MARK_OF_SCHEDULES = b"Nats-Schedule:"
"""Stands in every schedule of either dialect, and in no generated message that is none itself."""


class ScanFollower:
    """Follows one stream on one connection without touching it."""

    def __init__(
        self, connection: Connection, api: JetStreamApi, config: Config, tell: Tell, holds: Callable[[str], bool]
    ) -> None:
        self._connection = connection
        self._api = api
        self._stream: str = config["name"]
        self._subjects: list[str] = list(config.get("subjects") or [])
        self._tell = tell
        self._holds = holds
        self._transforms = bool(config.get("subject_transform"))
        self._hints: asyncio.Queue[tuple[str, bytes, bytes]] = asyncio.Queue()
        self._awaited = 0
        self._something_was_published = asyncio.Event()

    def acknowledged(self, sequences: Sequence[int]) -> None:
        """Do nothing: the look-ups here do not go by sequence."""

    async def follow(self, after: int) -> None:
        """Tell the last message of each subject, then what is published. Ends by cancellation or `JetStreamError`."""
        del after  # the last messages are looked up anew each time: there is no history to go on from
        subscriptions = [self._connection.subscribe(subject, self._published) for subject in self._subjects]
        try:
            last = await self._last_sequence() if self._transforms else 0
            await self._tell_what_is_stored()
            self._tell(CaughtUp())
            await (self._walk(last) if self._transforms else self._look_up_hints())
        except* JetStreamError as failures:
            # A hint that could not be looked up is a schedule that might be missed: everything is looked up again.
            raise _first(failures) from None
        finally:
            for number in subscriptions:
                self._connection.unsubscribe(number)

    async def _tell_what_is_stored(self) -> None:
        counts = [counted async for counted in self._api.subject_counts(self._stream)]
        found: list[StoredMessage] = []
        for start in range(0, len(counts), LOOKUPS_AT_ONCE):
            looked = await asyncio.gather(
                *(self._stored(*counted) for counted in counts[start : start + LOOKUPS_AT_ONCE])
            )
            found.extend(message for messages in looked for message in messages if MARK in message.block)
        self._tell(MessagesRead(_in_order(found)))

    async def _stored(self, subject: str, number: int) -> list[StoredMessage]:
        """Look up what matters of the messages on a subject, of which there are so many."""
        last = await self._last(subject)
        if last is None or number < 2 or MARK_OF_SCHEDULES not in last.block:
            return [] if last is None else [last]
        first = await self._api.message(self._stream, seq=1, next_by_subj=subject)
        return [last] if first is None or first.subject != subject or first.sequence >= last.sequence else [first, last]

    async def _last_sequence(self) -> int:
        info = await self._api.stream(self._stream)
        return int(info["state"]["last_seq"]) if info is not None else 0

    def _published(self, subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        if self._transforms:
            self._awaited += 1
            self._something_was_published.set()
            return
        name = subject.decode("utf-8", "surrogateescape")
        if MARK in block or self._holds(name):
            self._hints.put_nowait((name, block, body))

    async def _look_up_hints(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._confirm(*await self._hints.get()))

    async def _walk(self, last: int) -> None:
        """Tell every message above sequence `last`, whatever subject it is stored on."""
        while True:
            await self._something_was_published.wait()
            self._something_was_published.clear()
            for wait in LOOKUP_RETRY_SECONDS:
                await asyncio.sleep(wait)
                while (message := await self._api.message(self._stream, seq=last + 1, next_by_subj=">")) is not None:
                    last = message.sequence
                    self._awaited -= 1
                    self._tell(MessagesRead([message]))
                if self._awaited <= 0:
                    break
            self._awaited = 0

    async def _confirm(self, subject: str, block: bytes, body: bytes) -> None:
        """Tell the message that was seen once it is found stored; one that never is was refused, or lies under another.

        What it lies under is told with the first message on the subject, since nobody may have seen that.
        """
        for wait in LOOKUP_RETRY_SECONDS:
            await asyncio.sleep(wait)
            message = await self._last(subject)
            if message is not None and (message.block, message.body) == (block, body):
                self._tell(MessagesRead([message]))
                return
        self._tell(MessagesRead(await self._stored(subject, 2)))

    async def _last(self, subject: str) -> StoredMessage | None:
        message = await self._api.message(self._stream, last_by_subj=subject)
        # What was published to a wildcard is stored as it stands, and the look-up finds what the wildcard matches.
        return message if message is not None and message.subject == subject else None


def _first(failures: BaseExceptionGroup[JetStreamError]) -> BaseException:
    first: BaseException = failures
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return first


def _in_order(messages: Iterable[StoredMessage]) -> list[StoredMessage]:
    return sorted(messages, key=lambda message: message.sequence)
