"""The distribution works as users install it: in an environment of its own, with each Python that it names.

Without extras it is the client, over any version of nats-py, and says what to install for all else.
`NATS_SCHEDULER_RELEASE=1` also runs the tests of the fast tier there, against what is installed; see
`docs/internals/releasing.md`.
"""

import json
import os
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.version import VERSION
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11, V2_15
from tests.release.building import ROOT, Installed, build, interpreter

pytestmark = pytest.mark.server

PROGRAM = ROOT / "tests" / "release" / "installed_program.py"
PYTHONS = ("3.11", "3.12", "3.13")
FROM_SOURCES = "3.12"
"""The Python that gets the source distribution; the others get the wheel."""
OF_NATS_PY = ("2.10", "2")
"""The oldest version of nats-py that the client is for, and the newest one."""
FAST_TIER_SECONDS = 900.0
OF_THE_PACKAGE = ("schedule", "message", "engine", "control", "files", "settings", "client", "simulation")
"""The folders of tests that look at the package alone, and start no server in the fast tier."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the wheel and the source distribution."""
    return {kind: build(ROOT, tmp_path_factory.mktemp(kind), kind) for kind in ("wheel", "sdist")}


@pytest.fixture(scope="module", params=PYTHONS)
def installed(
    request: pytest.FixtureRequest, distributions: dict[str, Path], tmp_path_factory: pytest.TempPathFactory
) -> Installed:
    """Install a distribution with its status page into an environment of its own."""
    python = interpreter(request.param)
    if python is None:
        pytest.skip(f"there is no Python {request.param} on the path or among those of pyenv")
    made = Installed(python, tmp_path_factory.mktemp("python") / request.param)
    made.install(f"{distributions['sdist' if request.param == FROM_SOURCES else 'wheel']}[web]")
    return made


def program(installed: Installed, *arguments: str) -> Any:
    """Run the program that is asked of installed packages, and return its answer."""
    return json.loads(installed.run([str(installed.python), "-I", "-W", "error", str(PROGRAM), *arguments]))


def test_it_says_its_version_computes_fires_and_imports_nothing_of_the_checkout(installed: Installed) -> None:
    assert installed.run(installed.command("--version")).strip() == f"nats-scheduler {VERSION}"
    answer = json.loads(installed.run(installed.command("next", "0 30 9 * * mon-fri", "--count", "3", "--json")))
    assert len(answer["fires"]) == 3
    modules = program(installed, "import")
    ours = {path for path in (ROOT / "nats_scheduler").rglob("*.py") if path.name != "__main__.py"}
    assert len(modules) == len(ours)
    assert {name for name, file in modules.items() if not file.startswith(f"{installed.folder}/")} == set()


async def test_its_sidecar_fires_what_its_client_stores(start_server: StartServer, installed: Installed) -> None:
    server = await start_server(V2_11)
    command = installed.command("run", "--server", server.url, "--log-format", "json")
    with ChildProcess(command, installed.folder, name="run", env=installed.environment()) as process:
        await process.wait_for_line('"connected"')
        async with account_on(server.url) as account:
            await account.create("S")
            await process.wait_for_line('"stream_ready"')
            await account.publish("S.s", {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": "S.t"})
            await account.wait_for("S", "S.t")
            assert program(installed, "client", server.url, "S") == ["S.s.every"]
            (fire,) = await account.wait_for("S", "S.due")
            assert fire.body == b"3"
        assert await process.terminate() == 0
        assert f'"version": "{VERSION}"' in process.stderr


def run_tests(installed: Installed, folder: Path, *arguments: str) -> str:
    """Run tests in a copy of the repository without the package, by the configuration there; return the last line."""
    command = [str(installed.python), "-I", "-m", "pytest", "-q", "--rootdir", str(folder)]
    said = installed.run([*command, "-c", str(folder / "pyproject.toml"), *arguments], FAST_TIER_SECONDS)
    assert " passed" in said
    return said.splitlines()[-1]


def test_the_fast_tier_passes_on_what_is_installed(installed: Installed) -> None:
    if not os.environ.get("NATS_SCHEDULER_RELEASE"):
        pytest.skip("NATS_SCHEDULER_RELEASE=1 runs the fast tier on each Python, which takes minutes")
    folder = installed.folder / "without-the-package"
    for name in ("tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copyfile(ROOT / name, folder / name)
    needed = PROJECT["optional-dependencies"]["test"]
    installed.install(*(text for text in needed if not text.startswith("nats-scheduler")))
    chosen = [str(folder / "tests" / name) for name in OF_THE_PACKAGE]
    print(f"{installed.folder.name}: {run_tests(installed, folder, '-n', '2', '-m', 'fast', *chosen)}")


@pytest.mark.parametrize("of_nats_py", OF_NATS_PY)
async def test_without_extras_it_is_the_client_and_says_what_to_install_for_all_else(
    start_server: StartServer, distributions: dict[str, Path], tmp_path: Path, of_nats_py: str
) -> None:
    """With the newest Python that is here."""
    found = [python for version in PYTHONS if (python := interpreter(version)) is not None]
    light = Installed(found[-1], tmp_path / "client")
    light.install(str(distributions["wheel"]), f"nats-py=={of_nats_py}.*")
    versions = light.versions()
    assert versions.keys() == {"nats-scheduler", "nats-py", "tzdata"}
    assert (versions["nats-scheduler"], versions["nats-py"].startswith(of_nats_py)) == (VERSION, True)
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
