"""The program, preloaded once for all pages that one process of the tests follows."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.site.preloaded import preloaded


@pytest.fixture(scope="session")
def programs() -> Iterator[Path]:
    """Give the folder with a `nats-scheduler` that starts at once."""
    with asyncio.Runner() as runner:
        context = preloaded()
        yield runner.run(context.__aenter__())
        runner.run(context.__aexit__(None, None, None))
