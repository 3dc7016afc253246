"""Find out whether a fire is finished: whether it is still stored, and what a consumer has acknowledged.

A fire that is not stored any more is finished, whatever removed it: an acknowledgement (work queue, interest), a limit,
a TTL or a user. The server itself drops such a message from what its consumers still have to acknowledge.
A fire that is stored is finished if the named consumer has acknowledged it and everything before it: a consumer's
*acknowledgement floor* is all that the server reports. So one that is acknowledged out of order counts once the others
are.
A consumer that is past the fire and has nothing to acknowledge has *given it up*, where its floor is before it: it has
delivered it as often as its `max_deliver` allows, or was created again behind it. Nobody works on that fire any more.

The rules:

- Only the leader of the stream is asked for messages, and "it is gone" counts only once the leader has reached the
  sequence (`jetstream.reach`).
- A consumer that does not exist, or whose filter does not match the target, has acknowledged nothing. That is said.

Cost: a request for the consumer, one for all that ask for it at the same moment, and one for the message, which comes
with its body. If the sequence of the fire is not known, one for each message on the target until one is found.
Limit: `MAX_MESSAGES_SEARCHED` for each question; the next one continues.
"""

import asyncio
from functools import partial
from typing import NamedTuple

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.engine.fire import CheckFinished, consumer_missing, given_up_by, target_not_received
from nats_scheduler.engine.inputs import FinishChecked, Input, Unanswered
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import CONSUMER_NOT_FOUND, JetStreamApi
from nats_scheduler.jetstream.bounded_requests import BoundedRequests
from nats_scheduler.jetstream.reach import LeaderReach
from nats_scheduler.jetstream.single_flight import SingleFlights, loop_time
from nats_scheduler.message.foreign_json import inner, integer, is_expressible
from nats_scheduler.message.generated import is_generated_by
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import subject_matches

MAX_CHECKS_IN_FLIGHT = 32
"""Questions in flight at once: few, so that what fires read and store does not wait for them."""

MAX_MESSAGES_SEARCHED = 500
"""Messages on a target that one question looks at: some tenths of a second, so that others get their turn."""


class ConsumerProgress(NamedTuple):
    """The progress of a consumer, and the subjects that it receives."""

    acknowledged_through: int
    """The sequence up to which everything that it receives is acknowledged."""
    passed: int
    """The sequence up to which it has delivered, or does not deliver."""
    to_deliver: int
    """The number of messages that are still to be delivered to it."""
    to_acknowledge: int
    """The number of messages that were delivered and are not concluded, those too that are to be delivered again."""
    filters: tuple[str, ...]
    """The subjects that it receives, empty for all."""

    def receives(self, subject: str) -> bool:
        """Return whether it receives messages on a subject; `>` stands for any."""
        return not self.filters or subject == ">" or any(subject_matches(subject, one) for one in self.filters)


class FinishChecks:
    """Finds out what is finished in one stream."""

    def __init__(self, api: JetStreamApi, stream: str, reach: LeaderReach) -> None:
        self._api = api
        self._stream = stream
        self._reach = reach
        self._consumers = SingleFlights[ConsumerProgress | None](MAX_CHECKS_IN_FLIGHT)

    async def check(self, request: CheckFinished) -> Input:
        """Answer a question; raises `SchedulerError`."""
        progress, fault, given_up = None, "", False
        if request.consumer is not None:
            progress = await self._progress(request.consumer)
            if progress is None:
                fault = consumer_missing(self._stream, request.consumer)
            elif not progress.receives(request.target):
                fault = target_not_received(request.consumer, request.target)
        if progress is not None and not fault:
            is_idle = progress.to_deliver + progress.to_acknowledge == 0
            if progress.acknowledged_through >= request.through or (is_idle and not request.names_one):
                return FinishChecked(request)
            given_up = progress.to_acknowledge == 0 and progress.passed >= request.through
            fault = given_up_by(str(request.consumer)) if given_up else ""
        if request.names_one:
            return _found(request, await self._named(request), fault, given_up=given_up)
        if request.consumer is None:
            return await self._search(request)
        return FinishChecked(request, request.through, 0, fault, given_up)

    async def _named(self, request: CheckFinished) -> StoredMessage | None:
        """Return the fire in question if it is stored."""
        read = partial(self._api.message, self._stream, seq=request.through)
        message = await self._reach.confirmed(request.through, read)
        # A stream that went back may have another message under this sequence.
        return message if message is not None and is_generated_by(message.block, request.schedule) else None

    async def _search(self, request: CheckFinished) -> Input:
        """Search a fire of the schedule among the messages on its target."""
        where, after = request.target if is_expressible(request.target) else ">", request.after
        for _ in range(MAX_MESSAGES_SEARCHED):
            message = await self._api.message(self._stream, seq=after + 1, next_by_subj=where)
            if message is None and self._reach.may_lag:
                await self._reach.leader_at(request.through)
                message = await self._api.message(self._stream, seq=after + 1, next_by_subj=where)
            if message is None or message.sequence > request.through:
                return FinishChecked(request)
            if is_generated_by(message.block, request.schedule):
                return _found(request, message, "")
            after = message.sequence
        return Unanswered(request, f"{MAX_MESSAGES_SEARCHED} messages on {where} were searched", after=after)

    async def _progress(self, consumer: str) -> ConsumerProgress | None:
        """Return how far a consumer has come, None if it does not exist."""
        ask = partial(self._ask_consumer, consumer)
        return await self._consumers.of(consumer).get(ask, since=loop_time())

    async def _ask_consumer(self, consumer: str) -> tuple[ConsumerProgress | None, float]:
        try:
            info = inner(await self._api.consumer(self._stream, consumer))
        except RefusedError as error:
            if error.code == CONSUMER_NOT_FOUND:
                return None, 0.0
            raise
        config = inner(info.get("config"))
        several = config.get("filter_subjects")
        filters = several if isinstance(several, list) else [config.get("filter_subject")]
        floor, passed = (integer(inner(info.get(name)).get("stream_seq")) for name in ("ack_floor", "delivered"))
        left = integer(info.get("num_pending")), integer(info.get("num_ack_pending"))
        return ConsumerProgress(floor, passed, *left, tuple(str(one) for one in filters if one)), 0.0


def finish_checker(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup, reach: LeaderReach
) -> BoundedRequests[CheckFinished]:
    """Return what finds out whether fires of a stream are finished."""
    checks = FinishChecks(api, stream, reach)
    return BoundedRequests(notify, tasks, ask=checks.check, limit=MAX_CHECKS_IN_FLIGHT)


def _found(request: CheckFinished, message: StoredMessage | None, fault: str, *, given_up: bool = False) -> Input:
    if message is None:
        return FinishChecked(request)
    return FinishChecked(request, message.sequence, message.stored_at, fault, given_up)
