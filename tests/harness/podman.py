"""A podman of its own for one run of the tests: root on Debian, no registry, no systemd.

Its rule: nothing of it is seen outside. Its processes, bridges, firewall rules and mounts are in namespaces of their
own, and its images in the folder of the run; when its first process ends, the kernel takes all of it away.
Images are built without any network: the base is that of `tests/harness/base_image.py`, and the packages are the files
of `tests/harness/wheelhouse.py`, where a Docker would ask the package index.
Limit: health checks run when a test asks for it, because podman leaves them to timers of systemd.
What stays outside is an empty control group, `libpod_parent`.
"""

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker
import pytest

from tests.harness.base_image import PYTHON, BaseImageError, base_archive
from tests.harness.containers import ANSWER_SECONDS, BUILD_SECONDS, listens
from tests.harness.processes import ChildProcess
from tests.harness.waiting import eventually
from tests.harness.wheelhouse import WheelhouseError, wheelhouse

PROGRAMS = ("podman", "runc", "debootstrap", "iptables", "ip", "unshare", "nsenter")
FILES = ("/usr/lib/podman/netavark", "/usr/lib/podman/aardvark-dns", "/etc/debian_version")
PACKAGES = "runc podman netavark aardvark-dns iptables iproute2 debootstrap"
"""The Debian packages that have them; `.ci/run` installs the same."""

BASE = "docker.io/library/base-without-registry:1"
START_SECONDS = 60.0
"""Longest wait until its API listens."""
LOCKS = ("build.lock", "requirements.lock")

CONTAINERS_CONF = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1000:1000"]
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
lock_type = "file"
tmp_dir = "{folder}/tmp"
"""
STORAGE_CONF = """[storage]
driver = "{driver}"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""
PIP_CONF = """[global]
no-index = true
find-links = /package-index
"""
FIRST_PROCESS = """ip link set lo up && mount -t tmpfs tmpfs /run || exit
[ "$2" != memory ] || mount -t tmpfs tmpfs "$3" || exit
podman system service --time 0 "$1" & wait
"""
"""A shell, so that processes whose parents end are reaped."""
MEMORY_KB = 4_000_000
"""With this amount of memory free, images are kept there: less than 1 GB, written and removed in no time."""


class Podman:
    """The engine, while it runs."""

    def __init__(self, client: docker.DockerClient, folder: Path, first_process: int) -> None:
        self._client = client
        self._folder = folder
        self._enter = ["nsenter", f"--target={first_process}", "--net", "--mount", "--pid"]

    @property
    def client(self) -> docker.DockerClient:
        return self._client

    @property
    def compose(self) -> list[str]:
        return self.inside(Path(sys.executable).with_name("podman-compose"))

    @property
    def environment(self) -> dict[str, str]:
        return environment(self._folder)

    @property
    def health_options(self) -> dict[str, Any]:
        return {}

    def inside(self, *command: str | Path) -> list[str]:
        return [*self._enter, *(str(word) for word in command)]

    def build(self, context: Path, dockerfile: str, tag: str) -> None:
        try:
            wheels = wheelhouse(tuple(context / "deploy" / "image" / lock for lock in LOCKS), PYTHON)
        except WheelhouseError as error:
            if not error.is_offline:
                raise
            pytest.skip(f"the packages of the image cannot be fetched: {error}")
        pip_conf = self._folder / "pip.conf"
        pip_conf.write_text(PIP_CONF, "utf-8")
        options = ["--pull=never", "--network=none", "--format=docker", f"--build-arg=BASE={BASE}"]
        options += [f"--volume={wheels}:/package-index:ro", f"--volume={pip_conf}:/etc/pip.conf:ro"]
        self.run("build", *options, f"--file={context / dockerfile}", f"--tag=docker.io/library/{tag}", context)

    def provide_server(self, image: str, binary: Path) -> None:
        context = self._folder / "server"
        context.mkdir()
        shutil.copy(binary, context / "nats-server")
        lines = [f"FROM {BASE}", "COPY nats-server /usr/local/bin/", "RUN ln -s /bin/busybox /usr/local/bin/wget"]
        (context / "Dockerfile").write_text("\n".join([*lines, 'ENTRYPOINT ["nats-server"]\n']), "utf-8")
        self.run("build", "--pull=never", "--network=none", f"--tag=docker.io/library/{image}", context)

    def check_health(self, container: Any) -> None:
        """Run its health check once, as a timer of systemd would."""
        self.run("healthcheck", "run", container.id, codes=(0, 1))

    def run(self, *words: str | Path, codes: tuple[int, ...] = (0,)) -> str:
        """Run one command of podman, and return what it printed."""
        answer = subprocess.run(
            self.inside("podman", *words),
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
            check=False,
        )
        assert answer.returncode in codes, f"podman {' '.join(map(str, words))}:\n{answer.stdout}\n{answer.stderr}"
        return answer.stdout


