"""The same thing said to four servers: two that schedule natively, and two older ones with the sidecar beside them.

Its rule: a case is said to all sides at once and in the same words, and what each answers or stores is a plain value,
so that a comparison is one line and shows every difference (`tests.differential.differences`).
The newest native server is the reference.
The other native one is compared too: what differs between two native servers is a change of the server, and not ours to
follow.
Cost: sidecars start in a few tenths of a second; the servers are shared by the whole run.
So each side deletes its streams in the end: other sidecars would have to serve them.
"""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from nats_scheduler.control.errors import RefusedError
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, Running, account_on, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.servers import EMULATED_VERSIONS, V2_10, V2_11, V2_14, V2_15
from tests.harness.waiting import PATIENCE_SECONDS, eventually

AHEAD_SECONDS = (5, 20)
"""The times (s) from the draw to the fires of schedules that fire at a time that is the same everywhere.

It is longer than it takes to publish them on all sides; where a busy machine took longer, the next number is tried.
"""

REFERENCE = V2_15
"""The version that every other side is compared with."""

COMPARED_VERSIONS = (V2_15, V2_14, V2_11, V2_10)

T = TypeVar("T")
ShareServer = Callable[[str], Awaitable[EmbeddedServer]]


@dataclass
class ComparedSide:
    """One server, with a sidecar beside it where it does not schedule by itself."""

    version: str
    server: EmbeddedServer
    account: Account
    sidecar: Running | None = None
    created: list[str] = field(default_factory=list)
    """The streams that `create` created."""

    @property
    def is_native(self) -> bool:
        """True if the server itself fires."""
        return self.sidecar is None

    async def create(self, name: str, **config: Any) -> dict[str, Any]:
        """Create a flagged stream on `<name>.>` and wait until its schedules fire; returns the server's answer.

        It allows roll-ups, as a configuration does whose user publishes `Nats-Rollup`: on an older server the flag does
        not bring that along (`stream-implied`).
        """
        if self.sidecar is not None:  # a machine that was paused ends its connection, and then it receives no flag
            serving = self.sidecar.sidecar.serving
            await eventually(serving.is_set, describe="the sidecar is connected")
        answer: dict[str, Any] = await self.account.create(name, **{"allow_rollup_hdrs": True, **config})
        self.created.append(name)
        if self.sidecar is not None:
            await self.sidecar.ready(name)
        return answer

    async def delete_streams(self) -> None:
        """Delete the streams of this side that still exist."""
        for name in self.created:
            with suppress(RefusedError):
                await self.account.api.call(f"STREAM.DELETE.{name}")

    async def say(
        self, subject: str, headers: Mapping[str, str] | str | bytes = "", body: bytes = b""
    ) -> dict[str, Any]:
        """Publish and return the server's whole answer, an error too; a block is sent as it is."""
        block = headers if isinstance(headers, bytes) else block_to_send(headers) if headers else b""
        reply = await self.account.connection.request(subject, body, block, PATIENCE_SECONDS)
        answer: dict[str, Any] = json.loads(reply.body)
        return answer


@asynccontextmanager
async def sides_of(
    share: ShareServer, versions: tuple[str, ...] = COMPARED_VERSIONS
) -> AsyncIterator[list[ComparedSide]]:
    """Run the sides for the length of a `with` block, the reference first."""
    async with AsyncExitStack() as stack:
        yield [await _side(stack, await share(version)) for version in versions]


async def _side(stack: AsyncExitStack, server: EmbeddedServer) -> ComparedSide:
    account = await stack.enter_async_context(account_on(server.url))
    side = ComparedSide(server.version, server, account)
    stack.push_async_callback(side.delete_streams)
    if server.version in EMULATED_VERSIONS:
        side.sidecar = await stack.enter_async_context(sidecar_on(server.url))
    return side


async def on_each(sides: list[ComparedSide], act: Callable[[ComparedSide], Awaitable[T]]) -> dict[str, T]:
    """Do the same on every side at once, and return what came of it by version."""
    results = await asyncio.gather(*(act(side) for side in sides))
    return {side.version: result for side, result in zip(sides, results, strict=True)}


def fresh_name() -> str:
    """Return a name for a stream that no other test uses; the same on every side, so that bytes can be compared."""
    return f"D{secrets.token_hex(4)}"
