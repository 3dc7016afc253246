"""Remove messages whose own TTL has run out, where the server does not do it (2.10).

By sequence, so that nothing else on the subject goes with it: a purge up to a sequence would take older messages that
live longer.
Each is looked at first, since a sequence alone says nothing: a stream that was deleted and made again, or restored,
counts anew.

Cost: two requests a message, one where it is gone already; the look carries the body. 3,000 to 6,000 a second.
Limit: what is published under that sequence between look and removal would have to come after a stream was made again.
"""

import asyncio

from nats_scheduler.engine.actions import RemoveExpired
from nats_scheduler.engine.inputs import ExpiryConcluded, Input
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.bounded import BoundedRequests
from nats_scheduler.jetstream.errors import ApiError, JetStreamError
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.message.expiry import expiry_of

MAX_EXPIRED_DELETES_IN_FLIGHT = 16
"""Removals in flight at once: they are never urgent, the looks carry bodies, and fires share the event loop."""

DELETE_FAILED = 10057
DELETE_NOT_PERMITTED = "message delete not permitted"
"""What a stream with `deny_delete`, or a sealed one, answers under that code, which other failures share."""


def remover(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup, reach: LeaderReach
) -> BoundedRequests[RemoveExpired]:
    """Return what removes expired messages from a stream."""

    async def ask(request: RemoveExpired) -> Input:
        try:
            return await _check_and_delete(api, stream, request, reach)
        except JetStreamError as error:
            return await _conclude_error(api, stream, request, error)

    return BoundedRequests(notify, tasks, ask=ask, give_up=_failed, limit=MAX_EXPIRED_DELETES_IN_FLIGHT)


def _failed(request: RemoveExpired, reason: str) -> Input:
    return ExpiryConcluded(request.sequence, failure=reason)


async def _check_and_delete(api: JetStreamApi, stream: str, request: RemoveExpired, reach: LeaderReach) -> Input:
    message = await reach.confirmed(request.sequence, lambda: api.message(stream, seq=request.sequence))
    expires = None if message is None else expiry_of(message, DIALECTS)
    if message is None or expires is None:
        return ExpiryConcluded(request.sequence)
    if expires > request.by:
        return ExpiryConcluded(request.sequence, expires=expires)
    removed = await api.delete_message(stream, request.sequence)
    return ExpiryConcluded(request.sequence, message.subject if removed else None)


async def _conclude_error(api: JetStreamApi, stream: str, request: RemoveExpired, error: JetStreamError) -> Input:
    """Say what an error means; two that delete one message at the same moment get it in several words and codes."""
    if not isinstance(error, ApiError) or error.code != DELETE_FAILED:
        return _failed(request, str(error))
    if error.description == DELETE_NOT_PERMITTED:
        return ExpiryConcluded(request.sequence, failure=str(error), refused=True)
    try:
        is_gone = await api.message(stream, seq=request.sequence) is None
    except JetStreamError as another:
        return _failed(request, str(another))
    return ExpiryConcluded(request.sequence) if is_gone else _failed(request, str(error))
