"""Ask the leader of a stream: a limited number of requests at a time, and which answers count."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Generic, TypeVar

from nats_scheduler.engine.fire import AwaitProposals
from nats_scheduler.engine.inputs import Input, ProposalsApplied, Unanswered
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import ApiError, ConnectionLostError, JetStreamError, NotPermittedError
from nats_scheduler.message.foreign_json import inner, integer
from nats_scheduler.message.stored import StoredMessage

# Many requests, a limited number at a time, each answered exactly once.
#
# Reads and purges have in common that they come in bursts of thousands, and that the server should get some hundreds at
# once. The engine must receive an answer to each of them, also if the contact ends first.

Request = TypeVar("Request")


def unanswered(question: Any, error: JetStreamError) -> Input:
    """Return the answer to a question about a fire that failed."""
    return Unanswered(question, str(error), denied=isinstance(error, NotPermittedError))


class BoundedRequests(Generic[Request]):
    """Sends requests in the order in which they were begun, at most `limit` at a time."""

    def __init__(
        self,
        notify: Notify,
        tasks: asyncio.TaskGroup,
        *,
        ask: Callable[[Request], Awaitable[Input]],
        limit: int,
        failed: Callable[[Any, JetStreamError], Input] | None = None,
    ) -> None:
        """Send at most `limit` requests at a time.

        `ask` sends one; `failed` returns the answer to one of which `ask` raised `JetStreamError`, or that is still
        open at the end, `Unanswered` if it is None.
        """
        self._notify = notify
        self._tasks = tasks
        self._ask = ask
        self._failed = failed or unanswered
        self._limit = limit
        self._waiting: deque[Request] = deque()
        self._asked: dict[int, Request] = {}
        self._number = 0
        self._workers = 0
        self._ended: ConnectionLostError | None = None

    def begin(self, request: Request) -> None:
        """Send a request as soon as fewer than `limit` are in flight."""
        if self._ended is not None:
            self._notify(self._failed(request, self._ended))
            return
        self._waiting.append(request)
        self._start_worker()

    def _start_worker(self) -> None:
        if self._workers < self._limit and start_in_group(self._work(), self._tasks):
            self._workers += 1

    def end(self, reason: str) -> None:
        """Answer everything that is still open with `reason`, and discard what the server answers later.

        That includes requests in flight: the tasks that send them may have been cancelled, and then never answer.
        """
        if self._ended is not None:
            return
        self._ended = ConnectionLostError(reason)
        opened = [*self._asked.values(), *self._waiting]
        self._asked.clear()
        self._waiting.clear()
        for request in opened:
            self._notify(self._failed(request, self._ended))

    async def _work(self) -> None:
        try:
            while self._waiting:
                self._number += 1
                number, request = self._number, self._waiting.popleft()
                self._asked[number] = request
                try:
                    answer = await self._ask(request)
                except JetStreamError as error:
                    answer = self._failed(request, error)
                if self._asked.pop(number, None) is not None:
                    self._notify(answer)
        finally:
            self._workers -= 1


def start_in_group(work: Coroutine[Any, Any, None], tasks: asyncio.TaskGroup) -> bool:
    """Start work in a task group; return False if the group is ending, whose end answers what still waits."""
    try:
        tasks.create_task(work)
    except RuntimeError:
        work.close()
        return False
    return True


# One request for all that ask the same at the same moment.
#
# The rule: an answer comes from a request that was sent after the question was asked, so it is never older than that.
#
# Cost: at most two requests for any number of questions that come during one.

Answer = TypeVar("Answer")


class Combined(Generic[Answer]):
    """A question that many ask."""

    def __init__(self, tasks: asyncio.TaskGroup, ask: Callable[[], Awaitable[Answer]]) -> None:
        """Answer with what `ask` returns or raises; it runs in the task group."""
        self._tasks = tasks
        self._ask = ask
        self._waiting: list[asyncio.Future[Answer]] = []
        self._is_asking = False

    async def answer(self) -> Answer:
        """Return the answer of a request that is sent after this call began; raises `JetStreamError` as that does."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._waiting.append(answer)
        if not self._is_asking:
            self._is_asking = start_in_group(self._answer_all(), self._tasks)
        if not self._is_asking:
            raise ConnectionLostError("the contact with the stream is ending")
        return await answer

    @property
    def is_idle(self) -> bool:
        """True if no question waits for its answer."""
        return not self._is_asking

    async def _answer_all(self) -> None:
        """Ask once for all that wait, and again for all that came meanwhile."""
        try:
            while self._waiting:
                asked, self._waiting = self._waiting, []
                try:
                    found = await self._ask()
                except JetStreamError as error:
                    for answer in asked:
                        answer.set_exception(error)
                    continue
                for answer in asked:
                    answer.set_result(found)
        finally:
            self._is_asking = False


