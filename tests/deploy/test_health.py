"""The health check of the containers, run as an engine runs it: a process with an exit code, inside the container.

A container is stood in for by namespaces of the kernel where the machine lets us make them; the rest names the process.
"""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.deploy.files import DEPLOY, EVERY_ADDRESS
from tests.harness.account import account_on
from tests.harness.flagged import FLAGGED
from tests.harness.processes import ChildProcess, clean_environment, sidecar, sidecar_command
from tests.harness.servers import V2_11
from tests.observe.scrapes import address_of, answers, page, shows

pytestmark = pytest.mark.server

CHECK_SECONDS = 20.0
"""Longest run of one check; its own limit is three seconds."""
CHECK = [sys.executable, str(DEPLOY / "healthcheck.py")]
NOWHERE = ("run", "-s", "nats://127.0.0.1:1")

SERVICE_LINKS = {
    "NATS_SCHEDULER_METRICS_PORT": "tcp://10.96.0.7:9464",
    "NATS_SCHEDULER_METRICS_PORT_9464_TCP": "tcp://10.96.0.7:9464",
    "NATS_SCHEDULER_METRICS_PORT_9464_TCP_ADDR": "10.96.0.7",
    "NATS_SCHEDULER_METRICS_SERVICE_HOST": "10.96.0.7",
    "NATS_SCHEDULER_METRICS_SERVICE_PORT": "9464",
    "NATS_SCHEDULER_PORT": "tcp://10.96.0.8:80",
    "NATS_SCHEDULER_SERVICE_PORT_HTTP": "80",
}
"""The variables that Kubernetes sets beside Services called nats-scheduler-metrics and nats-scheduler."""


