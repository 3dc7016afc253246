"""Read the message under whose sequence the server says that a fire is stored already.

The answer `duplicate` only says that some client stored something under the fire's identity, and any client can.
If the message is gone, consumed or replaced, the time of the next stored message is the latest at which it was there.

The rule: "the message is gone" counts only from a leader that has reached its sequence, and leads (`jetstream.reach`).
Cost: one request a duplicate, some more if its message is gone; duplicates are rare except after a lost connection.
"""

import asyncio

from nats_scheduler.engine.actions import ReadDuplicate
from nats_scheduler.engine.inputs import DuplicateRead, DuplicateUnread, Input
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.bounded import BoundedRequests
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.foreign_json import inner, integer
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

MAX_DUPLICATE_READS_IN_FLIGHT = 256
"""As many as fires in flight: if a burst is sent again, all of it may be duplicates."""


def duplicate_reader(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup
) -> BoundedRequests[ReadDuplicate]:
    """Return what reads duplicates, in a stream unless the request names another one."""

    async def ask(request: ReadDuplicate) -> Input:
        try:
            return await _read_duplicate(api, request.stream or stream, request, tasks)
        except JetStreamError as error:
            return DuplicateUnread(request.fire, str(error))

    def give_up(request: ReadDuplicate, reason: str) -> Input:
        return DuplicateUnread(request.fire, reason)

    return BoundedRequests(notify, tasks, ask=ask, give_up=give_up, limit=MAX_DUPLICATE_READS_IN_FLIGHT)


async def _read_duplicate(api: JetStreamApi, stream: str, request: ReadDuplicate, tasks: asyncio.TaskGroup) -> Input:
    fire, sequence = request.fire, request.sequence
    leader = LeaderReach(api, stream, tasks, may_lag=True)
    message = await leader.confirmed(sequence, lambda: api.message(stream, seq=sequence))
    if message is not None:
        return DuplicateRead(fire, sequence, message, message.stored_at)
    state = inner(inner(await api.stream(stream)).get("state"))
    last = integer(state.get("last_seq"))
    if last < sequence:
        return DuplicateUnread(fire, f"the server that was asked has not reached sequence {sequence} yet")
    if last == sequence:
        stored_at = parse_rfc3339(str(state.get("last_ts")))
        return DuplicateRead(fire, sequence, None, stored_at if isinstance(stored_at, int) else None)
    behind: StoredMessage | None = await api.message(stream, seq=sequence + 1, next_by_subj=">")
    return DuplicateRead(fire, sequence, None, None if behind is None else behind.stored_at)
