"""The distribution works as users install it: in an environment of its own, with the oldest and the newest Python.

Without extras it is the client, over the oldest nats-py that it is for, and says what to install for all else.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.version import VERSION
from tests.conftest import StartServer
from tests.harness.account import account_on
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11, V2_15
from tests.release.building import ROOT, Installed, build, interpreter

pytestmark = pytest.mark.server

PROGRAM = ROOT / "tests" / "release" / "installed_program.py"
PYTHONS = ("3.11", "3.13")
"""The oldest and the newest; the forge runs the usual tier on each."""
FROM_SOURCES = "3.13"
"""The Python that gets the source distribution; the other gets the wheel."""
OF_NATS_PY = "2.10"
"""The oldest version of nats-py that the client is for."""


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the wheel and the source distribution."""
    return {kind: build(ROOT, tmp_path_factory.mktemp(kind), kind) for kind in ("wheel", "sdist")}


def program(installed: Installed, *arguments: str) -> Any:
    """Run the program that is asked of installed packages, and return its answer."""
    return json.loads(installed.run([str(installed.python), "-I", "-W", "error", str(PROGRAM), *arguments]))


@pytest.mark.parametrize("version", PYTHONS)
async def test_an_installed_sidecar_fires_what_its_client_stores(
    start_server: StartServer, distributions: dict[str, Path], tmp_path: Path, version: str
) -> None:
    """With its status page; nothing is imported of the checkout."""
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on the path or among those of pyenv")
    installed = Installed(python, tmp_path / "installed")
    installed.install(f"{distributions['sdist' if version == FROM_SOURCES else 'wheel']}[web]")
    assert installed.run(installed.command("--version")).strip() == f"nats-scheduler {VERSION}"
    modules = program(installed, "import")
    assert len(modules) == len([path for path in (ROOT / "nats_scheduler").rglob("*.py") if path.name != "__main__.py"])
    assert {name for name, file in modules.items() if not file.startswith(f"{installed.folder}/")} == set()
    server = await start_server(V2_11)
    command = installed.command("run", "--server", server.url, "--log-format", "json")
    with ChildProcess(command, installed.folder, name="run", env=installed.environment()) as process:
        await process.wait_for_line('"connected"')
        async with account_on(server.url) as account:
            await account.create("S")
            await process.wait_for_line('"stream_ready"')
            assert program(installed, "client", server.url, "S") == ["S.s.every"]
            (fire,) = await account.wait_for("S", "S.due")
            assert fire.body == b"3"
        assert await process.terminate() == 0


async def test_without_extras_it_is_the_client_and_says_what_to_install(
    start_server: StartServer, distributions: dict[str, Path], tmp_path: Path
) -> None:
    """With the newest Python that is here."""
    found = [python for version in PYTHONS if (python := interpreter(version)) is not None]
    light = Installed(found[-1], tmp_path / "client")
    light.install(str(distributions["wheel"]), f"nats-py=={OF_NATS_PY}.*")
    versions = light.versions()
    assert versions.keys() == {"nats-scheduler", "nats-py", "tzdata"}
    assert (versions["nats-scheduler"], versions["nats-py"].startswith(OF_NATS_PY)) == (VERSION, True)
    ran = light.ran(light.command("next", "@daily"))
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.count("\n") == 1
    assert "pip install '.[run]'" in ran.stderr
    assert "Cron" in program(light, "pattern", "0 30 9 * * mon-fri")

    server = await start_server(V2_15)
    async with account_on(server.url) as account:
        await account.create("S")
        assert program(light, "client", server.url, "S") == ["S.s.every"]
        (fire,) = await account.wait_for("S", "S.due")
        assert (fire.body, fire.block.count(b"\r\nA: ")) == (b"3", 2)
        assert "pip install '.[run]'" in program(light, "export", server.url, "S")
        light.install(f"{distributions['wheel']}[run]")
        assert "subject: S.s.every" in program(light, "export", server.url, "S")
    assert light.run(light.command("--version")).strip() == f"nats-scheduler {VERSION}"
    ran = light.ran(light.command("web"))
    assert ran.returncode == 2
    assert "pip install '.[web]'" in ran.stderr
