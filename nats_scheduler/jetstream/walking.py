"""Read a stream one message after the other, while no consumer can be created.

A cluster that has lost its leader creates no consumer for 4 s to 9 s, while the stream itself may work. Its messages
are read by requests then, as contents are.

The rule: if no answer comes for `WALK_ANSWER_DEADLINE_SECONDS`, it reports that contact is lost.
Cost: one request a message, bodies included (some 5,000 a second), and ten a second while none is stored.
"""

import asyncio

from nats_scheduler.engine.inputs import CaughtUp, ContactLost, MessagesRead
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError, NoAnswerError
from nats_scheduler.message.stored import StoredMessage

WALK_POLL_INTERVAL_SECONDS = 0.1
"""How often the next message is asked for while there is none."""

WALK_ANSWER_DEADLINE_SECONDS = 1.5
"""Longest wait for an answer: a schedule that is cancelled meanwhile still fires."""


class Walk:
    """One walk through one stream, from behind the message with sequence `last`."""

    def __init__(self, api: JetStreamApi, stream: str, last: int, notify: Notify) -> None:
        """Begin to read, and to deliver to `notify`."""
        self._api = api
        self._stream = stream
        self._notify = notify
        self.last = last
        """The sequence of the last message that was delivered."""
        self._is_unanswered = False
        self._walking = asyncio.create_task(self._walk())

    @property
    def is_answered(self) -> bool:
        """Whether the last request was answered."""
        return not self._is_unanswered

    def end(self) -> None:
        """Stop reading and delivering."""
        self._walking.cancel()

    async def _walk(self) -> None:
        while True:
            try:
                await self._read_on()
            except JetStreamError as error:
                if not self._is_unanswered:
                    self._notify(ContactLost(str(error)))
                self._is_unanswered = True
                await asyncio.sleep(WALK_POLL_INTERVAL_SECONDS)

    async def _read_on(self) -> None:
        """Deliver what is stored, and then what is published; raise `JetStreamError` when no answer comes."""
        is_caught_up = False
        while True:
            while (message := await self._next()) is not None:
                self.last = message.sequence
                self._notify(MessagesRead([message._replace(body=None)]))
            if not is_caught_up:
                self._notify(CaughtUp())
            is_caught_up, self._is_unanswered = True, False
            await asyncio.sleep(WALK_POLL_INTERVAL_SECONDS)

    async def _next(self) -> StoredMessage | None:
        try:
            async with asyncio.timeout(WALK_ANSWER_DEADLINE_SECONDS):
                return await self._api.message(self._stream, seq=self.last + 1, next_by_subj=">")
        except TimeoutError:
            raise NoAnswerError(f"the next message was not answered within {WALK_ANSWER_DEADLINE_SECONDS} s") from None
