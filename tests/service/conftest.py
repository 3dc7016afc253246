"""Fixtures of the tests that change schedules by requests: an account whose sidecar takes them."""

from collections.abc import AsyncIterator

import pytest

from tests.conftest import StartServer
from tests.harness.servers import V2_11, V2_15
from tests.service.controlling import Controlled, controlled_on


@pytest.fixture(params=[V2_11, V2_15])
async def controlled(request: pytest.FixtureRequest, start_server: StartServer) -> AsyncIterator[Controlled]:
    """Serve a stream `O` on a server that the sidecar fires for, and on one that fires itself."""
    async with controlled_on(await start_server(request.param), request.param) as controlled:
        yield controlled
