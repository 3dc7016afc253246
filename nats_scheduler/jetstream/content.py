"""Read what a fire will say: the last message on the schedule's subject, and on its source.

The last message by subject, and not the message by sequence: the same answer tells whether the schedule is still
there and still the last one, and costs no more.
It is read from the stream's leader (`STREAM.MSG.GET`), never from a replica that may be behind.
"""

import asyncio

from nats_scheduler.engine.actions import ReadContent
from nats_scheduler.engine.inputs import ContentRead, ContentUnread, Input
from nats_scheduler.engine.port import Tell
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.bounded import BoundedRequests
from nats_scheduler.jetstream.errors import JetStreamError

MAX_READS_UNDER_WAY = 512
"""Reads in flight at once: enough to keep a server busy, few enough to stay far below its queue limit."""


def content_reader(
    api: JetStreamApi, stream: str, tell: Tell, tasks: asyncio.TaskGroup
) -> BoundedRequests[ReadContent]:
    """Return what reads contents from a stream."""

    async def ask(request: ReadContent) -> Input:
        try:
            message = await api.message(stream, last_by_subj=request.schedule)
            source = await api.message(stream, last_by_subj=request.source) if request.source else None
        except JetStreamError as error:
            return ContentUnread(request.schedule, request.sequence, str(error))
        return ContentRead(request.schedule, request.sequence, message, source)

    def give_up(request: ReadContent, reason: str) -> Input:
        return ContentUnread(request.schedule, request.sequence, reason)

    return BoundedRequests(tell, tasks, ask=ask, give_up=give_up, limit=MAX_READS_UNDER_WAY)
