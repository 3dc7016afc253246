"""`run` and `dev` as processes: how they end, with which exit code, what they serve and what they import."""

import asyncio
import json
import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.runtime.embedded import tied_to_this_process
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_with
from tests.harness.burst import store_herd
from tests.harness.flagged import FLAGGED
from tests.harness.log_lines import capture_logs
from tests.harness.processes import ChildProcess, clean_environment, sidecar, sidecar_command
from tests.harness.servers import V2_11, server_binary
from tests.harness.waiting import PATIENCE_SECONDS, eventually

pytestmark = pytest.mark.server

NOWHERE = "nats://127.0.0.1:1"
BURST = 500
FIRES, FIRES_APART_SECONDS = 100, 0.02

NEEDLESS = (
    *("rich", "pygments", "yaml", "nkeys", "nacl", "jinja2", "starlette", "uvicorn"),
    *("jsonschema", "hypothesis", "nats_scheduler.client", "nats_scheduler.web", "nats_scheduler.testing"),
)
"""Libraries and rooms that other commands use, or a sidecar whose user has a key; 8 MB in all."""

IMPORTING = """
import json, sys
from nats_scheduler.cli.main import main
main({arguments!r}, standalone_mode=False)
print(json.dumps(sorted(sys.modules)))
"""


@pytest.fixture(autouse=True)
def _hang_up() -> Iterator[None]:
    """Let a closed terminal end the processes, also if the tests are run by `nohup`: what is ignored is inherited."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


async def test_a_metrics_port_in_use_is_one_error_and_exit_code_2(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        for command in (("run", "-s", NOWHERE), ("dev", "--version", str(server_binary(V2_11)))):
            with sidecar(*command, "--metrics-port", str(taken), folder=tmp_path) as process:
                assert await process.wait_for_exit() == 2
            complaints = [line for line in process.stderr.splitlines() if " [info " not in line]
            assert complaints == [
                "nats-scheduler: error: cannot listen on metrics_address 127.0.0.1 "
                f"with metrics_port {taken}: Address already in use; "
                "expected an address or host name of this machine, and a port that no other program uses"
            ]


async def hang_up(process: ChildProcess) -> int:
    os.kill(process.pid, signal.SIGHUP)
    return await process.wait_for_exit()


async def test_a_closed_terminal_drains_as_sigterm_does(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", storage="file", metadata=FLAGGED)
        with sidecar("run", "-s", server.url, folder=tmp_path) as process:
            await process.wait_for_line("owner_changed")
            await store_herd(account, "S", CLOCK.now() + 2 * SECOND, BURST)
            await account.wait_for("S", "S.out")
            assert await hang_up(process) == 0
        assert re.search(r"stopped +clean=True", process.stderr)


@pytest.mark.deep
async def test_a_fire_that_is_left_in_flight_is_exit_code_1(start_server: StartServer, tmp_path: Path) -> None:
    """The server is paused while fires come due, and the sidecar gets SIGTERM before it gives up the connection."""
    server = await start_server(V2_11)
    assert server.pid is not None
    with sidecar("run", "--server", server.url, "--drain-timeout", "100ms", folder=tmp_path) as process:
        await process.wait_for_line("instances_alive")
        async with account_on(server.url) as account:
            await account.create("S")
            await process.wait_for_line("owner_changed")
            for number in range(FIRES):
                at = in_seconds(1.5 + number * FIRES_APART_SECONDS)
                await account.publish(f"S.s.{number}", {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "S.out"})
            await account.wait_for("S", "S.out")
            os.kill(server.pid, signal.SIGSTOP)
            stopped_at = CLOCK.now()
            try:
                await eventually(lambda: CLOCK.now() > stopped_at + SECOND // 2)
                assert await process.terminate() == 1
            finally:
                os.kill(server.pid, signal.SIGCONT)


async def test_it_goes_on_and_ends_well_where_nobody_reads_its_log(start_server: StartServer, tmp_path: Path) -> None:
    """`run 2>&1 | head`: what is due fires, and it drains on a signal."""
    server = await start_server(V2_11)
    reader, writer = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *tied_to_this_process([*sidecar_command(), "run", "-s", server.url]),
        env=clean_environment(tmp_path),
        stderr=writer,
        start_new_session=True,
    )
    try:
        os.close(writer)
        await asyncio.to_thread(os.read, reader, 1)
        os.close(reader)
        async with account_on(server.url) as account:
            await account.create("S", metadata=FLAGGED)
            headers = {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.out"}
            await account.publish("S.s", headers)
            await account.wait_for("S", "S.out")
        process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_a_sidecar_imports_nothing_that_it_does_not_need(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    program = IMPORTING.format(arguments=["run", "--no-context", "-s", server.url])
    async with account_on(server.url) as account:
        await account.create("S", metadata=FLAGGED)
        with ChildProcess([sys.executable, "-c", program], tmp_path) as process:
            await process.wait_for_line("stream_ready")
            await account.publish("S.s", {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.out"})
            await account.wait_for("S", "S.out")
            assert await process.terminate() == 0
            imported = json.loads(process.stdout)
    assert {"nats_scheduler.runtime.sidecar", "nats"} <= set(imported)
    assert [name for name in imported if name.startswith(NEEDLESS)] == []


async def test_an_error_of_our_own_does_not_end_it(start_server: StartServer) -> None:
    """It may be raised in the preparation, while it serves, or in a task that runs concurrently."""
    server = await start_server(V2_11)
    mistakes = ["registry_bucket", "portable_streams", "failures_max_age"]

    class MistakenSettings(SidecarSettings):
        """Settings that raise once when they are read: at the preparation, to serve, and in a task."""

        def __getattribute__(self, name: str) -> Any:
            if name in mistakes:
                mistakes.remove(name)
                raise LookupError(name)
            return super().__getattribute__(name)

    settings = MistakenSettings(connection=ConnectionSettings(servers=(server.url,)))
    with capture_logs() as said:
        async with sidecar_with(settings) as running, account_on(server.url) as account:
            await account.create("S")
            await running.ready("S")
            headers = {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.out"}
            await account.publish("S.s", headers)
            await account.wait_for("S", "S.out")
            assert running.metrics.registry.get_sample_value("nats_scheduler_connected") == 1
    logged = [line["event"] for line in said]
    assert (logged.count("sidecar_failed"), logged.count("task_failed")) == (2, 1)
