"""Containers for one test: a network of their own, a server on it, and sidecars as an orchestrator runs them.

The rule: each sidecar has no rights (another user than root, a read-only file system, no capabilities), so whatever is
tested is tested under these; and all containers are gone when the `with` block ends.
"""

import asyncio
import json
import secrets
from types import TracebackType
from typing import Any, Self

from docker.errors import NotFound

from tests.deploy.files import STREAMS
from tests.deploy.test_health import SERVICE_LINKS
from tests.harness.containers import ContainerEngine
from tests.harness.waiting import eventually

CHECK = ["python", "/opt/nats-scheduler/healthcheck.py"]
FOLDER = "/etc/nats-scheduler/streams"
EXECUTIONS = 3
STATE_SECONDS = 60.0
"""Longest wait for a state of a container."""
RIGHTLESS: dict[str, Any] = {
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}

ASK = """
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1], timeout=5)
except urllib.error.HTTPError as error:
    answer = error
except OSError as error:
    sys.exit(print(0, error))
print(answer.status, answer.read().decode())
"""
"""A client of the pages, for Python inside a container."""


class Yard:
    """The containers of one test."""

    def __init__(self, engine: ContainerEngine, image: str, server_image: str) -> None:
        self.engine = engine
        self._image = image
        self._server_image = server_image
        self._token = secrets.token_hex(4)
        self._containers: list[Any] = []
        self._network: Any = None

    async def __aenter__(self) -> Self:
        self._network = await asyncio.to_thread(self.engine.client.networks.create, f"yard-{self._token}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self._remove)

    @property
    def url(self) -> str:
        """Where the server is, for containers on the network."""
        return f"nats://server-{self._token}:4222"

    async def server(self) -> Any:
        """Start a server with JetStream."""
        arguments = ["--jetstream", "--store_dir", "/tmp/store"]  # noqa: S108 - in a container of this test
        return await self._run(self._server_image, arguments, name=f"server-{self._token}")

    async def sidecar(self, url: str = "") -> Any:
        """Start a sidecar, connected to the server unless `url` is another.

        Its environment is the one that Kubernetes makes beside Services called nats-scheduler and
        nats-scheduler-metrics; it creates the streams of `deploy/streams`.
        """
        given = {**SERVICE_LINKS, "NATS_URL": url or self.url, "NATS_SCHEDULER_STREAMS_FOLDER": FOLDER}
        streams = {str(STREAMS): {"bind": FOLDER, "mode": "ro"}}
        options = {**RIGHTLESS, **self.engine.health_options, "environment": given, "volumes": streams}
        return await self._run(self._image, ["run"], **options)

    async def _run(self, image: str, arguments: list[str], **options: Any) -> Any:
        run: Any = self.engine.client.containers.run
        container = await asyncio.to_thread(run, image, arguments, detach=True, network=self._network.name, **options)
        self._containers.append(container)
        return container

    def _remove(self) -> None:
        for container in self._containers:
            try:
                container.remove(force=True)
            except NotFound:
                continue
        self._network.remove()


async def execute(container: Any, *command: str) -> tuple[int, str]:
    """Run a command that changes nothing inside a container; returns its exit code and what it printed.

    On a busy machine an engine may end its answer before it has read what a short command printed.
    """
    for _ in range(EXECUTIONS):
        code, said = await asyncio.to_thread(container.exec_run, list(command))
        if code != 0 or said:
            break
    return code, said.decode()


async def check(container: Any) -> tuple[int, str]:
    """Run the health check of the image as its engine does."""
    return await execute(container, *CHECK)


async def page(container: Any, path: str) -> tuple[int, str]:
    """Ask the sidecar in a container for a page; returns the status, 0 without an answer, and the text."""
    code, said = await execute(container, "python", "-c", ASK, f"http://127.0.0.1:9464{path}")
    assert code == 0, said
    status, _, text = said.partition(" ")
    return int(status), text.strip()


async def becomes_ready(container: Any) -> None:
    """Wait until the sidecar in a container is ready."""
    await page_becomes(container, "/readyz", 200)


async def page_becomes(container: Any, path: str, status: int) -> None:
    """Wait until a page is answered with a status."""

    async def answered() -> bool:
        return (await page(container, path))[0] == status

    await eventually(answered, within_seconds=STATE_SECONDS, describe=lambda: story(container))


async def logs(container: Any, event: str) -> dict[str, Any]:
    """Wait for a line of the log with an event, and return it."""

    def line() -> dict[str, Any] | None:
        read = [json.loads(text) for text in container.logs().decode().splitlines() if text.startswith("{")]
        return next((one for one in read if one.get("event") == event), None)

    return await eventually(line, within_seconds=STATE_SECONDS, describe=lambda: f"{event}\n{story(container)}")


async def health_becomes(engine: ContainerEngine, container: Any, wanted: str) -> None:
    """Wait until the engine calls a container healthy or unhealthy."""

    async def called() -> bool:
        await asyncio.to_thread(engine.check_health, container)
        return await asyncio.to_thread(health_of, container) == wanted

    await eventually(called, within_seconds=STATE_SECONDS, describe=lambda: f"{wanted}\n{story(container)}")


def health_of(container: Any) -> str:
    """Return what the engine says of the health of a container."""
    container.reload()
    return str(container.attrs["State"]["Health"]["Status"])


def story(container: Any) -> str:
    """Return the log of a container."""
    return f"the log of {container.name}:\n{container.logs().decode()[-4000:]}"
