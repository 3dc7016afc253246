"""Purge schedules that are done, and versions that were replaced.

It is a purge of one subject up to a sequence: a replacement that was stored meanwhile has a higher sequence and stays.
Only on a subject that is not UTF-8, which JSON cannot name, one message is deleted by its sequence: the one that is
known to be there. Other messages there cannot be asked for, since several such subjects look the same in an answer.
"""

import asyncio

from nats_scheduler.engine.actions import PurgeSchedule
from nats_scheduler.engine.inputs import Input, PurgeConcluded
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.api import TEMPORARY_STATUS, JetStreamApi
from nats_scheduler.jetstream.bounded import BoundedRequests
from nats_scheduler.jetstream.errors import ApiError, JetStreamError, NotPermittedError
from nats_scheduler.jetstream.foreign_json import is_expressible
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.jetstream.schedule_messages import purge_through

MAX_PURGES_IN_FLIGHT = 256
"""Purges in flight at once."""

PURGE_GROUP_SECONDS = 0.05
"""Purges that follow each other within so long are sent together: nothing depends on them but what is stored."""

MAX_GROUPED_PURGES = 32
"""So many do not wait for more: a larger group would keep the event loop from what is due."""


def purger(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup, reach: LeaderReach
) -> BoundedRequests[PurgeSchedule]:
    """Return what purges schedules of a stream."""

    async def ask(request: PurgeSchedule) -> Input:
        try:
            await _purge(api, stream, request, reach)
        except ApiError as error:
            return concluded(request, str(error))._replace(refused=error.status != TEMPORARY_STATUS)
        except NotPermittedError as error:
            return concluded(request, str(error))._replace(denied=True)
        except JetStreamError as error:
            return concluded(request, str(error))
        return concluded(request)

    def concluded(request: PurgeSchedule, failure: str | None = None) -> PurgeConcluded:
        return PurgeConcluded(request.schedule, request.through, failure, known=request.known)

    return BoundedRequests(
        notify,
        tasks,
        ask=ask,
        give_up=concluded,
        limit=MAX_PURGES_IN_FLIGHT,
        group_seconds=PURGE_GROUP_SECONDS,
        group_limit=MAX_GROUPED_PURGES,
    )


async def _purge(api: JetStreamApi, stream: str, request: PurgeSchedule, reach: LeaderReach) -> None:
    if request.stored_at is not None:
        message = await api.message(stream, seq=request.through)
        if message is None or message.stored_at != request.stored_at:
            return  # it is not there any more; a stream that lost messages may have another one under this sequence
    if is_expressible(request.schedule):
        await purge_through(api, stream, request.schedule, request.through)
        return
    if request.known is None:
        return
    sequence, stored_at = request.known
    message = await reach.confirmed(sequence, lambda: api.message(stream, seq=sequence))
    if message is not None and message.stored_at == stored_at:
        await api.delete_message(stream, sequence)
