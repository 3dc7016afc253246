"""Delete messages whose own TTL has run out, if the server does not do it (2.10).

By sequence, so that nothing else on the subject is deleted: a purge up to a sequence would delete older messages
that live longer. Each is read first, since a sequence alone proves nothing: a stream that was deleted and created
again, or restored, begins to count anew.
Limit: if the stream is created again between read and delete, a new message with that sequence would be deleted.
"""

import asyncio

from nats_scheduler.control.errors import RefusedError, SchedulerError
from nats_scheduler.engine.actions import RemoveExpired
from nats_scheduler.engine.inputs import ExpiryConcluded, Input
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.bounded_requests import BoundedRequests
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.reading import expiry_of

MAX_EXPIRED_DELETES_IN_FLIGHT = 16
"""Deletes in flight at once: they are never urgent, the reads carry bodies, and fires share the event loop."""

DELETE_FAILED = 10057
DELETE_NOT_PERMITTED = "message delete not permitted"
"""The text with which a stream with `deny_delete`, or a sealed one, answers; other failures have the same code."""


def remover(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup, reach: LeaderReach
) -> BoundedRequests[RemoveExpired]:
    """Return what deletes expired messages from a stream."""

    async def ask(request: RemoveExpired) -> Input:
        try:
            return await _check_and_delete(api, stream, request, reach)
        except RefusedError as error:
            return await _conclude_refusal(api, stream, request, error)

    return BoundedRequests(notify, tasks, ask=ask, failed=_expiry_failed, limit=MAX_EXPIRED_DELETES_IN_FLIGHT)


def _expiry_failed(request: RemoveExpired, error: SchedulerError) -> Input:
    return ExpiryConcluded(request.sequence, failure=str(error))


async def _check_and_delete(api: JetStreamApi, stream: str, request: RemoveExpired, reach: LeaderReach) -> Input:
    message = await reach.confirmed(request.sequence, lambda: api.message(stream, seq=request.sequence))
    expires = None if message is None else expiry_of(message, DIALECTS)
    if message is None or expires is None:
        return ExpiryConcluded(request.sequence)
    if expires > request.by:
        return ExpiryConcluded(request.sequence, expires=expires)
    removed = await api.delete_message(stream, request.sequence)
    return ExpiryConcluded(request.sequence, message.subject if removed else None)


async def _conclude_refusal(api: JetStreamApi, stream: str, request: RemoveExpired, error: RefusedError) -> Input:
    """Return what a refusal means; two clients that delete one message together get several texts and codes."""
    if error.code != DELETE_FAILED:
        raise error
    if error.description == DELETE_NOT_PERMITTED:
        return ExpiryConcluded(request.sequence, failure=str(error), refused=True)
    is_gone = await api.message(stream, seq=request.sequence) is None
    return ExpiryConcluded(request.sequence) if is_gone else _expiry_failed(request, error)
