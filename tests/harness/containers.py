"""The container engine of the tests: a real Docker where one answers, else a podman that is set up for this run.

Its rule: a test does the same on both, and what is different between them is in the two classes.
Where neither can be had, the test is skipped, and the reason says what is missing.
Docker is that of `DOCKER_HOST`, or of the usual socket; it fetches the base image from its registry, and runs health
checks by itself. The other engine is in `tests/harness/podman.py`.
"""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import docker
import pytest
from docker.errors import DockerException, ImageNotFound

USUAL_SOCKET = "unix:///var/run/docker.sock"
ANSWER_SECONDS = 60
"""Longest wait for one answer of an engine that works."""
BUILD_SECONDS = 900
"""Longest build of an image, the base fetched over a slow line."""
CHECK_INTERVAL_NS = 1_000_000_000
"""The interval at which Docker runs the health check of a container."""


class ContainerEngine(Protocol):
    """The operations that the tests need of an engine, beside what its API answers."""

    @property
    def client(self) -> docker.DockerClient:
        """The Docker API of this engine."""

    @property
    def compose(self) -> list[str]:
        """The command that reads compose files for this engine; the test is skipped where there is none."""

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for `compose`."""

    @property
    def health_options(self) -> dict[str, Any]:
        """Return the options of a new container that make its health check run often."""

    def inside(self, *command: str | Path) -> list[str]:
        """Return a command that reaches the ports which containers publish on loopback."""

    def build(self, context: Path, dockerfile: str, tag: str) -> None:
        """Build an image from a folder."""

    def provide_server(self, image: str, binary: Path) -> None:
        """Have a nats-server under the name of an image; `binary` is one of that version."""

    def check_health(self, container: Any) -> None:
        """Run the health check of a container, where the engine does not by itself."""


class Docker:
    """A Docker engine that was there before."""

    def __init__(self, client: docker.DockerClient, address: str) -> None:
        self._client = client
        self._address = address

    @property
    def client(self) -> docker.DockerClient:
        return self._client

    @property
    def compose(self) -> list[str]:
        program = shutil.which("docker")
        if program is None or subprocess.run([program, "compose", "version"], capture_output=True).returncode != 0:
            pytest.skip("no docker compose to start the services with")
        return [program, "compose"]

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "DOCKER_HOST": self._address}

    @property
    def health_options(self) -> dict[str, Any]:
        return {"healthcheck": {"interval": CHECK_INTERVAL_NS}}

    def inside(self, *command: str | Path) -> list[str]:
        return [str(word) for word in command]

    def build(self, context: Path, dockerfile: str, tag: str) -> None:
        slow = docker.DockerClient(base_url=self._address, timeout=BUILD_SECONDS)
        try:
            slow.images.build(path=str(context), dockerfile=dockerfile, tag=tag, rm=True)
        finally:
            slow.close()

    def provide_server(self, image: str, binary: Path) -> None:
        try:
            self._client.images.get(image)
        except ImageNotFound:
            self._client.images.pull(image)

    def check_health(self, container: Any) -> None:
        """Leave it to the engine."""


@contextmanager
def docker_engine(environ: Mapping[str, str]) -> Iterator[Docker | str]:
    """Give the Docker engine of this machine, or say that none answers."""
    address = environ.get("DOCKER_HOST") or USUAL_SOCKET
    path = address.removeprefix("unix://")
    if path != address and not listens(path):  # asked first: docker-py would leave a socket open behind its error
        yield f"no container engine answers at {address}"
        return
    try:
        client = docker.DockerClient(base_url=address, timeout=ANSWER_SECONDS)
    except DockerException as error:
        yield f"no container engine answers at {address}: {error}"
        return
    try:
        yield Docker(client, address)
    finally:
        client.close()


def listens(path: str) -> bool:
    """Return whether a program listens on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as probe:
        probe.settimeout(ANSWER_SECONDS)
        return probe.connect_ex(path) == 0
