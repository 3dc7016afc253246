"""Fixtures of the end-to-end tests: a flagged stream on each server that we fire for, and a sidecar that serves it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest

from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, Running, account_on, sidecar_on
from tests.harness.flagged import FlaggedStream


@dataclass
class Served(FlaggedStream):
    """A flagged stream that a sidecar serves."""

    sidecar: Running
    version: str


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
        yield Served(account, stream_name, running, emulated_server.version)
        await account.api.call(f"STREAM.DELETE.{stream_name}")