async def check(folder: Path, *arguments: str, env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run the check, and return its exit code and what it says."""
    environment = {**clean_environment(folder), **(env or {})}
    process = await asyncio.create_subprocess_exec(
        *CHECK, *arguments, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    async with asyncio.timeout(CHECK_SECONDS):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


@pytest.mark.parametrize("source", ["flag", "any free port", "variable", "file", "IPv6", "every address", "no pages"])
async def test_health_is_found_wherever_the_settings_come_from_and_whatever_is_injected(
    tmp_path: Path, source: str
) -> None:
    settings = tmp_path / "settings.json"
    settings.write_text(json.dumps({"metrics_port": 0}))
    flags = {
        "flag": ("--metrics-port", "0", "--metrics-address", "127.0.0.2"),
        "any free port": ("--metrics-port", "0"),
        "file": ("--settings", str(settings)),
        "IPv6": ("--metrics-port", "0", "--metrics-address", "::1"),
        "every address": ("--metrics-port", "0", "--metrics-address", EVERY_ADDRESS),
    }.get(source, ())
    env = {**SERVICE_LINKS, "NATS_SCHEDULER_METRICS_PORT": "0"} if source == "variable" else SERVICE_LINKS
    with sidecar(*NOWHERE, *flags, folder=tmp_path, env=env) as process:
        await process.wait_for_line("connect_failed")
        assert ("metrics_served" in process.stderr) is (source != "no pages")
        assert await check(tmp_path, str(process.pid), env=env) == (0, "")
        process.kill()
        assert (await check(tmp_path, str(process.pid), env=env))[0] == 1


async def test_the_status_page_is_healthy_while_it_answers(tmp_path: Path) -> None:
    with sidecar("web", "-s", "nats://127.0.0.1:1", "--web-port", "0", folder=tmp_path) as process:
        await process.wait_for_line("web_served")
        assert await check(tmp_path, str(process.pid)) == (0, "")
        process.pause()
        assert (await check(tmp_path, str(process.pid)))[0] == 1


async def test_a_sidecar_that_stands_still_is_not_healthy_with_pages_and_without(tmp_path: Path) -> None:
    with sidecar(*NOWHERE, "--metrics-port", "0", folder=tmp_path) as process:
        await process.wait_for_line("connect_failed")
        process.pause()
        code, said = await check(tmp_path, str(process.pid))
        assert (code, said.startswith("no answer from 127.0.0.1 port ")) == (1, True)
    with sidecar(*NOWHERE, folder=tmp_path) as process:
        await process.wait_for_line("connect_failed")
        process.pause()
        assert await check(tmp_path, str(process.pid)) == (1, f"process {process.pid} is stopped\n")
        process.resume()
        assert await check(tmp_path, str(process.pid)) == (0, "")


async def test_a_sidecar_that_drains_is_healthy_and_not_ready(start_server: StartServer, tmp_path: Path) -> None:
    """The server is paused, so the fire that is in flight is not acknowledged."""
    server = await start_server(V2_11)
    with sidecar("run", "-s", server.url, "--metrics-port", "0", folder=tmp_path) as process:
        url = await address_of(process)
        async with account_on(server.url) as account:
            await account.create("S", metadata=FLAGGED)
            await process.wait_for_line("stream_ready")
            # One is due soon after any moment: what follows has to be over before the server is found to be silent.
            for number in range(5, 50):
                at = format_rfc3339(time.time_ns() + number * 300 * MILLISECOND)
                await account.publish(f"S.{number}", {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "S.out"})
            await account.wait_for("S", "S.out")
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await shows(url, "fires_in_flight", 1, stream="S")
            process.ask_to_end()
            await answers(url, 503)
            assert (await page(f"{url}/healthz"))[0] == 200
            assert await check(tmp_path, str(process.pid)) == (0, "")
            assert await process.wait_for_exit() == 1
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert re.search(r"stopped +clean=False", process.stderr)


async def test_the_answer_of_the_page_decides(tmp_path: Path) -> None:
    """Somebody else's listener stands in for a sidecar whose event loop does not run."""
    code = (
        "import http.server as h\n"
        "class Answer(h.BaseHTTPRequestHandler):\n"
        "    def do_GET(self): self.send_error(503, 'stands still')\n"
        "server = h.HTTPServer(('127.0.0.1', 0), Answer)\n"
        "print('listens', flush=True)\n"
        "server.serve_forever()\n"
    )
    with ChildProcess([sys.executable, "-c", code], tmp_path, name="listener") as process:
        await process.wait_for_line("listens")
        status, said = await check(tmp_path, str(process.pid))
    assert status == 1
    assert re.match(r"127\.0\.0\.1 port \d+ answered 503: ", said)


def can_make_namespaces() -> bool:
    """Return whether this machine lets us stand in for a container."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    return subprocess.run(["unshare", "-rpf", "--mount-proc", "true"], capture_output=True).returncode == 0


def contained(*command: str) -> list[str]:
    """Return a command that runs another one as the first process of its own view of the machine."""
    return [shutil.which("unshare") or "unshare", "-rpf", "--mount-proc", "--kill-child", *command]


def child_of(pid: int) -> int | None:
    """Return the process that `unshare` started."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(children[0]) if children else None


@pytest.mark.skipif(not can_make_namespaces(), reason="no namespaces without privileges here")
async def test_in_a_container_the_check_finds_the_sidecar_by_itself(tmp_path: Path) -> None:
    inside = contained(*sidecar_command(), *NOWHERE, "--metrics-port", "0")
    env = {**clean_environment(tmp_path), **SERVICE_LINKS}
    with ChildProcess(inside, tmp_path, name="container", env=env) as container:
        await container.wait_for_line("connect_failed")
        sidecar_pid = child_of(container.pid)
        assert sidecar_pid is not None

        def checked() -> subprocess.CompletedProcess[str]:
            enter = ["nsenter", "-t", str(sidecar_pid), "-U", "-m", "-p", "--preserve-credentials"]
            return subprocess.run(
                [*enter, *CHECK], env=env, capture_output=True, text=True, timeout=CHECK_SECONDS, check=False
            )

        answer = await asyncio.to_thread(checked)
        assert (answer.returncode, answer.stderr) == (0, "")
        container.pause()
        os.kill(sidecar_pid, signal.SIGSTOP)
        answer = await asyncio.to_thread(checked)
        assert (answer.returncode, answer.stderr.startswith("no answer from 127.0.0.1 port ")) == (1, True)


@pytest.mark.skipif(not can_make_namespaces(), reason="no namespaces without privileges here")
async def test_in_a_container_without_a_sidecar_the_check_says_so(tmp_path: Path) -> None:
    with ChildProcess(contained(*CHECK), tmp_path, name="container") as container:
        assert await container.wait_for_exit() == 1
    assert container.stderr == "no process of nats-scheduler runs here\n"
