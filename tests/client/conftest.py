"""Connections of nats-py, as the programs have them that use the client."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import nats
import pytest
from nats.aio.client import Client

Connect = Callable[..., Awaitable[Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect to a server as a program does: `await connect(server.url)`; closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def connected(url: str, **options: object) -> Client:
            async def quiet(_error: Exception) -> None:
                """Take errors of the connection: a test looks at what the client makes of them."""

            connection: Client = await nats.connect(url, **{"error_cb": quiet, **options})
            stack.push_async_callback(connection.close)
            return connection

        yield connected
