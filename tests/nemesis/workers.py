"""Workers: consumers that receive generated messages, work on each for a while, and acknowledge it.

Its rule: a message is noted before it is acknowledged, so that nothing is removed without a note. An acknowledgement
counts when it is sent, at the earliest, and at the latest when the server has confirmed it.
On a work queue an acknowledgement removes the message, and every target has a worker; otherwise only some have.
"""

import asyncio
from collections.abc import Mapping
from functools import partial
from random import Random

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.message.stored import StoredMessage
from tests.harness.account import Account
from tests.harness.waiting import time_reached
from tests.judge.history import FireSeen, History
from tests.nemesis.ground import AT_ONCE, STREAM, Ground
from tests.nemesis.record import now

WORK_SECONDS = (0.01, 0.05, 0.3, 0.8, 2.0, 4.0)
"""The times (s) that the work on one message takes."""
BATCH = b'{"batch": 100, "expires": 400000000}'
AGAIN_SECONDS = 0.5
CONFIRMED_SECONDS = 0.5
"""Wait for the confirmation of an acknowledgement, before it is sent again."""


class Workers:
    """The workers of all targets."""

    def __init__(self, ground: Ground, history: History, seed: int) -> None:
        self._ground = ground
        self._history = history
        self._random = Random(f"work {seed}")
        self._account: Account | None = None
        self._working: dict[int, asyncio.Task[None]] = {}
        self.taken: dict[int, StoredMessage] = {}
        """Everything that was ever delivered, by its sequence."""
        self.confirmed: dict[int, int] = {}
        """The instant at which an acknowledgement of a message was confirmed for the last time, by its sequence."""

    async def work_now_and_again(self) -> None:
        """Receive messages and work on them, through any connection that can be made."""
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    async with self._ground.account() as self._account:
                        await self._receive_through(self._account)
                except (SchedulerError, OSError):
                    pass  # no server answers
                finally:
                    self._account = None
                await time_reached(loop.time() + AGAIN_SECONDS)
        finally:
            for task in self._working.values():
                task.cancel()
            await asyncio.gather(*self._working.values(), return_exceptions=True)

    async def _receive_through(self, account: Account) -> None:
        connection, loop = account.connection, asyncio.get_running_loop()
        inboxes = {name: connection.inbox(name) for name in self._ground.consumers}
        for name, inbox in inboxes.items():
            connection.subscribe(inbox, partial(self._delivered, name))
        while not connection.is_lost:
            for name, inbox in inboxes.items():
                connection.write(frame(f"$JS.API.CONSUMER.MSG.NEXT.{STREAM}.{name}", inbox, b"", BATCH))
            await time_reached(loop.time() + AGAIN_SECONDS)

    def _delivered(self, consumer: str, subject: bytes, reply: bytes, block: bytes, body: bytes) -> None:
        if not reply.startswith(b"$JS.ACK."):
            return  # a status message of the server about the request
        fields = reply.split(b".")
        sequence, stored_at = int(fields[5]), int(fields[7])
        if sequence in self._working:
            return  # it is delivered again, since the work takes its time or a server was killed
        is_done = sequence in self.taken
        self.taken[sequence] = StoredMessage(
            subject=subject.decode(), sequence=sequence, stored_at=stored_at, block=block, body=body
        )
        takes = 0.0 if is_done or consumer == AT_ONCE else self._random.choice(WORK_SECONDS)
        self._working[sequence] = asyncio.create_task(self._work(sequence, reply.decode(), takes))

    async def _work(self, sequence: int, reply: str, takes: float) -> None:
        """Work on a message, and acknowledge it until that is confirmed."""
        loop = asyncio.get_running_loop()
        await time_reached(loop.time() + takes)
        self._history.acknowledged.setdefault(sequence, now())
        while not await self._acknowledged(reply):
            await time_reached(loop.time() + AGAIN_SECONDS)
        self.confirmed[sequence] = now()
        del self._working[sequence]

    async def _acknowledged(self, reply: str) -> bool:
        if self._account is None:
            return False
        try:
            await self._account.connection.request(reply, b"+ACK", deadline=CONFIRMED_SECONDS)
        except SchedulerError:
            return False
        return True


def finished_through(fires: list[FireSeen], confirmed: Mapping[int, int]) -> dict[int, int]:
    """Return when each fire was finished, with everything before it on its target, by the confirmations."""
    found: dict[int, int] = {}
    through: dict[str, int | None] = {}
    for fire in sorted(fires, key=lambda one: one.sequence):
        at, before = confirmed.get(fire.sequence), through.get(fire.target, 0)
        through[fire.target] = latest = None if at is None or before is None else max(at, before)
        if latest is not None:
            found[fire.sequence] = latest
    return found
