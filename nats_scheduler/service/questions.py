"""What one instance asks another, on an inbox that is for nothing else.

The rule: a requester names the subject of an answer, and so can make a sidecar send an answer to any inbox. The inboxes
of acknowledgements and of requests to the server are known to all who see a fire, so the service sends nothing there
(`service.micro.is_inbox`). What arrives on the inbox of this module counts as the answer of another instance, and as
nothing else.

Cost: one subscription for each connection that has asked.
"""

import asyncio

from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.foreign_json import Object, read_object

HOLDER_DEADLINE_SECONDS = 0.5
"""Longest wait for another instance: the requester waits 2 s by default, and gets an answer without it."""

INBOX = "asked"
"""The token that follows the name of a sidecar in the inbox for answers of other instances."""


class Questions:
    """The questions of one connection."""

    def __init__(self, connection: Connection) -> None:
        """Ask nothing yet."""
        self._connection = connection
        self._inbox = connection.inbox(INBOX)
        self._waiting: dict[bytes, asyncio.Future[Object | None]] = {}
        self._number = 0
        connection.subscribe(f"{self._inbox}.*", self._answered)

    async def ask(self, subject: str, body: bytes) -> Object | None:
        """Return the object that another instance answers; None if there is none in time."""
        self._number += 1
        token = b"%d" % self._number
        answer = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer
        self._connection.write(frame(subject, f"{self._inbox}.{token.decode()}", b"", body))
        try:
            async with asyncio.timeout(HOLDER_DEADLINE_SECONDS):
                found: Object | None = await answer
                return found
        except TimeoutError:
            return None
        finally:
            del self._waiting[token]

    def _answered(self, subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        """Take an answer; an error, or that nothing subscribes there, is none."""
        answer = self._waiting.get(subject[subject.rfind(b".") + 1 :])
        if answer is not None and not answer.done():
            answer.set_result(None if block else read_object(body))
