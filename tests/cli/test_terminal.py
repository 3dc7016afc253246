"""Commands as people use them at a terminal: Ctrl-C ends each of them quietly, and `NO_COLOR` is obeyed."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.cli.prompt import at_a_terminal
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


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_no_color_is_obeyed_by_the_log(tmp_path: Path, env: dict[str, str], coloured: bool) -> None:
    async with at_a_terminal("run", "-s", "nats://127.0.0.1:1", folder=tmp_path, env=env) as terminal:
        await terminal.wait_for("connect_failed")
        terminal.press_ctrl_c()
        assert await terminal.end() == 0
        await terminal.wait_for("clean=" if not coloured else "clean")
        assert ("\x1b[" in terminal.text) == coloured
