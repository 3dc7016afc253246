"""A command as people use it at a terminal: Ctrl-C ends it quietly."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.harness.processes import sidecar

pytestmark = [pytest.mark.server, pytest.mark.deep]

INTERRUPTED = 130
WAIT_SECONDS = 45.0


async def test_ctrl_c_ends_a_command_that_waits_for_a_server(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        with sidecar("ls", "ORDERS", "--json", "--server", url, "--timeout", "300s", folder=tmp_path) as process:
            async with asyncio.timeout(WAIT_SECONDS):
                connection, _address = await asyncio.get_running_loop().sock_accept(silent)
            with connection:
                assert await process.interrupt() == INTERRUPTED
        assert (process.stdout, process.stderr) == ("", "")
