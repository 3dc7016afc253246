"""Read what a fire needs by single requests: its content, the message that it may duplicate, bodies to compare.

The content is the last message on the schedule's subject, and on its source. It is read by subject and not by
sequence: the same answer shows whether the schedule is still there and still the last message, and costs no more.
A schedule over which another one's message is stored is read by its sequence.
So is one whose subject is not UTF-8, which JSON cannot name; such a source is not found.
It is read from the stream's leader (`STREAM.MSG.GET`), never from a replica that may be behind. An answer that there
is no such message counts only once the leader has reached its sequence (`jetstream.reach`).
"""

import asyncio

from nats_scheduler.engine.fire import CompareBodies, FetchContent, FetchDuplicate
from nats_scheduler.engine.inputs import BodiesCompared, ContentFetched, DuplicateFetched, Input, Unanswered
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import (
    JetStreamApi,
)
from nats_scheduler.jetstream.bounded_requests import BoundedRequests
from nats_scheduler.jetstream.lookups import last_on
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.message.foreign_json import as_answered, inner, integer, is_expressible
from nats_scheduler.message.stored import StoredMessage
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
    """Return the last message on the schedule's subject, None if there is none; or the schedule under it."""
    if is_expressible(request.schedule) and not request.above:
        return await last_on(api, stream, request.schedule)
    message = await api.message(stream, seq=request.sequence)
    if message is None or message.subject != as_answered(request.schedule):
        return None
    return message._replace(subject=request.schedule)


MAX_DUPLICATE_READS_IN_FLIGHT = 256
"""As many as fires in flight: if a burst is sent again, all of it may be duplicates."""


def duplicate_reader(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup
) -> BoundedRequests[FetchDuplicate]:
    """Return what reads duplicates, in a stream unless the request names another one.

    A duplicate is the message under whose sequence the server says that a fire is stored already. The server only
    knows that some client stored something under the fire's identity, and any client can.
    """

    async def ask(request: FetchDuplicate) -> Input:
        return await _read_duplicate(api, request.stream or stream, request)

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


async def _read_duplicate(api: JetStreamApi, stream: str, request: FetchDuplicate) -> Input:
    """Read a duplicate; if it is gone, the time of the next message is the latest at which it was there.

    That it is gone counts only from a leader that has reached its sequence, and leads (`jetstream.reach`).
    """
    fire, sequence = request.fire, request.sequence
    leader = LeaderReach(api, stream, may_lag=True)
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
