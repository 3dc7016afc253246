"""A flagged stream with the client of a program and another client, with a sidecar and without."""

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from nats_scheduler.client import Schedules
from tests.client.conftest import Connect
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.servers import V2_10, V2_12, V2_15

FAR = datetime(2200, 1, 1, tzinfo=UTC)
SOON = timedelta(seconds=1)


class World(NamedTuple):
    """A flagged stream, the client of a program, and another client."""

    account: Account
    schedules: Schedules
    stream: str
    url: str

    def subject(self, rest: str) -> str:
        return f"{self.stream}.{rest}"


SCENES = [(V2_10, True), (V2_12, False), (V2_15, False), (V2_15, True)]
"""The version of the server, and whether a sidecar runs."""


async def entered(
    stack: AsyncExitStack, server_url: str, stream: str, connect: Connect, *, sidecar: bool, **config: object
) -> World:
    account = await stack.enter_async_context(account_on(server_url))
    if sidecar:
        running = await stack.enter_async_context(sidecar_on(server_url))
        await account.create(stream, **config)
        await running.ready(stream)
    else:
        await account.create(stream, **config)
    return World(account, await Schedules.on(await connect(server_url), stream, author="tests"), stream, server_url)