@contextmanager
def podman_engine(folder: Path) -> Iterator[Podman | str]:
    """Start a podman with all that it stores in a folder, which is removed at the end; or say why there is none."""
    if missing := what_is_missing():
        yield missing
        return
    try:
        base = base_archive()
    except BaseImageError as error:
        yield f"no base image can be made: {error}"
        return
    (folder / "containers.conf").write_text(CONTAINERS_CONF.format(folder=folder), "utf-8")
    where = kept_in(folder)
    (folder / "storage.conf").write_text(STORAGE_CONF.format(folder=folder, driver=storage_driver(where)), "utf-8")
    (folder / "storage").mkdir()
    api = f"unix://{folder / 'podman.sock'}"
    unshare = [shutil.which("unshare") or "", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*unshare, "sh", "-c", FIRST_PROCESS, "sh", api, where, str(folder / "storage")]
    try:
        with ChildProcess(command, folder, name="podman", env=environment(folder)) as process:
            asyncio.run(_listening(process, folder / "podman.sock"))
            client = docker.DockerClient(base_url=api, timeout=ANSWER_SECONDS)
            engine = Podman(client, folder, child_of(process.pid))
            try:
                engine.run("import", base, BASE)
                yield engine
            finally:
                client.close()
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=False)


def what_is_missing() -> str:
    """Return why podman cannot be set up on this machine; "" if it can."""
    if sys.platform != "linux" or os.geteuid() != 0:
        return "no container engine answers, and only root on Linux can set one up"
    absent = [name for name in PROGRAMS if shutil.which(name) is None]
    absent += [name for name in FILES if not Path(name).exists()]
    if absent:
        return f"no container engine answers, and there is no {absent[0]}; the Debian packages {PACKAGES} make one"
    probe = ["unshare", "--net", "--mount", "--pid", "--fork", "true"]
    if subprocess.run(probe, capture_output=True).returncode != 0:
        return "no container engine answers, and this machine does not let root make namespaces"
    return ""


def kept_in(folder: Path) -> str:
    """Return where images are kept: in `memory` or on `disk`, or on a disk that is itself an `overlay`."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    if int(lines["MemAvailable"].split()[0]) > MEMORY_KB:
        return "memory"
    answer = subprocess.run(["stat", "--file-system", "--format=%T", str(folder)], capture_output=True, text=True)
    return "overlay" if answer.stdout.strip() == "overlayfs" else "disk"


def storage_driver(where: str) -> str:
    """Return how layers are stored: as overlays where the kernel can, else as whole copies."""
    has_overlays = "\toverlay\n" in Path("/proc/filesystems").read_text()
    return "overlay" if has_overlays and where != "overlay" else "vfs"


def environment(folder: Path) -> dict[str, str]:
    """Return the variables by which podman finds its configuration."""
    own = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_STORAGE_CONF": "storage.conf"}
    return {**os.environ, **{name: str(folder / file) for name, file in own.items()}}


def child_of(pid: int) -> int:
    """Return the first process in the namespaces that `unshare` has made."""
    return int(Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


async def _listening(process: ChildProcess, path: Path) -> None:
    def ready() -> bool:
        if process.exit_code is not None:
            raise RuntimeError(f"podman ended: {process.stderr}")
        return listens(str(path))

    await eventually(ready, within_seconds=START_SECONDS, describe=lambda: f"podman's API\n{process.stderr}")
