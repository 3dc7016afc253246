"""Wait until the leader of a stream has applied all that it had accepted before.

It is a purge that removes nothing.
As the server does: the leader proposes a purge to the replicas as it does a message, applies both in the order in which
they were proposed, and answers after that (`test_what_was_accepted_before_is_applied_before`).

The rule: a node that dies or pauses answers nothing, so the request is repeated while it is not answered. The answer to
any of them counts, because each was sent after the wait began.

Cost: one request, and two a second while there is no answer.
Limit: on a stream with `deny_purge` the answer is always `ProposalsUnconfirmed`.
"""

import asyncio

from nats_scheduler.engine.actions import AwaitProposals
from nats_scheduler.engine.inputs import Input, ProposalsApplied, ProposalsUnconfirmed
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.bounded import BoundedRequests
from nats_scheduler.jetstream.errors import ApiError, JetStreamError, NotPermittedError

MAX_WAITS_IN_FLIGHT = 1
"""Waits in flight at once: an engine begins the next one after the answer."""

PURGE_FAILED = 10110
"""The server's code if the stream does not allow purges."""

NO_SUBJECT = "nats-scheduler.no-subject"
"""What is purged: no program publishes there, and no schedule is on it, so that no other sidecar re-checks one."""

KEPT_MESSAGES = 1 << 53
"""How many messages the purge keeps there: more than a stream has. A purge up to sequence 1 would remove everything."""


def proposal_waiter(
    api: JetStreamApi, stream: str, notify: Notify, tasks: asyncio.TaskGroup
) -> BoundedRequests[AwaitProposals]:
    """Return what waits for the leader of a stream."""

    async def ask(request: AwaitProposals) -> Input:
        try:
            is_applied = await apply_all(api, stream)
        except JetStreamError as error:
            return ProposalsUnconfirmed(request.fire, str(error))
        if is_applied:
            return ProposalsApplied(request.fire)
        return ProposalsUnconfirmed(request.fire, "the stream or our permissions allow no purge", is_final=True)

    def give_up(request: AwaitProposals, reason: str) -> Input:
        return ProposalsUnconfirmed(request.fire, reason)

    return BoundedRequests(notify, tasks, ask=ask, give_up=give_up, limit=MAX_WAITS_IN_FLIGHT)


async def apply_all(api: JetStreamApi, stream: str) -> bool:
    """Return when a leader has applied all that it had accepted; False if the stream or our permissions forbid to ask.

    Raises `JetStreamError` if there is no answer, or none that can be trusted.
    """
    try:
        nothing = {"filter": NO_SUBJECT, "keep": KEPT_MESSAGES}
        await api.call(f"STREAM.PURGE.{stream}", nothing, is_repeatable=True)
    except NotPermittedError:
        return False
    except ApiError as error:
        if error.code != PURGE_FAILED:
            raise
        return False
    return True
