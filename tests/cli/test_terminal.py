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
STREAM_FILE = '{"name": "ORDERS", "subjects": ["orders.>"], "allow_msg_schedules": true}'

WAITING = [("ls", "ORDERS", "--json"), ("stream", "add", "orders.json"), ("graduate", "ORDERS", "--dry-run")]
"""Commands that ask a server, and wait for its answer."""


@pytest.mark.parametrize("arguments", WAITING, ids=" ".join)
async def test_ctrl_c_ends_a_command_that_waits_for_a_server(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    file = tmp_path / "orders.json"
    file.write_text(STREAM_FILE)
    words = [str(file) if word == "orders.json" else word for word in arguments]
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        with sidecar(*words, "--server", url, "--timeout", "300s", folder=tmp_path) as process:
            async with asyncio.timeout(WAIT_SECONDS):
                connection, _address = await asyncio.get_running_loop().sock_accept(silent)
            with connection:
                assert await process.interrupt() == INTERRUPTED
        assert (process.stdout, process.stderr) == ("", "")


async def test_the_line_of_the_prompt_is_not_that_of_ctrl_c(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        async with at_a_terminal("ls", "--server", url, "--timeout", "300s", folder=tmp_path) as terminal:
            async with asyncio.timeout(WAIT_SECONDS):
                connection, _address = await asyncio.get_running_loop().sock_accept(silent)
            with connection:
                terminal.press_ctrl_c()
                assert await terminal.end() == INTERRUPTED
            await terminal.wait_for("^C\r\n")
            assert terminal.text == "^C\r\n"


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)])
async def test_no_color_is_obeyed_by_the_log(tmp_path: Path, env: dict[str, str], coloured: bool) -> None:
    async with at_a_terminal("run", "-s", "nats://127.0.0.1:1", folder=tmp_path, env=env) as terminal:
        await terminal.wait_for("connect_failed")
        terminal.press_ctrl_c()
        assert await terminal.end() == 0
        await terminal.wait_for("clean=" if not coloured else "clean")
        assert ("\x1b[" in terminal.text) == coloured
