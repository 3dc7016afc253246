"""Read a stream one message after the other, for as long as no consumer can be made.

A cluster that has lost its leader makes no consumer for 4 s to 9 s, while the stream itself may be well: its messages
are asked for then, as its contents are.

The rule: whoever cannot be answered for `WALK_ANSWER_DEADLINE_SECONDS` says that contact is lost.
Cost: one request a message, bodies included (some 5,000 a second), and ten a second where none comes.
"""

import asyncio

from nats_scheduler.engine.inputs import CaughtUp, ContactLost, MessagesRead
from nats_scheduler.engine.port import Notify
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError, NoAnswerError
from nats_scheduler.message.stored import StoredMessage

WALK_POLL_INTERVAL_SECONDS = 0.1
"""How often it is looked whether there is another message."""

WALK_ANSWER_DEADLINE_SECONDS = 1.5
"""Longest wait for an answer: what is cancelled meanwhile fires on."""


class Walk:
    """One walk through one stream, from behind the message with sequence `last`."""

    def __init__(self, api: JetStreamApi, stream: str, last: int, notify: Notify) -> None:
        """Begin."""
        self._api = api
        self._stream = stream
        self._notify = notify
        self.last = last
        """The last message that was told."""
        self._is_unanswered = False
        self._walking = asyncio.create_task(self._walk())

    @property
    def is_answered(self) -> bool:
        """Whether messages can be asked for, as far as that is known."""
        return not self._is_unanswered

    def end(self) -> None:
        """Tell nothing any more."""
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
        """Tell what is stored, and then what is published, until nobody answers."""
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
            raise NoAnswerError(f"no message could be asked for within {WALK_ANSWER_DEADLINE_SECONDS} s") from None
