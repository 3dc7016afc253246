"""Read the contents of many schedules that lie close together through a short-lived consumer.

The schedules of a burst are often stored at once, and are read at once: one request for thousands. One look-up each
would cost ten times as much, most of it in the server.

The rule: it is an optimization only. What the consumer does not deliver is looked up one by one, and so is
everything after the server refused to create a consumer. In a cluster the consumer may be on a node that is ahead
of the leader, and the leader would refuse the fires. So a run is read together only once the leader has reached its
end (`jetstream.reach`). Only for requests that allow it (`FetchContent.by_sequence`), on streams on which a consumer
is harmless.
A run has at most `MAX_RUN_GAP - 1` other messages for each schedule, and `MAX_RUN_OTHERS` besides, which are read for
nothing.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing
from itertools import pairwise

from nats_scheduler.control.errors import RefusedError, SchedulerError
from nats_scheduler.engine.fire import FetchContent
from nats_scheduler.engine.inputs import ContentFetched
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import (
    CLUSTER_DEADLINE_SECONDS,
    CONSUMER_DEADLINE_SECONDS,
    Config,
    JetStreamApi,
    consumer_from,
)
from nats_scheduler.jetstream.bounded_requests import BoundedRequests, start_in_group
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.pulled_consumer import PulledConsumer
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import next_multiple

MIN_RUN_SCHEDULES = 32
"""Fewer schedules are looked up one by one: up to 20 that takes less CPU than to create a consumer, and less time."""

MAX_RUN_SCHEDULES = 2_048
"""Schedules of one run: others wait for its end."""

MAX_RUN_GAP = 3
"""Largest distance, in sequences, between neighbours of a run, on average."""

MAX_RUN_OTHERS = 32
"""The number of messages of others that a run may have beyond that: fires are stored in groups, as schedules are."""

MIN_GATHERED = 2 * MIN_RUN_SCHEDULES
"""Fewer schedules wait for others, if all of them may: one look-up each takes three times as much CPU as a run."""

GATHERING_SECONDS = 0.25
"""What may wait is read at the next multiple of this time: all streams of a process share that wake."""

RUN_SILENCE_LIMIT_SECONDS = 1.0
"""After this time without a message, the rest of a run is looked up one by one."""

Run = list[FetchContent]


class RangeReader:
    """Reads contents from one stream: runs of neighbours together, and all others one by one."""

    def __init__(
        self,
        connection: Connection,
        api: JetStreamApi,
        config: Config,
        notify: Notify,
        tasks: asyncio.TaskGroup,
        one_by_one: BoundedRequests[FetchContent],
        reach: LeaderReach,
    ) -> None:
        self._connection = connection
        self._api = api
        self._stream: str = config["name"]
        self._config = config
        self._notify = notify
        self._tasks = tasks
        self._one_by_one = one_by_one
        self._reach = reach
        self._gathered: Run = []
        self._runs: deque[Run] = deque()
        self._wanted: dict[int, FetchContent] = {}
        self._waits_until = 0.0
        """When (s, by the loop's clock) those that wait for others are read, or were read last."""
        self._is_working = False
        self._is_disabled = False

    def begin(self, request: FetchContent) -> None:
        """Read a content, together with its neighbours if there are enough of them."""
        if self._is_disabled or not request.by_sequence or request.source is not None:
            self._one_by_one.begin(request)
            return
        self._gathered.append(request)
        loop = asyncio.get_running_loop()
        if not request.may_wait or len(self._gathered) >= MIN_GATHERED:
            self._start()
        elif self._waits_until <= loop.time():
            self._waits_until = next_multiple(loop.time(), GATHERING_SECONDS)
            loop.call_at(self._waits_until, self._start)

    def _start(self) -> None:
        """Read what was gathered so far, and what the rest of this step adds."""
        if self._gathered and not self._is_working:
            self._is_working = start_in_group(self._work(), self._tasks)

    def end(self) -> None:
        """Stop reading runs; look up one by one what is still wanted."""
        self._is_disabled = True
        left = [*self._wanted.values(), *(request for run in self._runs for request in run), *self._gathered]
        self._wanted.clear()
        self._runs.clear()
        self._gathered.clear()
        self._read_one_by_one(left)

    def _read_one_by_one(self, requests: Iterable[FetchContent]) -> None:
        for request in requests:
            self._one_by_one.begin(request)

    async def _work(self) -> None:
        """Read what was gathered, and then what was gathered meanwhile: the slower a run, the longer the next one."""
        try:
            while self._gathered:
                gathered, self._gathered = self._gathered, []
                runs, single = runs_of(gathered)
                self._runs.extend(runs)
                self._read_one_by_one(single)
                while self._runs:
                    await self._read_together(self._runs.popleft())
                if self._is_disabled:
                    self.end()
        finally:
            self._is_working = False

    async def _read_together(self, run: Run) -> None:
        self._wanted = {request.sequence: request for request in run}
        try:
            if self._reach.may_lag:
                await self._reach.leader_at(run[-1].sequence)
            await self._deliver(run[0].sequence, run[-1].sequence)
        except RefusedError:
            self._is_disabled = True
        except SchedulerError:
            pass  # what did not come is looked up one by one
        finally:
            left, self._wanted = self._wanted, {}
            self._read_one_by_one(left.values())

    async def _deliver(self, first: int, last: int) -> None:
        """Have a consumer deliver what is stored between two sequences."""
        consumer = PulledConsumer(
            self._connection, self._api, self._stream, silence_limit_seconds=RUN_SILENCE_LIMIT_SECONDS
        )
        patience = CLUSTER_DEADLINE_SECONDS if self._connection.server.cluster else CONSUMER_DEADLINE_SECONDS
        await consumer.open(consumer_from(first, self._config), patience)
        try:
            async with aclosing(consumer.parts(min(last - first + 1, consumer.matched))) as parts:
                async for part in parts:
                    self._answer(part)
                    if part[-1].sequence >= last:
                        break
        except BaseException:
            consumer.close()  # it stopped to send, and may never answer
            raise
        await consumer.delete()

    def _answer(self, messages: Iterable[StoredMessage]) -> None:
        """Answer the requests for these messages."""
        for message in messages:
            sequence = message.sequence
            request = self._wanted.get(sequence)
            if request is not None and request.schedule == message.subject:
                del self._wanted[sequence]
                self._notify(ContentFetched(request.schedule, sequence, message, None))


def runs_of(requests: Iterable[FetchContent]) -> tuple[list[Run], Run]:
    """Divide requests into runs of neighbours and the rest: too few neighbours, or requested twice."""
    runs: list[Run] = []
    single: Run = []
    ordered = sorted(requests, key=lambda request: request.sequence)
    run: Run = ordered[:1]
    for before, request in pairwise(ordered):
        gap = request.sequence - before.sequence
        if gap == 0:
            single.append(request)
            continue
        span = request.sequence - run[0].sequence
        is_sparse = gap > MAX_RUN_GAP and span > MAX_RUN_GAP * len(run) + MAX_RUN_OTHERS
        if is_sparse or len(run) >= MAX_RUN_SCHEDULES:
            (runs.append if len(run) >= MIN_RUN_SCHEDULES else single.extend)(run)
            run = []
        run.append(request)
    (runs.append if len(run) >= MIN_RUN_SCHEDULES else single.extend)(run)
    return runs, single
