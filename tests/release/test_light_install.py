"""The client alone: few dependencies, the same files as the whole, and a sentence where something is not there."""

import json
from pathlib import Path

import pytest

from nats_scheduler.version import VERSION
from tests.conftest import StartServer
from tests.harness.account import account_on
from tests.harness.servers import V2_15
from tests.release.building import CLIENT, Installed, build, interpreter
from tests.release.test_installed import PROGRAM, PYTHONS

pytestmark = pytest.mark.server

NEEDED = {"nats-py", "tzdata"}
"""The packages that the client installs besides itself."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the client."""
    return build(CLIENT, tmp_path_factory.mktemp("client"), "wheel")


@pytest.fixture(scope="module")
def light(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Install the client into an environment of its own, with the newest Python that is here."""
    found = [python for version in PYTHONS if (python := interpreter(version)) is not None]
    made = Installed(found[-1], tmp_path_factory.mktemp("light") / "client")
    made.install(str(wheel))
    return made


def program(installed: Installed, *arguments: str) -> object:
    """Run the program that is asked of installed packages, and return its answer."""
    return json.loads(installed.run([str(installed.python), "-I", "-W", "error", str(PROGRAM), *arguments]))


def test_it_installs_little(light: Installed) -> None:
    versions = light.versions()
    assert versions.keys() == {"nats-scheduler-client", *NEEDED}
    assert versions["nats-scheduler-client"] == VERSION
    assert not (light.folder / "bin" / "nats-scheduler").exists()


def test_the_schedule_language_works(light: Installed) -> None:
    assert "Cron" in str(program(light, "pattern", "0 30 9 * * mon-fri"))


async def test_a_program_stores_schedules_on_a_server_that_fires_them(
    start_server: StartServer, light: Installed
) -> None:
    server = await start_server(V2_15)
    async with account_on(server.url) as account:
        await account.create("S")
        assert program(light, "client", server.url, "S") == ["S.s.every"]
        (fire,) = await account.wait_for("S", "S.due")
        assert fire.body == b"3"
        said = str(program(light, "export", server.url, "S"))
        assert "pip install 'nats-scheduler-client[files]'" in said


async def test_with_its_extra_it_writes_files(start_server: StartServer, wheel: Path, light: Installed) -> None:
    server = await start_server(V2_15)
    light.install(f"{wheel}[files]")
    async with account_on(server.url) as account:
        await account.create("S")
        program(light, "client", server.url, "S")
        assert "subject: S.s.every" in str(program(light, "export", server.url, "S"))
    modules = program(light, "import")
    assert isinstance(modules, dict)
    assert {name.split(".")[1] for name in modules if "." in name} == {
        *("client", "control", "files", "message", "schedule", "version"),
    }
