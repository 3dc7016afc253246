"""Fixtures of the end-to-end tests: a flagged stream on each server that we fire for, and a sidecar that serves it."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.flagged import Served
from tests.harness.log_lines import capture_logs
from tests.harness.waiting import eventually
from tests.harness.watched import Watched


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
        await running.healthy()  # what is read before it is taken over is not reported
        yield Served(account, stream_name, running, emulated_server.url, emulated_server.version)
        await account.api.call(f"STREAM.DELETE.{stream_name}")
        # What it has in flight is never answered then, which would not be a clean end.
        await eventually(lambda: stream_name not in running.sidecar.served)


@pytest.fixture
def said() -> Iterator[list[dict[str, Any]]]:
    """Collect what is logged."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
async def swept(account: Account, stream_name: str) -> AsyncIterator[str]:
    """Name a stream, and delete all streams whose names begin so when the test is over."""
    yield stream_name
    names = [info["config"]["name"] async for info in account.api.streams()]
    for name in names:
        if name.startswith(stream_name):
            await account.api.call(f"STREAM.DELETE.{name}")


@pytest.fixture
async def watched(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]]
) -> AsyncIterator[Watched]:
    """Run a sidecar on a server of each version that we fire for; the stream is for the test to make."""
    async with sidecar_on(emulated_server.url) as running:
        yield Watched(account, swept, running, emulated_server.url, emulated_server.version, said)
