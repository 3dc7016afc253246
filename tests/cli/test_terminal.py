"""Commands as people use them at a terminal: Ctrl-C ends each of them quietly, and `NO_COLOR` is obeyed."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import socket
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from nats_scheduler.runtime.embedded import tied_to_this_process
from tests.harness.processes import clean_environment, sidecar, sidecar_command
from tests.harness.servers import V2_11, server_binary
from tests.harness.terminal import Terminal, on_terminal
from tests.harness.waiting import eventually

pytestmark = [pytest.mark.server, pytest.mark.deep]

INTERRUPTED = 130
WAIT_SECONDS = 45.0
PIPE_BYTES = 4_096
"""The smallest pipe of Linux."""
STREAM_FILE = '{"name": "ORDERS", "subjects": ["orders.>"], "allow_msg_schedules": true}'

WAITING = [("ls", "ORDERS", "--json"), ("stream", "add", "orders.json"), ("graduate", "ORDERS", "--dry-run")]
"""Commands that ask a server, and wait for its answer."""

PRINTING = [("next", "@hourly", "--count", "10000"), ("settings", "schema")]
"""Commands without a server; all that can make them wait is a reader that does not read."""


@asynccontextmanager
async def closing(terminal: Terminal) -> AsyncIterator[Terminal]:
    try:
        yield terminal
    finally:
        await terminal.close()


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


@pytest.mark.parametrize("arguments", PRINTING, ids=" ".join)
async def test_ctrl_c_ends_a_command_that_prints(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    errors = tmp_path / "errors"
    with errors.open("wb") as file:
        process = await asyncio.create_subprocess_exec(
            *tied_to_this_process([*sidecar_command(), *arguments]),
            env=clean_environment(tmp_path),
            stdout=writer,
            stderr=file,
        )
    try:
        os.close(writer)
        await eventually(lambda: unread_bytes(reader) > 0, within_seconds=WAIT_SECONDS)
        process.send_signal(signal.SIGINT)
        while os.read(reader, 65_536):  # what Python still holds is written before the process ends
            pass
        async with asyncio.timeout(WAIT_SECONDS):
            assert await process.wait() == INTERRUPTED
        assert errors.read_text() == ""
    finally:
        os.close(reader)
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def unread_bytes(reader: int) -> int:
    """Return how much waits in a pipe."""
    count: int = struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4))[0]
    return count


async def test_the_line_of_the_prompt_is_not_that_of_ctrl_c(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        url = f"nats://127.0.0.1:{silent.getsockname()[1]}"
        terminal = await on_terminal("ls", "--server", url, "--timeout", "300s", folder=tmp_path)
        async with closing(terminal):
            async with asyncio.timeout(WAIT_SECONDS):
                connection, _address = await asyncio.get_running_loop().sock_accept(silent)
            with connection:
                terminal.press_ctrl_c()
                assert await terminal.end() == INTERRUPTED
            await terminal.wait_for("^C\r\n")
            assert terminal.text == "^C\r\n"


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": ""}, True), ({"NO_COLOR": "1"}, False)])
async def test_no_color_is_obeyed_by_the_log(tmp_path: Path, env: dict[str, str], coloured: bool) -> None:
    async with closing(await on_terminal("run", "-s", "nats://127.0.0.1:1", folder=tmp_path, env=env)) as terminal:
        await terminal.wait_for("connect_failed")
        terminal.press_ctrl_c()
        assert await terminal.end() == 0
        await terminal.wait_for("clean=" if not coloured else "clean")
        assert ("\x1b[" in terminal.text) == coloured


@pytest.mark.parametrize(("env", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False)])
async def test_no_color_is_obeyed_by_what_is_printed(tmp_path: Path, env: dict[str, str], coloured: bool) -> None:
    words = ("dev", "--server-path", str(server_binary(V2_11)), "--for", "1s")
    async with closing(await on_terminal(*words, folder=tmp_path, env=env)) as terminal:
        assert await terminal.end() == 0
        await terminal.wait_for("lateness")
        assert ("\x1b[" in terminal.text) == coloured, terminal.text
