"""The image, built and run by a container engine; skipped, with the reason, where none can be had.

The rule: each sidecar has no rights (another user than root, a read-only file system, no capabilities), so whatever is
tested is tested under these; and all containers of a test are gone when it ends.
"""

import asyncio
import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from docker.errors import NotFound
from packaging.utils import canonicalize_name
from packaging.version import Version

from nats_scheduler.runtime.embedded import free_port
from nats_scheduler.version import VERSION
from tests.deploy.files import COMPOSE, ROOT, STREAMS, VOLUME, compose, final_stage, rests
from tests.deploy.test_health import SERVICE_LINKS
from tests.deploy.test_locks import REQUIREMENTS, pinned
from tests.harness.containers import ContainerEngine, docker_engine
from tests.harness.podman import podman_engine
from tests.harness.servers import V2_11, server_binary
from tests.harness.waiting import eventually

pytestmark = pytest.mark.server

TAG = "nats-scheduler:under-test"
SERVER = str(compose()["services"]["nats"]["image"])
STOP_SECONDS = 20
"""Time that the engine gives a container between SIGTERM and SIGKILL, as the compose file says."""
NOWHERE = "nats://127.0.0.1:1"
COMPOSE_SECONDS = 120.0
"""Longest run of one command of compose."""
MOST_ADDED_BYTES = 80_000_000
"""The image adds 52 MB to its base; docs/operating/deploy.md says so."""

INSTALLED = "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
LAST_MESSAGE = """
import asyncio, sys, nats
from nats.js.errors import NotFoundError
async def main(url, subject):
    client = await nats.connect(url)
    try:
        print((await client.jetstream().get_last_msg("ORDERS", subject)).data.decode())
    except NotFoundError:
        print("none")
    await client.close()
asyncio.run(main(*sys.argv[1:]))
"""
"""A client of another program: it prints the last message on a subject."""


CHECK = ["python", "/opt/nats-scheduler/healthcheck.py"]
FOLDER = "/etc/nats-scheduler/streams"
EXECUTIONS = 3
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


async def page_becomes(container: Any, path: str, status: int) -> None:
    """Wait until a page is answered with a status."""

    async def answered() -> bool:
        return (await page(container, path))[0] == status

    await eventually(answered, describe=lambda: story(container))


async def logs(container: Any, event: str) -> dict[str, Any]:
    """Wait for a line of the log with an event, and return it."""

    def line() -> dict[str, Any] | None:
        read = [json.loads(text) for text in container.logs().decode().splitlines() if text.startswith("{")]
        return next((one for one in read if one.get("event") == event), None)

    return await eventually(line, describe=lambda: f"{event}\n{story(container)}")


async def health_becomes(engine: ContainerEngine, container: Any, wanted: str) -> None:
    """Wait until the engine calls a container healthy or unhealthy."""

    async def called() -> bool:
        await asyncio.to_thread(engine.check_health, container)
        return await asyncio.to_thread(health_of, container) == wanted

    await eventually(called, describe=lambda: f"{wanted}\n{story(container)}")


def health_of(container: Any) -> str:
    """Return what the engine says of the health of a container."""
    container.reload()
    return str(container.attrs["State"]["Health"]["Status"])


def story(container: Any) -> str:
    """Return the log of a container."""
    return f"the log of {container.name}:\n{container.logs().decode()[-4000:]}"


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainerEngine]:
    """Give the container engine of this machine, or one that is set up for this file."""
    with docker_engine(os.environ) as found:
        if not isinstance(found, str):
            yield found
            return
    with podman_engine(tmp_path_factory.mktemp("podman")) as made:
        if isinstance(made, str):
            pytest.skip(made)
        yield made