# Check how far the leader of a stream is, if the node that delivers a message may be ahead of the leader.
#
# In a cluster a consumer may be on a replica that has applied a message before the leader has.
# The leader then answers that there is no such message, or returns an older version, and its guard refuses a fire that
# names the new one.
#
# The rule: "no message", or an older version, counts only from a leader that had reached the sequence before it was
# asked, and that is still the leader afterwards.
# Nothing is cached between two requests: the leader may have changed meanwhile.
#
# Cost: none if the stream has one replica on a server without a cluster, nor if the message is found. Else one
# `STREAM.INFO` for all that ask at the same moment, and two for "no message".
# Limit: between the two answers the same node might lose the lead and a part of its log, and become leader again.

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

    def __init__(self, api: JetStreamApi, stream: str, tasks: asyncio.TaskGroup, *, may_lag: bool) -> None:
        """Ask about a stream; if its leader cannot lag, nothing is asked and every answer counts."""
        self._api = api
        self._stream = stream
        self.may_lag = may_lag
        self._leader = Combined(tasks, self._state)

    async def confirmed(self, sequence: int, read: Read) -> StoredMessage | None:
        """Return what `read` finds: a message at or behind `sequence`, or an older one or None if that is confirmed.

        Raises `JetStreamError` if it cannot be confirmed, as long as the leader may be behind, and as `read` does.
        """
        message = await read()
        if not self.may_lag or _is_as_new_as(message, sequence):
            return message
        leader = await self.leader_at(sequence)
        message = await read()
        if not _is_as_new_as(message, sequence) and (await self._ask())[0] != leader:
            raise JetStreamError(f"the leader of stream {self._stream} changed")
        return message

    async def leader_at(self, sequence: int) -> str:
        """Return the leader's name once it has reached a sequence; raises `JetStreamError` after all waits."""
        for wait in (*LEADER_RETRY_WAITS_SECONDS, None):
            leader, last = await self._ask()
            if last >= sequence:
                return leader
            if wait is not None:
                await asyncio.sleep(wait)
        raise JetStreamError(f"the leader of stream {self._stream} is at {last}, before sequence {sequence}")

    async def _ask(self) -> tuple[str, int]:
        """Return the leader's name and last sequence, from a request that is sent after this call began."""
        return await self._leader.answer()

    async def _state(self) -> tuple[str, int]:
        info = inner(await self._api.stream(self._stream))
        return str(inner(info.get("cluster")).get("leader", "")), integer(inner(info.get("state")).get("last_seq"))


def _is_as_new_as(message: StoredMessage | None, sequence: int) -> bool:
    return message is not None and message.sequence >= sequence


# Wait until the leader of a stream has applied all that it had accepted before.
#
# It is a purge that removes nothing. As the server does: the leader proposes a purge to the replicas as it does a
# message, applies both in the order in which they were proposed, and answers after that
# (`test_what_was_accepted_before_is_applied_before`).
#
# The rule: a node that dies or pauses answers nothing, so the request is repeated while it is not answered. The
# answer to any of them counts, because each was sent after the wait began.
#
# Cost: one request, and two a second while there is no answer.
# Limit: on a stream with `deny_purge` the answer is always `Unanswered`.

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
    """Return what waits for the leader of a stream."""

    async def ask(request: AwaitProposals) -> Input:
        if await apply_all(api, stream):
            return ProposalsApplied(request.fire)
        return Unanswered(request, "the stream or our permissions allow no purge", denied=True)

    return BoundedRequests(notify, tasks, ask=ask, limit=MAX_WAITS_IN_FLIGHT)


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
