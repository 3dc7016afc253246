"""A leader that is behind what is delivered: a JetStream API under another prefix, in front of a real server.

In a cluster a consumer may sit on a node that has applied a message before the leader of the stream has. That takes
milliseconds and cannot be forced; here the lag is switched on and off.
Its rule: consumers and publishes go to the server as they are; what is asked about the stream is answered as a leader
would that has come as far as `applied`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nats_scheduler.jetstream.connection import Connection, frame
from tests.harness.account import Account, account_on, flushed

PREFIX = "LAG.API"
"""The prefix of the API of this leader."""

NOT_FOUND = {"error": {"code": 404, "err_code": 10037, "description": "no message found"}}


class LaggingLeader:
    """The leader of one stream, which says that it has three replicas."""

    def __init__(self, account: Account, stream: str) -> None:
        self.applied: int | None = None
        """The last sequence that it knows; None for all of them."""
        self.not_found = 0
        """The number of its answers that it knows no such message although the stream has one."""
        self.ahead = 0
        """The number of messages that it knows and that no consumer delivers."""
        self.told_of_more = 0
        """The number of its answers that named one of them."""
        self._connection: Connection = account.connection
        self._stream = stream
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, subject: bytes, reply: bytes, _block: bytes, body: bytes) -> None:
        """Answer a request, or let the server answer it."""
        request = subject.decode()[len(PREFIX) + 1 :]
        asks = {f"STREAM.INFO.{self._stream}": self._information, f"STREAM.MSG.GET.{self._stream}": self._message}
        if request not in asks:
            self._connection.write(frame(f"$JS.API.{request}", reply.decode(), b"", body))
            return

        async def answer() -> None:
            found = await self._connection.request(f"$JS.API.{request}", body)
            told = json.dumps(asks[request](json.loads(found.body))).encode()
            self._connection.write(frame(reply.decode(), "", b"", told))

        task = asyncio.create_task(answer())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _information(self, answer: Any) -> Any:
        if "state" in answer:
            answer["config"]["num_replicas"] = 3
            answer["state"]["last_seq"] += self.ahead
            if self.applied is not None:
                answer["state"]["last_seq"] = min(answer["state"]["last_seq"], self.applied)
        return answer

    def _message(self, answer: Any) -> Any:
        if self.ahead and "error" in answer:
            self.told_of_more += 1
            return {"message": {"subject": f"{self._stream}.more", "seq": 1, "time": "2026-01-01T00:00:00Z"}}
        if self.applied is None or answer.get("message", {}).get("seq", 0) <= self.applied:
            return answer
        self.not_found += 1
        return NOT_FOUND


@asynccontextmanager
async def lagging_leader(url: str, stream: str) -> AsyncIterator[LaggingLeader]:
    """Answer under `PREFIX` for the length of a `with` block."""
    async with account_on(url) as account:
        leader = LaggingLeader(account, stream)
        account.connection.subscribe(f"{PREFIX}.>", leader.take)
        await flushed(account.connection)
        yield leader
