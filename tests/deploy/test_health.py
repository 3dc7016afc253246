"""The health check of the containers, run as an engine runs it: a process with an exit code."""

import http.server
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from nats_scheduler.runtime.embedded import free_port
from tests.conftest import SharedServer
from tests.deploy.files import DEPLOY
from tests.harness.processes import clean_environment, sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

CHECK_SECONDS = 10.0
"""Longest run of one check; its own limit is three seconds."""
START_SECONDS = 15.0
"""Longest wait for a sidecar to be healthy."""


def check(port: int, home: Path) -> subprocess.CompletedProcess[str]:
    """Run the check against a metrics port of this machine."""
    return subprocess.run(
        [sys.executable, str(DEPLOY / "healthcheck.py")],
        env={**clean_environment(home), "NATS_SCHEDULER_METRICS_PORT": str(port)},
        capture_output=True,
        text=True,
        timeout=CHECK_SECONDS,
        check=False,
    )


@contextmanager
def answering(status: int) -> Iterator[int]:
    """Serve one status on every path of a port, and give the port."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Say nothing: stderr is the tests'."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


@pytest.mark.parametrize(("status", "exit_code"), [(200, 0), (503, 1)])
def test_the_answer_of_the_metrics_port_decides(status: int, exit_code: int, tmp_path: Path) -> None:
    with answering(status) as port:
        assert check(port, tmp_path).returncode == exit_code


def test_no_answer_is_unhealthy_and_says_where_it_asked(tmp_path: Path) -> None:
    port = free_port()
    answer = check(port, tmp_path)
    assert answer.returncode == 1
    assert answer.stderr.startswith(f"no answer from the metrics port {port}: ")


async def test_a_running_sidecar_is_healthy_until_it_ends(shared_server: SharedServer, tmp_path: Path) -> None:
    server = await shared_server(V2_11)
    port = free_port()
    with sidecar("run", "-s", server.url, "--metrics-port", str(port), folder=tmp_path) as process:
        await eventually(
            lambda: check(port, tmp_path).returncode == 0,
            within_seconds=START_SECONDS,
            describe=lambda: f"health of the sidecar\n{process.stdout}\n{process.stderr}",
        )
        process.kill()
        assert check(port, tmp_path).returncode == 1
