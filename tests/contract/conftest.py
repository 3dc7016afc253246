"""Open one side of the contract: the stream in memory, or a server of the oldest or of the newest version."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from tests.conftest import SharedServer
from tests.contract.sides import PortSide, memory_side, server_side
from tests.harness.servers import V2_10, V2_15

OpenSide = Callable[..., AbstractAsyncContextManager[PortSide]]


SERVERS = [pytest.param(version, marks=pytest.mark.server) for version in (V2_10, V2_15)]


@pytest.fixture(params=["memory", *SERVERS])
async def open_side(request: pytest.FixtureRequest, stream_name: str) -> OpenSide:
    """Open one side with `async with open_side(allow_msg_ttl=True) as side`; the keywords are the stream's settings."""
    if request.param == "memory":
        return lambda **config: memory_side(stream_name, config)
    share: SharedServer = request.getfixturevalue("shared_server")
    server = await share(request.param)

    def open_on_server(**config: Any) -> AbstractAsyncContextManager[PortSide]:
        return server_side(server.url, stream_name, config)

    return open_on_server


@pytest.fixture
async def side(open_side: OpenSide) -> AsyncIterator[PortSide]:
    """Open one side whose stream has the usual settings."""
    async with open_side() as side:
        yield side
