"""How far the leader of a stream is, and waiting for it: the node that delivers a message may be ahead of it.

In a cluster a consumer may be on a replica that has applied a message before the leader has.
The leader then answers that there is no such message, or returns an older version, and its guard refuses a fire that
names the new one.

The rule: "no message", or an older version, counts only from a leader that had reached the sequence before it was
asked, and that is still the leader afterwards.
Nothing is cached between two requests: the leader may have changed meanwhile.
Limit: between the two answers the same node might lose the lead and a part of its log, and become leader again.
"""

import asyncio
from collections.abc import Awaitable, Callable

from nats_scheduler.control.errors import ForbiddenError, RefusedError, SchedulerError
from nats_scheduler.engine.fire import AwaitProposals
from nats_scheduler.engine.inputs import Input, ProposalsApplied, Unanswered
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.bounded_requests import BoundedRequests
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.single_flight import SingleFlight, loop_time
from nats_scheduler.message.foreign_json import inner, integer
from nats_scheduler.message.stored import StoredMessage

LEADER_RETRY_WAITS_SECONDS = (0.01, 0.02, 0.05, 0.1)
"""Waits before the leader is asked again for its last sequence; after the last one the request fails."""

Read = Callable[[], Awaitable[StoredMessage | None]]
"""Asks the leader for a message."""


def may_lag(connection: Connection, config: Config) -> bool:
    """Return whether the leader of a stream may be behind what is delivered of it.

    Through a leaf node the stream may be in a cluster without the connected server; its number of replicas shows that.
    """
    return bool(connection.server.cluster) or integer(config.get("num_replicas"), 1) > 1


class LeaderReach:
    """The progress of the leader of one stream, as asked through one connection."""

    def __init__(self, api: JetStreamApi, stream: str, *, may_lag: bool) -> None:
        """Ask about a stream; if its leader cannot lag, nothing is asked and every answer counts."""
        self._api = api
        self._stream = stream
        self.may_lag = may_lag
        self._leader = SingleFlight[tuple[str, int]]()

    async def confirmed(self, sequence: int, read: Read) -> StoredMessage | None:
        """Return what `read` finds: a message at or behind `sequence`, or an older one or None if that is confirmed.

        Raises `SchedulerError` if it cannot be confirmed, as long as the leader may be behind, and as `read` does.
        """
        message = await read()
        if not self.may_lag or _is_as_new_as(message, sequence):
            return message
        leader = await self.leader_at(sequence)
        message = await read()
        if not _is_as_new_as(message, sequence) and (await self._ask())[0] != leader:
            raise SchedulerError(f"the leader of stream {self._stream} changed")
        return message

    async def leader_at(self, sequence: int) -> str:
        """Return the leader's name once it has reached a sequence; raises `SchedulerError` after all waits."""
        for wait in (*LEADER_RETRY_WAITS_SECONDS, None):
            leader, last = await self._ask()
            if last >= sequence:
                return leader
            if wait is not None:
                await asyncio.sleep(wait)
        raise SchedulerError(f"the leader of stream {self._stream} is at {last}, before sequence {sequence}")

    async def _ask(self) -> tuple[str, int]:
        """Return the leader's name and last sequence, from a request that is sent after this call began."""
        return await self._leader.get(self._state, since=loop_time())

    async def _state(self) -> tuple[tuple[str, int], float]:
        info = inner(await self._api.stream(self._stream))
        leader, last = inner(info.get("cluster")).get("leader", ""), inner(info.get("state")).get("last_seq")
        return (str(leader), integer(last)), 0.0


def _is_as_new_as(message: StoredMessage | None, sequence: int) -> bool:
    return message is not None and message.sequence >= sequence


MAX_WAITS_IN_FLIGHT = 1
"""Waits in flight at once: an engine begins the next one after the answer."""

PURGE_FAILED = 10110
"""The server's code if the stream does not allow purges."""

NO_SUBJECT = "nats-scheduler.no-subject"
"""The subject of the purge: no program publishes there, and no schedule is on it, so no other sidecar re-checks one."""

KEPT_MESSAGES = 1 << 53
"""The `keep` of the purge: more messages than a stream has. A purge up to sequence 1 would remove everything."""


def proposal_waiter(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup
) -> BoundedRequests[AwaitProposals]:
    """Return what waits until the leader of a stream has applied all that it had accepted before."""

    async def ask(request: AwaitProposals) -> Input:
        if await apply_all(api, stream):
            return ProposalsApplied(request.fire)
        return Unanswered(request, "the stream or our permissions allow no purge", denied=True)

    return BoundedRequests(notify, tasks, ask=ask, limit=MAX_WAITS_IN_FLIGHT)


async def apply_all(api: JetStreamApi, stream: str) -> bool:
    """Return when a leader has applied all that it had accepted; False if the stream or our permissions forbid to ask.

    It is asked by a purge that removes nothing. The leader proposes a purge to the replicas as it does a message,
    applies both in the order in which they were proposed, and answers after that
    (`test_what_was_accepted_before_is_applied_before`). A node that dies or pauses answers nothing, so the request is
    repeated; the answer to any of them counts, because each was sent after the wait began.
    Raises `SchedulerError` if there is no answer, or none that can be trusted.
    """
    try:
        nothing = {"filter": NO_SUBJECT, "keep": KEPT_MESSAGES}
        await api.call(f"STREAM.PURGE.{stream}", nothing, is_repeatable=True)
    except ForbiddenError:
        return False
    except RefusedError as error:
        if error.code != PURGE_FAILED:
            raise
        return False
    return True
