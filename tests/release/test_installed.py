"""The distributions work as users install them: in an environment of their own, with each Python that they name.

The client alone needs few dependencies, has the same files as the whole, and says where something is not there.
`NATS_SCHEDULER_RELEASE=1` also runs the tests of the fast tier there, against what is installed; see
`docs/internals/releasing.md`.
"""

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.version import VERSION
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11, V2_15
from tests.release.building import CLIENT, ROOT, Installed, build, interpreter

pytestmark = pytest.mark.server

PROGRAM = ROOT / "tests" / "release" / "installed_program.py"
PYTHONS = ("3.11", "3.12", "3.13")
FROM_SOURCES = "3.12"
"""The Python that gets the source distribution; the others get the wheel."""
OTHER_VERSION = "9.9.9"
FAST_TIER_SECONDS = 900.0
OF_THE_PACKAGE = ("schedule", "message", "engine", "control", "files", "settings", "client", "simulation")
"""The folders of tests that look at the package alone, and start no server in the fast tier."""
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


@pytest.fixture(scope="module")
def distributions(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Build the wheel and the source distribution, and the client."""
    built = {kind: build(ROOT, tmp_path_factory.mktemp(kind), kind) for kind in ("wheel", "sdist")}
    return {**built, "client": build(CLIENT, tmp_path_factory.mktemp("client"), "wheel")}


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


def test_its_schedule_language_answers_the_recorded_cases(installed: Installed) -> None:
    folder = installed.folder / "recorded"
    for name in ("schedule", "vectors"):
        shutil.copytree(ROOT / "tests" / name, folder / "tests" / name, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "pyproject.toml").touch()
    installed.install("pytest")
    run_tests(installed, folder, str(folder / "tests" / "schedule" / "test_vectors.py"))


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


def test_the_pythons_are_those_that_the_package_names() -> None:
    named = {text.rpartition(" ")[2] for text in PROJECT["classifiers"] if ":: Python :: 3." in text}
    assert (named, PROJECT["requires-python"]) == (set(PYTHONS), f">={PYTHONS[0]}")


def contents(installed: Installed) -> dict[str, bytes]:
    """Return the files of the package."""
    (package,) = installed.folder.glob("lib/*/site-packages/nats_scheduler")
    found = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in found}


@pytest.mark.parametrize("installed", PYTHONS[:1], indirect=True)
def test_beside_the_client_it_is_the_same_if_that_has_its_version_and_does_not_start_if_not(
    installed: Installed, distributions: dict[str, Path]
) -> None:
    before = contents(installed)
    installed.install("--no-deps", str(distributions["client"]))
    assert contents(installed) == before, "the files of both are the same"
    assert installed.run(installed.command("--version")).strip() == f"nats-scheduler {VERSION}"

    (metadata,) = installed.folder.glob("lib/*/site-packages/nats_scheduler_client-*.dist-info/METADATA")
    of_another = metadata.read_text("utf-8").replace(f"Version: {VERSION}", f"Version: {OTHER_VERSION}")
    metadata.write_text(of_another, "utf-8")
    ran = subprocess.run(
        installed.command("run"), env=installed.environment(), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 2
    assert f"nats-scheduler {VERSION} and nats-scheduler-client {OTHER_VERSION}" in ran.stderr


async def test_the_client_alone_installs_little_stores_schedules_and_writes_files_with_its_extra(
    start_server: StartServer, distributions: dict[str, Path], tmp_path: Path
) -> None:
    """With the newest Python that is here."""
    found = [python for version in PYTHONS if (python := interpreter(version)) is not None]
    light = Installed(found[-1], tmp_path / "client")
    light.install(str(distributions["client"]))
    versions = light.versions()
    assert versions.keys() == {"nats-scheduler-client", "nats-py", "tzdata"}
    assert versions["nats-scheduler-client"] == VERSION
    assert shutil.which(light.command()[0]) is None
    assert "Cron" in program(light, "pattern", "0 30 9 * * mon-fri")

    server = await start_server(V2_15)
    async with account_on(server.url) as account:
        await account.create("S")
        assert program(light, "client", server.url, "S") == ["S.s.every"]
        (fire,) = await account.wait_for("S", "S.due")
        assert fire.body == b"3"
        assert "pip install 'nats-scheduler-client[files]'" in program(light, "export", server.url, "S")
        light.install(f"{distributions['client']}[files]")
        assert "subject: S.s.every" in program(light, "export", server.url, "S")
    assert {name.split(".")[1] for name in program(light, "import") if "." in name} == {
        *("client", "control", "files", "message", "schedule", "version"),
    }
