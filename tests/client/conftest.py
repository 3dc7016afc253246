"""Connections of nats-py, as the programs have them that use the client."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import nats
import pytest
from nats.aio.client import Client

Connect = Callable[..., Awaitable[Client]]

MOST_ATTEMPTS = 1_000
"""To connect again. Without a limit a test may never end: before Python 3.12 `asyncio.wait_for`, in which nats-py waits
for a connection, may swallow a cancel, and what is cancelled once then goes on for ever.
"""


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect to a server as a program does: `await connect(server.url)`; closed when the test ends."""
    async with AsyncExitStack() as stack:

        async def connected(url: str, **options: object) -> Client:
            async def quiet(_error: Exception) -> None:
                """Take errors of the connection: a test looks at what the client makes of them."""

            connection: Client = await nats.connect(
                url, **{"error_cb": quiet, "max_reconnect_attempts": MOST_ATTEMPTS, **options}
            )
            stack.push_async_callback(connection.close)
            return connection

        yield connected
