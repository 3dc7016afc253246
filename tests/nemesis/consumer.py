"""A consumer of a work queue: it takes generated messages away as soon as they are stored, and notes each of them.

Its rule: a message is noted before it is acknowledged, so that nothing is removed without a note.
"""

import asyncio

from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.message.stored import StoredMessage
from tests.harness.account import Account
from tests.harness.waiting import time_reached
from tests.nemesis.ground import STREAM, Ground

DURABLE = "worker"
BATCH = b'{"batch": 100, "expires": 400000000}'
AGAIN_SECONDS = 0.5


class Consumer:
    """A consumer that works on a work queue."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.taken: dict[int, StoredMessage] = {}
        """Everything that was ever delivered, by its sequence."""

    async def subscribe(self) -> None:
        """Create the consumer."""
        config = {"durable_name": DURABLE, "ack_policy": "explicit", "filter_subject": "t.>", "ack_wait": 10**9}
        async with self._ground.account() as account:
            body = {"stream_name": STREAM, "config": config}
            await account.api.call(f"CONSUMER.DURABLE.CREATE.{STREAM}.{DURABLE}", body)

    async def take_now_and_again(self) -> None:
        """Take all messages, through any connection that can be made."""
        loop = asyncio.get_running_loop()
        while True:
            try:
                async with self._ground.account() as account:
                    await self._take_through(account)
            except (JetStreamError, OSError):
                pass  # no server answers
            await time_reached(loop.time() + AGAIN_SECONDS)

    async def _take_through(self, account: Account) -> None:
        connection = account.connection
        inbox = connection.inbox("taken")
        loop = asyncio.get_running_loop()

        def delivered(subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
            if not reply.startswith(b"$JS.ACK."):
                return  # a status message of the server about the request
            fields = reply.split(b".")
            sequence, stored_at = int(fields[5]), int(fields[7])
            self.taken[sequence] = StoredMessage(
                subject=subject.decode(), sequence=sequence, stored_at=stored_at, block=block, body=body
            )
            connection.write(frame(reply.decode(), "", b"", b"+ACK"))

        connection.subscribe(inbox, delivered)
        while not connection.is_lost:
            connection.write(frame(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{DURABLE}", inbox, b"", BATCH))
            await time_reached(loop.time() + AGAIN_SECONDS)
