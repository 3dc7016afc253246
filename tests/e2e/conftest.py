"""Fixtures of the end-to-end tests: a flagged stream on each server that we fire for, and a sidecar that serves it."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass

import pytest

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, Running, account_on, sidecar_on


@dataclass
class Served:
    """A flagged stream that a sidecar serves."""

    account: Account
    sidecar: Running
    name: str
    version: str

    def subject(self, rest: str) -> str:
        """Return a subject of the stream."""
        return f"{self.name}.{rest}"

    async def publish(self, rest: str, headers: Mapping[str, str] | str = "", body: bytes = b"body") -> int:
        """Store a message on a subject of the stream."""
        return await self.account.publish(self.subject(rest), headers, body)

    async def schedule(
        self,
        rest: str,
        pattern: str,
        body: bytes = b"body",
        target: str = "out",
        more: Mapping[str, str] | None = None,
    ) -> int:
        """Store a schedule; further headers are named without `Nats-Schedule-`."""
        headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": self.subject(target)}
        for name, text in (more or {}).items():
            headers[f"Nats-Schedule-{name}"] = text
        return await self.publish(rest, headers, body)

    async def wait_for(self, rest: str, count: int = 1) -> list[StoredMessage]:
        """Wait for messages on a subject of the stream."""
        return await self.account.wait_for(self.name, self.subject(rest), count)

    async def messages(self, rest: str) -> list[StoredMessage]:
        """Return what is stored on a subject of the stream."""
        return await self.account.messages(self.name, self.subject(rest))


@pytest.fixture
async def account(emulated_server: EmbeddedServer) -> AsyncIterator[Account]:
    """Connect to a server of each version that we fire for."""
    async with account_on(emulated_server.url) as connected:
        yield connected


@pytest.fixture
async def served(emulated_server: EmbeddedServer, account: Account, stream_name: str) -> AsyncIterator[Served]:
    """Serve a flagged stream on a server of each version that we fire for."""
    async with sidecar_on(emulated_server.url) as running:
        await account.create(stream_name, allow_msg_ttl=True)
        await running.ready(stream_name)
        yield Served(account, running, stream_name, emulated_server.version)
        await account.api.call(f"STREAM.DELETE.{stream_name}")
