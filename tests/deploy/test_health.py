"""The health check of the containers, run as an engine runs it: a process with an exit code, beside the sidecar."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.files import DEPLOY
from tests.harness.processes import ChildProcess, clean_environment, sidecar
from tests.harness.waiting import eventually

pytestmark = pytest.mark.server

CHECK_SECONDS = 120.0
"""Longest run of one check; its own limit is three seconds."""
NOWHERE = ("--server", "nats://127.0.0.1:1")
SERVICE_LINKS = {
    "NATS_SCHEDULER_METRICS_PORT": "tcp://10.96.0.7:9464",
    "NATS_SCHEDULER_METRICS_SERVICE_PORT": "9464",
    "NATS_SCHEDULER_PORT": "tcp://10.96.0.8:80",
}
"""Variables that Kubernetes sets beside Services called nats-scheduler-metrics and nats-scheduler."""
SOURCES = {
    "flag": ["--metrics-port", "0", "--metrics-address", "127.0.0.2"],
    "file": ["--settings", "settings.json"],
    "variable": [],
    "no pages": [],
}


async def check(process: ChildProcess, folder: Path) -> tuple[int | None, str]:
    """Run the check, and return its exit code and what it says."""
    command = [sys.executable, str(DEPLOY / "healthcheck.py"), str(process.pid)]
    env = {**clean_environment(folder), **SERVICE_LINKS}
    checking = await asyncio.create_subprocess_exec(*command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    async with asyncio.timeout(CHECK_SECONDS):
        said, _ = await checking.communicate()
    return checking.returncode, said.decode()


async def becomes_healthy(process: ChildProcess, folder: Path) -> None:
    """Wait until the check finds nothing, as an engine does that repeats it."""

    async def is_healthy() -> bool:
        return await check(process, folder) == (0, "")

    await eventually(is_healthy)


@pytest.mark.parametrize("source", SOURCES)
async def test_the_health_check_finds_the_sidecar_by_itself(tmp_path: Path, source: str) -> None:
    """Wherever its settings come from, and whatever variables are injected."""
    (tmp_path / "settings.json").write_text(json.dumps({"metrics_port": 0, "metrics_address": "::1"}))
    flags = [word.replace("settings.json", str(tmp_path / "settings.json")) for word in SOURCES[source]]
    env = {**SERVICE_LINKS, **({"NATS_SCHEDULER_METRICS_PORT": "0"} if source == "variable" else {})}
    with sidecar("run", *NOWHERE, *flags, folder=tmp_path, env=env) as process:
        await process.wait_for_line("connect_failed")
        assert ("metrics_served" in process.stderr) is (source != "no pages")
        await becomes_healthy(process, tmp_path)
        process.pause()
        stopped = f"process {process.pid} is stopped\n" if source == "no pages" else "no answer from "
        code, said = await check(process, tmp_path)
        assert (code, said.startswith(stopped)) == (1, True), said
        process.resume()
        await becomes_healthy(process, tmp_path)
        process.kill()
        assert (await check(process, tmp_path))[0] == 1


async def test_the_status_page_is_healthy_while_it_answers(tmp_path: Path) -> None:
    with sidecar("web", *NOWHERE, "--web-port", "0", folder=tmp_path) as process:
        await process.wait_for_line("web_served")
        await becomes_healthy(process, tmp_path)
        process.pause()
        assert (await check(process, tmp_path))[0] == 1
