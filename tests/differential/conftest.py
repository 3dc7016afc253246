"""The sides: every compared version, started for one test and with a sidecar where it needs one."""

from collections.abc import AsyncIterator

import pytest

from tests.conftest import SharedServer
from tests.differential.sides import ComparedSide, sides_of


@pytest.fixture
async def sides(shared_server: SharedServer) -> AsyncIterator[list[ComparedSide]]:
    """Connect to every compared version, with a sidecar where there is no native scheduler; the reference first."""
    async with sides_of(shared_server) as started:
        yield started
