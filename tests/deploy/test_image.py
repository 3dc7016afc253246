"""The image: it is built by the command of the page, serves a stream beside a server, and drains; without rights."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nats_scheduler.runtime.embedded import free_port
from nats_scheduler.version import VERSION
from tests.deploy.files import ROOT, STREAMS
from tests.harness.servers import V2_11, server_binary

pytestmark = pytest.mark.server

SMOKE_SECONDS = 900.0
"""Longest run, the base and the packages fetched over a slow line."""
SMOKE = """set -eu
docker build --quiet --file deploy/Dockerfile --tag "$TAG" . >/dev/null
docker run --rm "$TAG" --version
"$SERVER" --jetstream --store_dir "$WORK/jetstream" --addr 127.0.0.1 --port "$PORT" >"$WORK/server.log" 2>&1 &
trap 'docker rm --force "$NAME" >/dev/null; kill %1' EXIT
docker run --detach --name "$NAME" --network host --read-only --cap-drop ALL --security-opt no-new-privileges \\
  --env "NATS_URL=nats://127.0.0.1:$PORT" --env NATS_SCHEDULER_STREAMS_FOLDER=/streams \\
  --env NATS_SCHEDULER_METRICS_ADDRESS=127.0.0.1 --env "NATS_SCHEDULER_METRICS_PORT_NUMBER=$METRICS" \\
  --volume "$STREAMS:/streams:ro" "$TAG" >/dev/null
inside() { docker exec "$NAME" "$@"; }
until inside nats-scheduler add ORDERS schedules.orders.each Look --every 1s --target orders.due >/dev/null; do :; done
until inside nats-scheduler history ORDERS | grep orders.due | head -1 | wc -l | grep 1; do :; done
inside python /opt/nats-scheduler/healthcheck.py
inside cat /opt/nats-scheduler/sbom.cdx.json | grep -c '"purl": "pkg:pypi/nats-py@'
inside sh -c 'id -u; grep -h "CapEff\\|NoNewPrivs" /proc/1/status'
docker stop --time 20 "$NAME" >/dev/null
docker wait "$NAME"
docker logs "$NAME" 2>&1 | grep '"stopped"' | grep -o '"clean": *true'
"""
SHOWN = f'nats-scheduler {VERSION}|1|1|10001|CapEff:\t0000000000000000|NoNewPrivs:\t1|0|"clean": true'


def test_the_image_is_built_fires_a_schedule_and_drains(tmp_path: Path) -> None:
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode:
        pytest.skip("no Docker engine answers")
    given = {"PORT": str(free_port()), "METRICS": str(free_port()), "SERVER": str(server_binary(V2_11))}
    own = {"TAG": f"nats-scheduler:{VERSION}", "NAME": f"smoke-{os.getpid()}", "WORK": str(tmp_path)}
    answer = subprocess.run(
        ["bash", "-c", SMOKE],
        cwd=ROOT,
        env={**os.environ, **given, **own, "STREAMS": str(STREAMS)},
        capture_output=True,
        text=True,
        timeout=SMOKE_SECONDS,
        check=False,
    )
    assert (answer.returncode, answer.stdout.split("\n")[:-1]) == (0, SHOWN.split("|")), answer.stdout + answer.stderr
