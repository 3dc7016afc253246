"""Purge thousands of schedules with few requests: all that a filter matches up to a sequence, if all of it is done.

A request for each schedule takes the server 35 µs, nearly all of it for the request; to remove the message takes 5.
Of a burst often every schedule is done, and the oldest messages of the stream on such subjects are its schedules.
Then a purge with a wildcard removes what a request for each would.

The rule: it removes nothing else. The messages that the filter matches are read from the first one on, headers only,
and it goes up to the last one before the first that is not to be purged. What is stored later has a higher sequence.
So another schedule on such a subject that lies below the burst ends it at once: then each is purged alone.
Only on a server that stands alone, whose consumers and purges see one state, and where the sidecar reads all messages.
And only by an instance that holds all shards: other instances would have to compare a filter with all that they hold,
and what they hold lies between.

Cost: 5 µs to read a message and 5 to remove it in the server, 2 here. A look at one message where it is not possible,
once in `RETRY_SECONDS`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.shards import SHARDS, shard_of
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.consumers import consumer_from
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import integer
from nats_scheduler.jetstream.pulled import PulledConsumer

MIN_JOINT_PURGES = 2_048
"""Fewer that wait are purged one by one."""

MAX_JOINT_MESSAGES = 2_000
"""Messages that one request removes: meanwhile the server stores nothing in the stream, for some milliseconds."""

MIN_JOINT_MESSAGES = 512
"""For fewer no request with a wildcard is sent: it takes the server as long as 100 of one subject each."""

MAX_MATCHED = 150_000
"""If the filter matches more messages, each request keeps the server for too long: it looks at all their subjects."""

STRAGGLER_SECONDS = 0.1
"""How long what is not to be purged yet is waited for: the schedules of a burst are done one after the other."""

RETRY_SECONDS = 10.0
"""After so long it is tried again where it was not possible."""

JointlyPurged = Callable[[Sequence[PurgeSchedule]], None]


class JointPurge:
    """One attempt to purge schedules jointly. Those in `open` are still to be purged when it has ended."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        requests: Iterable[PurgeSchedule],
        purged: JointlyPurged,
    ) -> None:
        """Purge these, and those that are added; `purged` is called with what was purged."""
        self._connection = connection
        self._api = api
        self._config = config
        self._stream: str = config["name"]
        self._purged = purged
        self.open: dict[str, PurgeSchedule] = {}
        """By schedule."""
        self._added = asyncio.Event()
        self.was_of_use = False
        """Whether it purged anything."""
        self.left = [request for request in requests if not self.add(request)]
        """Those that were not taken."""

    def add(self, request: PurgeSchedule) -> bool:
        """Purge one more; returns whether it is taken: not if there is one of the same schedule."""
        if request.schedule in self.open:
            return False
        self.open[request.schedule] = request
        self._added.set()
        return True

    async def run(self) -> None:
        """Purge as long as all that comes next in the stream is to be purged; no error ends it but cancellation."""
        matched = filter_of(self.open)
        if matched is None or len(set(map(shard_of, self.open))) < SHARDS:
            return  # so many schedules are of all shards if they are of one instance
        try:
            first = await self._api.message(self._stream, seq=1, next_by_subj=matched)
            if first is None or first.subject not in self.open:
                return
            await self._purge(matched)
        except JetStreamError:
            return  # what is still open is purged one by one, and meets the same error

    async def _purge(self, matched: str) -> None:
        consumer = PulledConsumer(self._connection, self._api, self._stream)
        await consumer.open({**consumer_from(1, self._config), "headers_only": True, "filter_subject": matched})
        try:
            while consumer.pending <= MAX_MATCHED and await self._is_more_to_purge():
                await consumer.pull(min(MAX_JOINT_MESSAGES, len(self.open)))
                messages, consumer.messages = consumer.messages, []
                done: list[PurgeSchedule] = []
                through = 0
                for message in messages:
                    request = self.open.get(message.subject) or await self._straggler(message.subject)
                    if request is None or message.sequence > request.through:
                        break
                    through = message.sequence
                    if message.sequence == request.through:
                        done.append(request)
                is_last = not messages or through != messages[-1].sequence
                if len(done) < MIN_JOINT_MESSAGES or not await self._purge_through(matched, through, len(messages)):
                    return
                for request in done:
                    self.open.pop(request.schedule, None)
                self.was_of_use = True
                self._purged(done)
                if is_last:
                    return
        finally:
            consumer.close()

    async def _purge_through(self, matched: str, through: int, most: int) -> bool:
        """Purge what the filter matches up to a sequence; return whether that was not more than was read."""
        wanted = {"filter": matched, "seq": through + 1}
        answer = await self._api.call(f"STREAM.PURGE.{self._stream}", wanted)
        return integer(answer.get("purged")) <= most

    async def _is_more_to_purge(self) -> bool:
        """Return whether enough is to be purged, and wait for more if not."""
        try:
            async with asyncio.timeout(STRAGGLER_SECONDS):
                while len(self.open) < MIN_JOINT_MESSAGES:
                    self._added.clear()
                    await self._added.wait()
        except TimeoutError:
            return False
        return True

    async def _straggler(self, schedule: str) -> PurgeSchedule | None:
        """Return the purge of a schedule that is not known yet, None if none is ordered in time."""
        try:
            async with asyncio.timeout(STRAGGLER_SECONDS):
                while schedule not in self.open:
                    self._added.clear()
                    await self._added.wait()
        except TimeoutError:
            return None
        return self.open[schedule]


def filter_of(subjects: Iterable[str]) -> str | None:
    """Return a filter that matches these subjects, with a wildcard where they differ.

    None if they have different numbers of tokens, or no token in common.
    """
    rows = [subject.split(".") for subject in subjects]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        return None
    columns = [set(column) for column in zip(*rows, strict=True)]
    tokens = [column.pop() if len(column) == 1 else "*" for column in columns]
    return ".".join(tokens) if set(tokens) != {"*"} else None
