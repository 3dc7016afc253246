"""A worker: it pulls messages from a durable consumer, and acknowledges each when a test says so.

Its rule: an acknowledgement is confirmed by the server, so what a test asks after it sees it.
"""

import json
from typing import Any

from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection, frame
from tests.harness.waiting import eventually

PULL_EXPIRES_NS = 300_000_000_000


class Worker:
    """One worker of one consumer."""

    def __init__(self, connection: Connection, api: JetStreamApi, stream: str, consumer: str) -> None:
        self._connection = connection
        self._api = api
        self._stream = stream
        self._consumer = consumer
        self._replies: dict[int, str] = {}
        self._inbox = connection.inbox(f"worker.{stream}.{consumer}")
        connection.subscribe(self._inbox, self._received)

    @property
    def taken(self) -> list[int]:
        """The sequences of the messages that it received, in order."""
        return list(self._replies)

    async def begin(self, **config: Any) -> None:
        """Create the consumer."""
        wanted = {"durable_name": self._consumer, "ack_policy": "explicit", **config}
        body = {"stream_name": self._stream, "config": wanted}
        await self._api.call(f"CONSUMER.DURABLE.CREATE.{self._stream}.{self._consumer}", body)

    def pull(self, count: int) -> None:
        """Ask for `count` messages, those that are stored or the next ones."""
        request = json.dumps({"batch": count, "expires": PULL_EXPIRES_NS}).encode()
        subject = f"{self._api.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}"
        self._connection.write(frame(subject, self._inbox, b"", request))

    async def takes(self, count: int) -> list[int]:
        """Wait until it has received `count` messages; returns their sequences."""
        await eventually(
            lambda: len(self._replies) >= count, describe=lambda: f"{count} messages, not only {self.taken}"
        )
        return self.taken

    def stored_at(self, sequence: int) -> int:
        """Return when (ns) a message that it received was stored."""
        return int(self._replies[sequence].split(".")[-2])

    async def acknowledge(self, sequence: int) -> None:
        """Acknowledge a message that it received."""
        await self._connection.request(self._replies[sequence], b"+ACK")

    def _received(self, _subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
        if reply:  # else it is a status
            text = reply.decode()
            self._replies[int(text.split(".")[-4])] = text
