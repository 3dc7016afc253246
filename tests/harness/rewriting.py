"""A relay before a nats-server that rewrites what the server sends, line by line: for what no server at hand says.

Its rule: lines only, so that a JSON answer, which is one line, is rewritten as a whole.
Limit: a line that gets another length has to be one without a length before it, such as INFO.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

HOST = "127.0.0.1"
MAX_LINE_BYTES = 1 << 22


@asynccontextmanager
async def rewritten(port: int, rewrite: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    """Relay the server at a port; each line that it sends is what `rewrite` returns for it."""
    relays: list[asyncio.Task[None]] = []

    async def requests(near: asyncio.StreamReader, to_far: asyncio.StreamWriter) -> None:
        try:
            while data := await near.read(1 << 16):
                to_far.write(data)
        finally:
            to_far.transport.abort()

    async def answers(far: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        try:
            while line := await far.readline():
                to_near.write(rewrite(line))
        finally:
            to_near.transport.abort()

    async def relay(near: asyncio.StreamReader, to_near: asyncio.StreamWriter) -> None:
        far, to_far = await asyncio.open_connection(HOST, port, limit=MAX_LINE_BYTES)
        await asyncio.gather(requests(near, to_far), answers(far, to_near), return_exceptions=True)

    listener = await asyncio.start_server(
        lambda near, to_near: relays.append(asyncio.create_task(relay(near, to_near))), HOST, 0
    )
    async with listener:
        yield f"nats://{HOST}:{listener.sockets[0].getsockname()[1]}"
    await asyncio.gather(*relays)
