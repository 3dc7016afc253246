"""Read the content of a fire: the last message on the schedule's subject, and on its source.

It is read by subject and not by sequence: the same answer shows whether the schedule is still there and still the last
message, and costs no more.
A schedule on which another schedule's message has landed is read by its sequence.
So is one whose subject is not UTF-8, which JSON cannot name; such a source is not found.
It is read from the stream's leader (`STREAM.MSG.GET`), never from a replica that may be behind. An answer that there
is no such message counts only once the leader has reached its sequence (`jetstream.reach`).
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from contextlib import aclosing
from itertools import pairwise

from nats_scheduler.engine.fire import CompareBodies, FetchContent, FetchDuplicate
from nats_scheduler.engine.inputs import BodiesCompared, ContentFetched, DuplicateFetched, Input, Unanswered
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import (
    CLUSTER_DEADLINE_SECONDS,
    CONSUMER_DEADLINE_SECONDS,
    Config,
    JetStreamApi,
    consumer_from,
)
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import ApiError, JetStreamError
from nats_scheduler.jetstream.lookups import last_on
from nats_scheduler.jetstream.pulled_consumer import PulledConsumer
from nats_scheduler.jetstream.reach import BoundedRequests, LeaderReach, start_in_group
from nats_scheduler.message.foreign_json import as_answered, inner, integer, is_expressible
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import next_multiple
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

MAX_COMPARISONS_IN_FLIGHT = 8
"""Pairs of bodies that are read at once: few, so that what fires read does not wait for them."""

MAX_CONTENT_READS_IN_FLIGHT = 512
"""Reads in flight at once: enough to keep a server busy, few enough to stay far below its queue limit."""


def content_reader(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup, reach: LeaderReach
) -> BoundedRequests[FetchContent]:
    """Return what reads contents from a stream."""

    async def ask(request: FetchContent) -> Input:
        message = await reach.confirmed(request.sequence, lambda: _held(api, stream, request))
        wanted = request.source
        source = await last_on(api, stream, wanted) if wanted is not None and is_expressible(wanted) else None
        above = await _above(api, stream, request)
        return ContentFetched(request.schedule, request.sequence, message, source, above)

    return BoundedRequests(notify, tasks, ask=ask, limit=MAX_CONTENT_READS_IN_FLIGHT)


async def _above(api: JetStreamApi, stream: str, request: FetchContent) -> StoredMessage | None:
    """Return the first message on the schedule's subject that is not known; read after the schedule itself."""
    if not request.above or not is_expressible(request.schedule):
        return None
    message = await api.message(stream, seq=request.above + 1, next_by_subj=request.schedule)
    return message if message is not None and message.subject == request.schedule else None


async def _held(api: JetStreamApi, stream: str, request: FetchContent) -> StoredMessage | None:
    """Return the last message on the schedule's subject, None if there is none; or the schedule, if it is covered."""
    if is_expressible(request.schedule) and not request.above:
        return await last_on(api, stream, request.schedule)
    message = await api.message(stream, seq=request.sequence)
    if message is None or message.subject != as_answered(request.schedule):
        return None
    return message._replace(subject=request.schedule)


# Read the contents of many schedules that lie close together through a short-lived consumer.
#
# The schedules of a burst are often stored at once, and are read at once: one request for thousands. One look-up each
# would cost ten times as much, most of it in the server.
#
# The rule: it is an optimization only. What the consumer does not deliver is looked up one by one, and so is
# everything after the server refused to create a consumer. In a cluster the consumer may be on a node that is ahead
# of the leader, and the leader would refuse the fires. So a run is read together only once the leader has reached its
# end (`jetstream.reach`). Only for requests that allow it (`FetchContent.by_sequence`), on streams on which a consumer
# is harmless.
#
# Cost: three requests a run, four in a cluster, and 5 µs a message. Limit: a run has at most `MAX_RUN_GAP - 1` other
# messages for each schedule, and `MAX_RUN_OTHERS` besides, which are read for nothing.

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
        except ApiError:
            self._is_disabled = True
        except JetStreamError:
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


# Read the message under whose sequence the server says that a fire is stored already.
#
# The answer `duplicate` only says that some client stored something under the fire's identity, and any client can. If
# the message is gone, consumed or replaced, the time of the next stored message is the latest at which it was there.
#
# The rule: "the message is gone" counts only from a leader that has reached its sequence, and leads
# (`jetstream.reach`). Cost: one request a duplicate, some more if its message is gone; duplicates are rare except
# after a lost connection.

MAX_DUPLICATE_READS_IN_FLIGHT = 256
"""As many as fires in flight: if a burst is sent again, all of it may be duplicates."""


def duplicate_reader(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup
) -> BoundedRequests[FetchDuplicate]:
    """Return what reads duplicates, in a stream unless the request names another one."""

    async def ask(request: FetchDuplicate) -> Input:
        return await _read_duplicate(api, request.stream or stream, request, tasks)

    return BoundedRequests(notify, tasks, ask=ask, limit=MAX_DUPLICATE_READS_IN_FLIGHT)


def body_comparer(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup
) -> BoundedRequests[CompareBodies]:
    """Return what compares the bodies of messages in a stream."""

    async def ask(request: CompareBodies) -> Input:
        one = await api.message(stream, seq=request.sequence)
        other = one and await api.message(stream, seq=request.replaced_by)
        return BodiesCompared(request, one is not None and other is not None and one.body != other.body)

    return BoundedRequests(notify, tasks, ask=ask, limit=MAX_COMPARISONS_IN_FLIGHT)


async def _read_duplicate(api: JetStreamApi, stream: str, request: FetchDuplicate, tasks: asyncio.TaskGroup) -> Input:
    fire, sequence = request.fire, request.sequence
    leader = LeaderReach(api, stream, tasks, may_lag=True)
    message = await leader.confirmed(sequence, lambda: api.message(stream, seq=sequence))
    if message is not None:
        return DuplicateFetched(fire, sequence, message, message.stored_at)
    state = inner(inner(await api.stream(stream)).get("state"))
    last = integer(state.get("last_seq"))
    if last < sequence:
        return Unanswered(request, f"the server that was asked has not reached sequence {sequence} yet")
    if last == sequence:
        stored_at = parse_rfc3339(str(state.get("last_ts")))
        return DuplicateFetched(fire, sequence, None, stored_at if isinstance(stored_at, int) else None)
    behind: StoredMessage | None = await api.message(stream, seq=sequence + 1, next_by_subj=">")
    return DuplicateFetched(fire, sequence, None, None if behind is None else behind.stored_at)
