"""Questions of one instance to another, on an inbox that is for nothing else; also whether it is still there.

The rule: a requester names the subject of an answer, and so can make a sidecar send an answer to any inbox. The
inboxes of acknowledgements and of requests to the server are known to all who see a fire, so the service sends
nothing there (`service.micro.is_inbox`). What arrives on the inbox of this module counts as the answer of another
instance, and as nothing else.
"""

import asyncio

from nats_scheduler.control.transport import NO_RESPONDERS, Reply
from nats_scheduler.jetstream.connection import Connection, unguessable_numbers
from nats_scheduler.jetstream.denials import Denial
from nats_scheduler.message.foreign_json import Object, read_object

INSTANCE_DEADLINE_SECONDS = 0.5
"""Longest wait for another instance: the requester waits 2 s by default, and gets an answer without it."""

INBOX = "asked"
"""The token that follows the name of a sidecar in the inbox for answers of other instances."""


class Questions:
    """The questions of one connection."""

    def __init__(self, connection: Connection) -> None:
        """Ask nothing yet."""
        self._connection = connection
        self._inbox = connection.inbox(INBOX)
        self._waiting: dict[bytes, asyncio.Future[Reply | None]] = {}
        self._numbers = unguessable_numbers()
        connection.subscribe(f"{self._inbox}.*", self._answered)

    async def ask(self, subject: str, body: bytes, seconds: float = INSTANCE_DEADLINE_SECONDS) -> Object | None:
        """Return the object that another instance answers; None if there is none in time, or an error."""
        reply = await self.reply(subject, body, seconds)
        return None if reply is None or reply.block else read_object(reply.body)

    async def is_subscribed(self, subject: str) -> bool | None:
        """Return whether an instance subscribes to a subject: the server says if none does. None: no answer in time."""
        reply = await self.reply(subject, b"")
        return None if reply is None else not reply.block.startswith(NO_RESPONDERS)

    async def reply(self, subject: str, body: bytes, seconds: float = INSTANCE_DEADLINE_SECONDS) -> Reply | None:
        """Return the answer of another instance, or of the server if none subscribes; None if none comes in time.

        None is also returned, at once, if this instance may not ask on that subject.
        """
        token = b"%d" % next(self._numbers)
        answer: asyncio.Future[Reply | None] = asyncio.get_running_loop().create_future()
        self._waiting[token] = answer

        def denied(denial: Denial) -> None:
            if denial == Denial(publishes=True, subject=subject) and not answer.done():
                answer.set_result(None)

        end_listening = self._connection.when_denied(denied)
        try:
            if not self._connection.publish(subject, body, reply=f"{self._inbox}.{token.decode()}"):
                return None
            async with asyncio.timeout(seconds):
                return await answer
        except TimeoutError:
            return None
        finally:
            end_listening()
            del self._waiting[token]

    def _answered(self, subject: bytes, _reply: bytes, block: bytes, body: bytes) -> None:
        answer = self._waiting.get(subject[subject.rfind(b".") + 1 :])
        if answer is not None and not answer.done():
            answer.set_result(Reply(block, body))
