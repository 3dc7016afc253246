"""The health check of the containers, run as an engine runs it: a process with an exit code, inside the container.

A container is stood in for by namespaces of the kernel where the machine lets us make them; the rest names the process.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY, EVERY_ADDRESS
from tests.harness.processes import clean_environment, sidecar

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
