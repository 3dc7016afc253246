"""A proxy before a nats-server that rewrites what the server sends, frame by frame: for what no server at hand says.

Limit: a frame that gets another length has to be one without a length in it, such as INFO.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.harness.proxy import HOST, proxy_to


@asynccontextmanager
async def rewritten(port: int, rewrite: Callable[[bytes], bytes]) -> AsyncIterator[str]:
    """Relay the server at a port; each frame that it sends is what `rewrite` returns for it."""
    async with proxy_to(f"nats://{HOST}:{port}") as proxy:
        proxy.to_client.rewrite = rewrite
        yield proxy.url
