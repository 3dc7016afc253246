"""Purge hundreds of schedules with one request: all that a filter matches up to a sequence, if all of it is done.

A request for each schedule takes the server 30 to 50 µs, nearly all of it for the request; to remove the message
takes 5. Of a burst often every schedule is done. Then the oldest messages of the stream on such subjects are those
that are to be purged, and a purge with a wildcard removes what a request for each would.

The rule: it removes nothing else. The messages that the filter matches are read from the first one on, headers
only, and it goes up to the last one before the first that is not to be purged. What is stored later has a higher
sequence. So another schedule on such a subject that lies below ends it at once: then each is purged alone. Only on
a server that stands alone, whose consumers and purges see one state, and where the sidecar reads all messages.
Standbys receive the request too, and compare its filter with what is done (`engine.firing.purging`).

While a request is in process the next messages are read. Where it is not possible, it is tried again at most once in
`RETRY_SECONDS`.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.jetstream.api import Config, JetStreamApi, consumer_from
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.pulled_consumer import PulledConsumer
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.message.foreign_json import integer
from nats_scheduler.message.stored import StoredMessage

MIN_JOINT_PURGES = 256
"""With fewer that wait for room no request with a wildcard is tried."""

MIN_JOINT_MESSAGES = 128
"""For fewer none is sent: it takes the server as long as 100 of one subject each."""

MAX_JOINT_MESSAGES = 2_000
"""Messages that one request removes: meanwhile the server stores nothing in the stream, for some milliseconds."""

MAX_MATCHED_FOR_EACH = 100
"""If the filter matches more messages for each that is removed, a request keeps the server for too long.

It looks at all their subjects, which takes 5 ms for 100,000.
"""

PATIENCE_SECONDS = 0.005
"""The longest time (s) to wait for what is not to be purged yet, since the schedules of a burst are done one after the
other: a window of purges of one subject takes the server longer."""

RETRY_SECONDS = 10.0
"""After this time (s) one is tried again where it was not possible."""

TURN_SECONDS = 1.0
"""After this time (s) one that goes on begins anew: what did not come to its turn until then, since it is done before
what was stored before it, is purged alone."""

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
        self._loop = asyncio.get_running_loop()
        self.open: dict[str, PurgeSchedule] = {}
        """By schedule."""
        self._added = asyncio.Event()
        self.was_of_use = False
        """True if it purged anything."""
        self.left = [request for request in requests if not self.add(request)]
        """Those that were not taken."""

    def add(self, request: PurgeSchedule) -> bool:
        """Purge one more; returns whether it is taken: not if there is one of the same schedule, or if it is a roll-up.

        A roll-up has no known version: no message of its target has the sequence up to which it goes.
        """
        if request.schedule in self.open or request.known is None:
            return False
        self.open[request.schedule] = request
        self._added.set()
        return True

    async def run(self) -> bool:
        """Purge for `TURN_SECONDS`, as long as all that comes next in the stream is to be purged.

        Returns whether it can go on; then what is open is what has not come to its turn. No error but cancellation.
        """
        goes_on = False
        try:
            goes_on = await self._are_enough() and await self._purge()
        except* SchedulerError:
            pass  # what is still open is purged one by one, and meets the same error
        return goes_on

    async def _purge(self) -> bool:
        matched = filter_of(self.open)
        if matched is None:
            return False
        first = await self._api.message(self._stream, seq=1, next_by_subj=matched)
        if first is None or first.subject not in self.open:
            return False
        consumer = PulledConsumer(self._connection, self._api, self._stream)
        await consumer.open({**consumer_from(1, self._config), "headers_only": True, "filter_subject": matched})
        try:
            return await self._purge_what_is_read(consumer, matched)
        finally:
            consumer.close()

    async def _purge_what_is_read(self, consumer: PulledConsumer, matched: str) -> bool:
        until, left = self._loop.time() + TURN_SECONDS, consumer.matched
        read: list[StoredMessage] = []

        async def read_more(besides: int = 0) -> None:
            wanted = min(len(self.open) - besides, MAX_JOINT_MESSAGES) - len(read)
            if wanted > 0:
                read.extend(await consumer.pull(wanted))

        while True:
            await read_more()
            purgeable, done = await self._first_done(read)
            if purgeable < MIN_JOINT_MESSAGES or left > MAX_MATCHED_FOR_EACH * purgeable:
                return False
            through = read[purgeable - 1].sequence
            del read[:purgeable]
            async with TaskGroup() as tasks:
                tasks.create_task(read_more(len(done)))
                is_exact = await self._purge_through(matched, through, purgeable)
            if not is_exact:
                return False
            left -= purgeable
            for request in done:
                del self.open[request.schedule]
            self.was_of_use = True
            self._purged(done)
            if self._loop.time() >= until:
                return True
            if not await self._are_enough():
                return False

    async def _first_done(self, read: Sequence[StoredMessage]) -> tuple[int, list[PurgeSchedule]]:
        """Return how many messages, from the first that was read on, are to be purged, and what is done then."""
        done: list[PurgeSchedule] = []
        for count, message in enumerate(read):
            request = self.open.get(message.subject) or await self._straggler(message.subject)
            if request is None or message.sequence > request.through:
                return count, done
            if message.sequence == request.through:
                done.append(request)
        return len(read), done

    async def _purge_through(self, matched: str, through: int, most: int) -> bool:
        """Purge what the filter matches up to a sequence; return whether that was not more than was read."""
        wanted = {"filter": matched, "seq": through + 1}
        answer = await self._api.call(f"STREAM.PURGE.{self._stream}", wanted)
        return integer(answer.get("purged")) <= most

    async def _are_enough(self) -> bool:
        """Return whether enough is to be purged, and wait for more if not."""
        return await self._comes(lambda: len(self.open) >= MIN_JOINT_PURGES)

    async def _straggler(self, schedule: str) -> PurgeSchedule | None:
        """Return the purge of a schedule that is not known yet, None if none is ordered in time."""
        await self._comes(lambda: schedule in self.open)
        return self.open.get(schedule)

    async def _comes(self, condition: Callable[[], bool]) -> bool:
        """Wait for a moment until what is added makes a condition true; return whether it is."""
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE_SECONDS):
                while not condition():
                    self._added.clear()
                    await self._added.wait()
        return condition()


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
