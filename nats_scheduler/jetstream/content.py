"""Read the content of a fire: the last message on the schedule's subject, and on its source.

It is read by subject and not by sequence: the same answer shows whether the schedule is still there and still the last
message, and costs no more.
A schedule on which another schedule's message has landed is read by its sequence.
So is one whose subject is not UTF-8, which JSON cannot name; such a source is not found.
It is read from the stream's leader (`STREAM.MSG.GET`), never from a replica that may be behind. An answer that there
is no such message counts only once the leader has reached its sequence (`jetstream.reach`).
"""

import asyncio

from nats_scheduler.engine.actions import ReadContent
from nats_scheduler.engine.inputs import ContentRead, ContentUnread, Input
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.bounded import BoundedRequests
from nats_scheduler.jetstream.errors import JetStreamError, NotPermittedError
from nats_scheduler.jetstream.foreign_json import as_answered, is_expressible
from nats_scheduler.jetstream.last import last_on
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.message.stored import StoredMessage

MAX_CONTENT_READS_IN_FLIGHT = 512
"""Reads in flight at once: enough to keep a server busy, few enough to stay far below its queue limit."""


def content_reader(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup, reach: LeaderReach
) -> BoundedRequests[ReadContent]:
    """Return what reads contents from a stream."""

    async def ask(request: ReadContent) -> Input:
        try:
            message = await reach.confirmed(request.sequence, lambda: _held(api, stream, request))
            wanted = request.source
            source = await last_on(api, stream, wanted) if wanted is not None and is_expressible(wanted) else None
            above = await _above(api, stream, request)
        except JetStreamError as error:
            denied = isinstance(error, NotPermittedError)
            return ContentUnread(request.schedule, request.sequence, str(error), denied)
        return ContentRead(request.schedule, request.sequence, message, source, above)

    def give_up(request: ReadContent, reason: str) -> Input:
        return ContentUnread(request.schedule, request.sequence, reason)

    return BoundedRequests(notify, tasks, ask=ask, give_up=give_up, limit=MAX_CONTENT_READS_IN_FLIGHT)


async def _above(api: JetStreamApi, stream: str, request: ReadContent) -> StoredMessage | None:
    """Return the first message on the schedule's subject that is not known; read after the schedule itself."""
    if not request.above or not is_expressible(request.schedule):
        return None
    message = await api.message(stream, seq=request.above + 1, next_by_subj=request.schedule)
    return message if message is not None and message.subject == request.schedule else None


async def _held(api: JetStreamApi, stream: str, request: ReadContent) -> StoredMessage | None:
    """Return the last message on the schedule's subject, None if there is none; or the schedule, if it is covered."""
    if is_expressible(request.schedule) and not request.above:
        return await last_on(api, stream, request.schedule)
    message = await api.message(stream, seq=request.sequence)
    if message is None or message.subject != as_answered(request.schedule):
        return None
    return message._replace(subject=request.schedule)
