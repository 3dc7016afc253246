"""The image: it is built by the command of the page, serves a stream beside a real server, and drains; without rights.

Where a Docker engine answers, that runs it, with the base that the Dockerfile names. Elsewhere root on Debian gets a
podman in namespaces of its own, on a Debian from the mirror of apt, with the packages of the lock files.
What cannot be had is the reason to skip the test.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from nats_scheduler.runtime.embedded import free_port
from nats_scheduler.version import VERSION
from tests.deploy.files import DEPLOY, ROOT, STREAMS
from tests.harness.base_image import PYTHON, BaseImageError, base_archive
from tests.harness.servers import V2_11, server_binary
from tests.harness.wheelhouse import WheelhouseError, wheelhouse

pytestmark = pytest.mark.server

SMOKE_SECONDS = 900.0
"""Longest run, the base and the packages fetched over a slow line."""
PACKAGES = "runc podman debootstrap iproute2"
LOCKS = tuple(DEPLOY / "image" / name for name in ("build.lock", "requirements.lock"))
BY_PODMAN = """
ip link set lo up
mount -t tmpfs tmpfs /run
cat >/run/containers.conf <<'END'
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
END
printf '[global]\\nno-index = true\\nfind-links = /package-index\\n' >/run/pip.conf
export CONTAINERS_CONF=/run/containers.conf
engine() { podman --root /run/root --runroot /run/run --tmpdir /run/tmp "$@"; }
engine import "$BASE" localhost/base:1 >/dev/null
set -- --pull=never --network=none --format=docker --build-arg=BASE=localhost/base:1
set -- "$@" "--volume=$WHEELS:/package-index:ro" "--volume=/run/pip.conf:/etc/pip.conf:ro"
"""
"""The kernel takes all of it away when the first process of its namespaces ends."""
BY_DOCKER = 'engine() { docker "$@"; }'
SMOKE = """
engine build "$@" --quiet --file deploy/Dockerfile --tag "$TAG" . >/dev/null
engine run --rm "$TAG" --version
"$SERVER" --jetstream --store_dir "$WORK/jetstream" --addr 127.0.0.1 --port "$PORT" >"$WORK/server.log" 2>&1 &
engine run --detach --name "$NAME" --network host --read-only --cap-drop ALL --security-opt no-new-privileges \\
  --env "NATS_URL=nats://127.0.0.1:$PORT" --env NATS_SCHEDULER_STREAMS_FOLDER=/streams \\
  --env NATS_SCHEDULER_METRICS_ADDRESS=127.0.0.1 --env "NATS_SCHEDULER_METRICS_PORT_NUMBER=$METRICS" \\
  --volume "$STREAMS:/streams:ro" "$TAG" >/dev/null
inside() { engine exec "$NAME" "$@"; }
until inside nats-scheduler add ORDERS schedules.orders.each Look --every 1s --target orders.due >/dev/null; do :; done
until inside nats-scheduler history ORDERS | grep orders.due | head -1 | wc -l | grep 1; do :; done
inside python /opt/nats-scheduler/healthcheck.py
inside cat /opt/nats-scheduler/sbom.cdx.json | grep -c '"purl": "pkg:pypi/nats-py@'
inside sh -c 'id -u; grep -h "CapEff\\|NoNewPrivs" /proc/1/status'
engine stop --time 20 "$NAME" >/dev/null
engine wait "$NAME"
engine logs "$NAME" 2>&1 | grep '"stopped"' | grep -o '"clean": *true'
"""
SHOWN = f'nats-scheduler {VERSION}|1|1|10001|CapEff:\t0000000000000000|NoNewPrivs:\t1|0|"clean": true'


def test_the_image_is_built_fires_a_schedule_and_drains(tmp_path: Path) -> None:
    before, by, env = engine()
    ports = {"PORT": str(free_port()), "METRICS": str(free_port())}
    own = {
        "TAG": f"nats-scheduler:{VERSION}",
        "NAME": f"smoke-{os.getpid()}",
        "WORK": str(tmp_path),
        "STREAMS": str(STREAMS),
    }
    script = f"set -eu\ncd {ROOT}\n{by}\ntrap 'engine rm --force \"$NAME\" >/dev/null; kill %1' EXIT\n{SMOKE}"
    answer = subprocess.run(
        [*before, "bash", "-c", script],
        env={**os.environ, **env, **ports, **own, "SERVER": str(server_binary(V2_11))},
        capture_output=True,
        text=True,
        timeout=SMOKE_SECONDS,
        check=False,
    )
    assert (answer.returncode, answer.stdout.split("\n")[:-1]) == (0, SHOWN.split("|")), answer.stdout + answer.stderr


def engine() -> tuple[list[str], str, dict[str, str]]:
    """Return what a script is started by, its first lines, and variables; skips the test where there is no engine."""
    if shutil.which("docker") and subprocess.run(["docker", "info"], capture_output=True).returncode == 0:
        return [], BY_DOCKER, {}
    missing = [name for name in ("podman", "runc", "debootstrap", "ip", "unshare") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"no Docker engine answers; root on Debian needs the packages {PACKAGES} in its place")
    try:
        env = {"BASE": str(base_archive()), "WHEELS": str(wheelhouse(LOCKS, PYTHON))}
    except (BaseImageError, WheelhouseError) as error:
        pytest.skip(f"no Docker engine answers, and no base image can be made: {error}")
    spaces = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return spaces, BY_PODMAN, env
