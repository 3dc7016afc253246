"""`run` and `dev` as processes: how they end, with which exit code, and what they serve meanwhile."""

import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SharedServer, StartServer
from tests.harness.account import CLOCK, account_on
from tests.harness.burst import store_herd
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import V2_11, server_binary
from tests.observe.pages import page

NOWHERE = "nats://127.0.0.1:1"
BURST = 2_000


@pytest.fixture
def taken() -> Iterator[int]:
    """Give a port of loopback that somebody else listens on."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        yield other.getsockname()[1]


def commands() -> list[tuple[str, ...]]:
    return [("run", "-s", NOWHERE), ("dev", "--server-path", str(server_binary(V2_11)))]


@pytest.mark.parametrize("which", [0, 1], ids=["run", "dev"])
async def test_a_metrics_port_in_use_is_one_error_and_exit_code_2(tmp_path: Path, taken: int, which: int) -> None:
    with sidecar(*commands()[which], "--metrics-port", str(taken), folder=tmp_path) as process:
        assert await process.wait_for_exit() == 2
    complaints = [line for line in process.stderr.splitlines() if " [info " not in line]
    assert complaints == [
        "nats-scheduler: error: cannot listen on metrics_address 127.0.0.1 "
        f"with metrics_port {taken}: Address already in use"
    ]


async def test_the_metrics_are_where_the_settings_say_and_the_log_names_the_place(tmp_path: Path) -> None:
    flags = ("-s", NOWHERE, "--metrics-port", "0", "--metrics-address", "127.0.0.2")
    with sidecar("run", *flags, folder=tmp_path) as process:
        line = await process.wait_for_line("metrics_served")
        found = re.search(r"http://127\.0\.0\.2:\d+/metrics", line)
        assert found, line
        assert (await page(found[0]))[0] == 200
        assert (await page(found[0].replace("metrics", "readyz"))) == (503, "there is no connection to a server\n")
        assert await process.terminate() == 0


async def test_a_sidecar_is_ready_once_its_streams_are_read(shared_server: SharedServer, tmp_path: Path) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("READY", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        with sidecar("run", "-s", server.url, "--metrics-port", "0", folder=tmp_path) as process:
            found = re.search(r"http://\S+:\d+", await process.wait_for_line("metrics_served"))
            assert found
            await process.wait_for_line("stream_ready.*READY")
            assert (await page(f"{found[0]}/readyz")) == (200, "ok\n")
            assert await process.terminate() == 0
        await account.api.call("STREAM.DELETE.READY")


async def hang_up(process: ChildProcess) -> int:
    os.kill(process.pid, signal.SIGHUP)
    return await process.wait_for_exit()


async def test_a_closed_terminal_drains_as_sigterm_does(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", storage="file", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        with sidecar("run", "-s", server.url, folder=tmp_path) as process:
            await process.wait_for_line("shards_held")
            await store_herd(account, "S", CLOCK.now() + 2_000_000_000, BURST)
            await account.wait_for("S", "S.out")
            assert await hang_up(process) == 0
        assert re.search(r"stopped +clean=True", process.stderr)


async def test_a_closed_terminal_ends_it_while_no_server_is_there(tmp_path: Path) -> None:
    with sidecar("run", "-s", NOWHERE, folder=tmp_path) as process:
        await process.wait_for_line("not_connected")
        assert await hang_up(process) == 0


async def test_under_nohup_a_closed_terminal_ends_nothing(tmp_path: Path) -> None:
    def starts() -> ChildProcess:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a child inherits what is ignored, as from nohup
        try:
            return sidecar("run", "-s", NOWHERE, folder=tmp_path)
        finally:
            signal.signal(signal.SIGHUP, before)

    with starts() as process:
        await process.wait_for_line("not_connected")
        os.kill(process.pid, signal.SIGHUP)
        assert await process.terminate() == 0
