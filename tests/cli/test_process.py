"""`run` and `dev` as processes: how they end, with which exit code, and which pages they serve meanwhile."""

import asyncio
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.runtime.account import Account
from nats_scheduler.runtime.embedded import tied_to_this_process
from nats_scheduler.runtime.instances import Instances
from tests.conftest import StartServer
from tests.harness.account import CLOCK, WAIT_SECONDS, account_on, in_seconds, sidecar_on
from tests.harness.burst import store_herd
from tests.harness.log_lines import capture_logs
from tests.harness.permissions import Permission, accounts, permissions_of, shared_account, url_of
from tests.harness.processes import ChildProcess, clean_environment, sidecar, sidecar_command
from tests.harness.servers import V2_11, reload_config, server_binary
from tests.observe.pages import page
from tests.observe.scrapes import address_of, answers, shows

pytestmark = pytest.mark.server

NOWHERE = "nats://127.0.0.1:1"
BURST = 2_000


@pytest.fixture
def taken() -> Iterator[int]:
    """Provide a port of loopback on which another process listens."""
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
        f"with metrics_port {taken}: Address already in use; "
        "expected an address or host name of this machine, and a port that no other program uses"
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


async def test_a_sidecar_is_ready_once_its_streams_are_read(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("READY", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        with sidecar("run", "-s", server.url, "--metrics-port", "0", folder=tmp_path) as process:
            found = re.search(r"http://\S+:\d+", await process.wait_for_line("metrics_served"))
            assert found
            await process.wait_for_line("stream_ready.*READY")
            await answers(found[0], 200, "ok")
            assert await process.terminate() == 0


async def test_a_sidecar_is_not_ready_while_no_instance_fires_for_a_stream(
    start_server: StartServer, tmp_path: Path
) -> None:
    """It may not write leases, so that it gets no shards, although it has read all that is stored."""
    able = permissions_of("2.11")
    unable = [one for one in able if (one.act, one.subject) != ("publish", "$KV.nats_scheduler.>")]
    unable += [Permission("publish", f"$KV.nats_scheduler.{key}", ()) for key in ("instance.*", "stream.*")]
    server = await start_server(V2_11, config=accounts([unable]))
    limited = url_of(server.url, "sidecar-0")
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create("ORDERS", subjects=["orders.>"], metadata={"nats-scheduler.allow_msg_schedules": "true"})
        with sidecar("run", "-s", limited, "--metrics-port", "0", folder=tmp_path) as process:
            url = await address_of(process)
            await process.wait_for_line("stream_ready.*ORDERS")
            await answers(url, 503, "no instance fires for 64 of the 64 shards of stream ORDERS\n")
            reload_config(server, accounts([able]))
            await answers(url, 200, "ok\n")
            assert await process.terminate() == 0


async def test_an_instance_that_holds_no_shard_is_ready_if_another_holds_all(
    start_server: StartServer, tmp_path: Path
) -> None:
    """The user of the second one may not fire, so the first one holds everything once the second one has tried."""
    able = permissions_of("2.11")
    unable = [one for one in able if one.subject != "orders.>"]
    server = await start_server(V2_11, config=shared_account([able, unable]))
    limited = url_of(server.url, "sidecar-1")
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create("ORDERS", subjects=["orders.>"], metadata={"nats-scheduler.allow_msg_schedules": "true"})
        for number in range(100):  # at first each of them may hold half of the shards
            headers = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "orders.out"}
            await account.publish(f"orders.s.{number}", headers)
        flags = ("--metrics-port", "0", "--metrics-address", "127.0.0.1")
        with (
            sidecar("run", "-s", limited, *flags, folder=tmp_path, name="second") as second,
            sidecar("run", "-s", url_of(server.url, "sidecar-0"), *flags, folder=tmp_path, name="first") as first,
        ):
            of_second, of_first = await address_of(second), await address_of(first)
            await shows(of_second, "streams_unable", 1, 1)
            await shows(of_second, "shards_held", 0, 0, stream="ORDERS")
            await shows(of_first, "shards_held", 64, 64, stream="ORDERS")
            for url in (of_first, of_second):
                await answers(url, 200, "ok\n")


async def hang_up(process: ChildProcess) -> int:
    os.kill(process.pid, signal.SIGHUP)
    return await process.wait_for_exit()


async def test_a_closed_terminal_drains_as_sigterm_does(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", storage="file", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        with sidecar("run", "-s", server.url, folder=tmp_path) as process:
            await process.wait_for_line("shards_changed")
            await store_herd(account, "S", CLOCK.now() + 2_000_000_000, BURST)
            await account.wait_for("S", "S.out")
            assert await hang_up(process) == 0
        assert re.search(r"stopped +clean=True", process.stderr)


async def test_a_closed_terminal_ends_it_while_no_server_is_there(tmp_path: Path) -> None:
    with sidecar("run", "-s", NOWHERE, folder=tmp_path) as process:
        await process.wait_for_line("connect_failed")
        assert await hang_up(process) == 0


async def test_under_nohup_a_closed_terminal_ends_nothing(tmp_path: Path) -> None:
    def starts() -> ChildProcess:
        before = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # a child inherits ignored signals, as from nohup
        try:
            return sidecar("run", "-s", NOWHERE, folder=tmp_path)
        finally:
            signal.signal(signal.SIGHUP, before)

    with starts() as process:
        await process.wait_for_line("connect_failed")
        os.kill(process.pid, signal.SIGHUP)
        assert await process.terminate() == 0


@pytest.mark.parametrize("output", ["pipe", "terminal"])
async def test_it_goes_on_and_ends_well_where_nobody_reads_its_log(
    start_server: StartServer, tmp_path: Path, output: str
) -> None:
    """`run 2>&1 | head`, or a terminal window that was closed: what is due fires, and it drains on a signal."""
    server = await start_server(V2_11)
    reader, writer = os.openpty() if output == "terminal" else os.pipe()
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
            await account.create("S", metadata={"nats-scheduler.allow_msg_schedules": "true"})
            headers = {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.out"}
            await account.publish("S.s", headers)
            await account.wait_for("S", "S.out")
        process.send_signal(signal.SIGHUP)
        async with asyncio.timeout(WAIT_SECONDS):
            assert await process.wait() == 0
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_the_log_names_the_server_that_it_connected_to(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    with sidecar("run", "-s", server.url.replace("nats://", "nats://someone:secret@"), folder=tmp_path) as process:
        line = await process.wait_for_line(r" connected ")
        assert re.search(rf"name={re.escape(server.name)} ", line)
        assert f"server={server.url.replace('nats://', 'nats://someone:***@')} " in line
        assert f"version={server.version}" in line
        assert "secret" not in process.stderr


async def test_the_log_says_how_long_an_outage_took(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    with sidecar("run", "-s", server.url, "--log-format", "json", folder=tmp_path) as process:
        await process.wait_for_line('"connected"')
        await server.kill()
        await process.wait_for_line('"connect_failed"')
        await server.restart()
        logged = json.loads(await process.wait_for_line('"connected"', count=2))
        assert logged["attempts"] >= 1
        assert 0 < logged["seconds"] < WAIT_SECONDS


async def test_an_error_of_our_own_does_not_end_it(start_server: StartServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may be raised in the preparation, while it serves, or in a task that runs concurrently."""
    server = await start_server(V2_11)
    parts = [LookupError("while it divides")]
    errors = [LookupError("while it prepares"), ExceptionGroup("while it serves", [LookupError("inside")])]
    prepare, serve = Account.prepare, Account.serve

    async def prepares(account: Account) -> Any:
        if len(errors) == 2:
            raise errors.pop(0)
        return await prepare(account)

    async def serves(account: Account, *more: Any) -> None:
        if errors:
            raise errors.pop(0)
        await serve(account, *more)

    take_part = Instances.take_part

    async def takes_part(instances: Instances) -> None:
        if parts:
            raise parts.pop()
        await take_part(instances)

    monkeypatch.setattr(Account, "prepare", prepares)
    monkeypatch.setattr(Account, "serve", serves)
    monkeypatch.setattr(Instances, "take_part", takes_part)
    with capture_logs() as said:
        async with sidecar_on(server.url) as running, account_on(server.url) as account:
            await account.create("S")
            await running.ready("S")
            headers = {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.out"}
            await account.publish("S.s", headers)
            await account.wait_for("S", "S.out")
            assert running.metrics.registry.get_sample_value("nats_scheduler_connected") == 1
    logged = [line["event"] for line in said]
    assert (logged.count("sidecar_failed"), logged.count("task_failed")) == (2, 1)