@pytest.fixture(scope="module")
def image(engine: ContainerEngine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Build the image from exactly what the Dockerfile copies, once per run."""
    engine.build(build_context(tmp_path_factory.mktemp("context")), "deploy/Dockerfile", TAG)
    return TAG


@pytest.fixture
async def yard(engine: ContainerEngine, image: str, server_image: str) -> AsyncIterator[Yard]:
    """Give a network for containers of this test."""
    async with Yard(engine, image, server_image) as made:
        yield made


@pytest.fixture(scope="module")
def server_image(engine: ContainerEngine) -> str:
    """Have a server under the name that the compose file has for it."""
    engine.provide_server(SERVER, server_binary(V2_11))
    return SERVER


def build_context(folder: Path) -> Path:
    """Copy the Dockerfile, what it copies, and what keeps all else away."""
    copied = {source for rest in rests("COPY") if "--from" not in rest for source in rest.split()[:-1]}
    for name in ("deploy/Dockerfile", "deploy/Dockerfile.dockerignore", *copied):
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, target)
    return folder


def test_the_context_holds_what_is_built_and_nothing_else(tmp_path: Path) -> None:
    names = {path.relative_to(tmp_path).as_posix() for path in build_context(tmp_path).rglob("*") if path.is_file()}
    assert {name.split("/")[0] for name in names} == {
        *("LICENSE", "NOTICE", "README.md", "deploy", "nats_scheduler", "pyproject.toml")
    }
    assert {name for name in names if name.startswith("deploy/")} == {
        *("deploy/Dockerfile", "deploy/Dockerfile.dockerignore", "deploy/healthcheck.py"),
        *("deploy/image/build.lock", "deploy/image/requirements.lock"),
    }
    assert "nats_scheduler/cli/main.py" in names


def test_the_image_holds_this_version_and_adds_little_to_its_base(engine: ContainerEngine, image: str) -> None:
    said = engine.client.containers.run(image, ["--version"], remove=True)
    assert said.decode().strip() == f"nats-scheduler {VERSION}"
    layers = engine.client.images.get(image).history()[: len(final_stage()) - 1]
    assert 0 < sum(layer["Size"] for layer in layers) < MOST_ADDED_BYTES


async def test_the_image_holds_the_packages_of_the_lock_and_its_bill_says_so(yard: Yard) -> None:
    container = await yard.sidecar(url=NOWHERE)
    code, said = await execute(container, "python", "-c", INSTALLED)
    assert code == 0, said
    installed = {canonicalize_name(name): Version(version) for name, version in json.loads(said).items()}
    assert installed.pop(canonicalize_name("nats-scheduler")) == Version(VERSION)
    assert installed == pinned(REQUIREMENTS)

    code, said = await execute(container, "cat", "/opt/nats-scheduler/sbom.cdx.json")
    bill = json.loads(said)
    assert (code, bill["bomFormat"], bill["metadata"]["component"]["name"]) == (0, "CycloneDX", "nats-scheduler")
    listed = {canonicalize_name(one["name"]): one for one in bill["components"]}
    assert {name: Version(one["version"]) for name, one in listed.items()} == installed
    assert all(one["purl"].startswith(f"pkg:pypi/{name}@") and one["licenses"] for name, one in listed.items())


async def test_a_sidecar_in_a_container_has_no_rights(yard: Yard) -> None:
    container = await yard.sidecar(url=NOWHERE)
    await logs(container, "connect_failed")
    code, said = await execute(container, "cat", "/proc/1/status")
    assert code == 0, said
    status = {name: text.split() for name, _, text in (line.partition(":") for line in said.splitlines())}
    assert status["Uid"] == status["Gid"] == ["10001"] * 4
    assert {int(status[name][0], 16) for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert status["NoNewPrivs"] == ["1"]
    code, said = await execute(container, "touch", "/opt/nats-scheduler/new")
    assert code != 0
    assert "Read-only file system" in said
    code, said = await execute(container, "stat", "--format", "%u:%g %a", VOLUME)
    assert (code, said.strip()) == (0, "10001:10001 700"), "as an engine gives it to an empty volume"


async def test_a_sidecar_is_alive_while_its_server_is_not_there_and_ready_when_it_is(yard: Yard) -> None:
    container = await yard.sidecar()
    await logs(container, "connect_failed")
    assert (await page(container, "/readyz"))[0] == 503
    assert await check(container) == (0, "")
    assert await asyncio.to_thread(health_of, container) in {"starting", "healthy"}

    server = await yard.server()
    await page_becomes(container, "/readyz", 200)
    assert await check(container) == (0, "")
    await health_becomes(yard.engine, container, "healthy")

    await asyncio.to_thread(server.stop, timeout=STOP_SECONDS)
    await page_becomes(container, "/readyz", 503)
    assert await check(container) == (0, "")
    await asyncio.to_thread(server.start)
    await page_becomes(container, "/readyz", 200)
    assert await check(container) == (0, "")


async def add_schedule(container: Any) -> None:
    """Store a schedule that fires each second, with the program of the image."""
    words = ("add", "ORDERS", "schedules.orders.each", "Look", "--every", "1s", "--target", "orders.due")
    code, said = await execute(container, "nats-scheduler", *words)
    assert code == 0, said


async def test_compose_starts_server_and_sidecar_creates_the_streams_and_a_schedule_fires(
    engine: ContainerEngine, image: str, server_image: str, tmp_path: Path
) -> None:
    name, _, tag = compose()["services"]["scheduler"]["image"].partition(":")
    assert engine.client.images.get(image).tag(name, tag)
    project = f"nats-scheduler-{secrets.token_hex(4)}"
    port = free_port()
    command = [*engine.compose, "--project-name", project, "--file", str(COMPOSE)]
    environment = {**engine.environment, "NATS_HOST_PORT": str(port)}

    async def run(*words: str) -> None:
        answer = await asyncio.to_thread(
            subprocess.run, [*command, *words], env=environment, capture_output=True, text=True, timeout=COMPOSE_SECONDS
        )
        assert answer.returncode == 0, answer.stdout + answer.stderr

    try:
        await run("up", "--detach", "--no-build")
        label = f"com.docker.compose.project={project}"
        started = engine.client.containers.list(filters={"label": label})
        services = {one.labels["com.docker.compose.service"]: one for one in started}
        assert set(services) == {"nats", "scheduler"}
        for container in services.values():
            await health_becomes(engine, container, "healthy")
        await page_becomes(services["scheduler"], "/readyz", 200)
        await add_schedule(services["scheduler"])

        async def fired() -> bool:
            client = engine.inside(sys.executable, "-c", LAST_MESSAGE, f"nats://127.0.0.1:{port}", "orders.due")
            answer = await asyncio.to_thread(subprocess.run, client, capture_output=True, text=True)
            assert answer.returncode == 0, answer.stderr
            return answer.stdout == "Look\n"

        await eventually(fired, describe=lambda: story(services["scheduler"]))
        await run("stop", "scheduler")
        assert (await asyncio.to_thread(services["scheduler"].wait))["StatusCode"] == 0
        assert (await logs(services["scheduler"], "stopped"))["clean"] is True
    finally:
        await run("down", "--volumes")
