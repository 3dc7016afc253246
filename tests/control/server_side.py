"""The other client of a store on a real server: it publishes and reads by a connection of its own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from nats_scheduler.control.store import ScheduleStore
from nats_scheduler.message.stored import StoredMessage
from tests.control.contract import Side
from tests.harness.account import Account, account_on


class ServerSide(Side):
    """A store on a real server, and another client there."""

    def __init__(self, account: Account, store: ScheduleStore, stream: str) -> None:
        self.account, self.store, self.stream = account, store, stream
        self.unserved = unserved(stream)

    async def publish(self, subject: str, block: bytes, body: bytes = b"") -> int:
        return await self.account.publish_block(subject, block, body)

    async def messages(self, subject: str) -> Sequence[StoredMessage]:
        return await self.account.messages(self.stream, subject)


def unserved(stream: str) -> str:
    """Return the name of the stream without schedules beside a stream."""
    return f"{stream}-plain"


@asynccontextmanager
async def account_with(url: str, stream: str) -> AsyncIterator[Account]:
    """Create a stream for portable schedules, and one without schedules beside it."""
    async with account_on(url) as account:
        await account.create(stream, allow_msg_schedules=False, allow_rollup_hdrs=True)
        await account.create(unserved(stream), allow_msg_schedules=False)
        yield account
