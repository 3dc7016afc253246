"""The image, built and run by a container engine; skipped, with the reason, where none answers."""

import io
import os
import socket
import sys
import tarfile
from collections.abc import Iterator
from typing import Any

import docker
import pytest
from docker.errors import DockerException

from nats_scheduler.version import VERSION
from tests.conftest import SharedServer
from tests.deploy.files import ROOT, rests
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

TAG = "nats-scheduler:under-test"
ENGINE_SECONDS = 10
"""Longest wait for the engine to answer at all."""
HEALTHY_SECONDS = 60.0
"""Longest wait for a container to be called healthy; the check runs each two seconds here."""
STOP_SECONDS = 20
"""Time that the engine gives a container between SIGTERM and SIGKILL."""


@pytest.fixture(scope="session")
def engine() -> Iterator[docker.DockerClient]:
    """Give the container engine of this machine."""
    address = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    path = address.removeprefix("unix://")
    if path != address and not listens(path):  # asked first: docker-py would leave a socket open behind its error
        pytest.skip(f"no container engine answers at {address}")
    try:
        client = docker.from_env(timeout=ENGINE_SECONDS)
    except DockerException as error:
        pytest.skip(f"no container engine answers at {address}: {error}")
    yield client
    client.close()


def listens(path: str) -> bool:
    """Tell whether someone listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ENGINE_SECONDS)
        return probe.connect_ex(path) == 0


@pytest.fixture(scope="session")
def image(engine: docker.DockerClient) -> str:
    """Build the image from exactly what the Dockerfile copies, once per run."""
    slow = docker.from_env(timeout=600)
    try:
        slow.images.build(
            fileobj=build_context(), custom_context=True, dockerfile="deploy/Dockerfile", tag=TAG, rm=True
        )
    finally:
        slow.close()
    return TAG


def build_context() -> io.BytesIO:
    """Pack the Dockerfile and its sources."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        sources = {source for rest in rests("COPY") if "--from" not in rest for source in rest.split()[:-1]}
        for name in sorted({"deploy/Dockerfile", *(source.removeprefix("./") for source in sources)}):
            archive.add(ROOT / name, arcname=name, filter=without_caches)
    packed.seek(0)
    return packed


def without_caches(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave byte code out of the context."""
    return None if "__pycache__" in member.name else member


def test_the_context_holds_what_is_built_and_nothing_else() -> None:
    with tarfile.open(fileobj=build_context()) as archive:
        names = archive.getnames()
    tops = {name.split("/")[0] for name in names}
    assert tops == {"LICENSE", "NOTICE", "README.md", "deploy", "nats_scheduler", "pyproject.toml"}
    assert "nats_scheduler/cli/main.py" in names


def test_the_image_holds_this_version(engine: docker.DockerClient, image: str) -> None:
    said = engine.containers.run(image, ["--version"], remove=True)
    assert said.decode().strip() == f"nats-scheduler {VERSION}"


def test_the_image_does_not_run_as_root(engine: docker.DockerClient, image: str) -> None:
    said = engine.containers.run(image, ["-u"], entrypoint="id", remove=True)
    assert said.decode().strip() == "10001"


@pytest.mark.skipif(sys.platform != "linux", reason="the host's network is a container's only on Linux")
async def test_a_container_serves_drains_and_ends_well(
    engine: docker.DockerClient, image: str, shared_server: SharedServer
) -> None:
    server = await shared_server(V2_11)
    container: Any = engine.containers.run(
        image,
        ["run", "--server", server.url],
        detach=True,
        network_mode="host",
        read_only=True,
        cap_drop=["ALL"],
        healthcheck={"interval": 2_000_000_000},
    )
    try:
        await eventually(
            lambda: health_of(container) == "healthy",
            within_seconds=HEALTHY_SECONDS,
            describe=lambda: f"a healthy container\n{container.logs().decode()}",
        )
        container.stop(timeout=STOP_SECONDS)
        assert container.wait()["StatusCode"] == 0
    finally:
        container.remove(force=True)


def health_of(container: Any) -> str:
    """Ask the engine what the health check says."""
    container.reload()
    return str(container.attrs["State"]["Health"]["Status"])
