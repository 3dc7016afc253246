"""The distributions work as users install them: in an environment of their own, with each Python that they name.

`NATS_SCHEDULER_RELEASE=1` also runs the tests of the fast tier there, against what is installed; see
`docs/internals/releasing.md`.
"""

import json
import os
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from nats_scheduler.version import VERSION
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11
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
CASES = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.schedule import test_vectors
for kind in test_vectors.ANSWERS:
    test_vectors.test_every_recorded_case_gets_the_recorded_answer(kind)
test_vectors.test_no_recorded_case_is_of_a_kind_that_is_not_tested()
print(sys.modules["nats_scheduler"].__file__)
"""


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


def test_it_says_its_version_and_computes_fires(installed: Installed) -> None:
    assert installed.run(installed.command("--version")).strip() == f"nats-scheduler {VERSION}"
    answer = json.loads(installed.run(installed.command("next", "0 30 9 * * mon-fri", "--count", "3", "--json")))
    assert len(answer["fires"]) == 3


def test_all_its_modules_are_imported_without_warnings_and_none_of_them_is_of_the_checkout(
    installed: Installed,
) -> None:
    quiet = ("-W", "error")
    modules = json.loads(installed.run([str(installed.python), "-I", *quiet, str(PROGRAM), "import"]))
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
            listed = installed.run([str(installed.python), "-I", str(PROGRAM), "client", server.url, "S"])
            assert json.loads(listed) == ["S.s.every"]
            (fire,) = await account.wait_for("S", "S.due")
            assert fire.body == b"3"
        assert await process.terminate() == 0
        assert f'"version": "{VERSION}"' in process.stderr


def test_its_schedule_language_answers_the_recorded_cases(installed: Installed) -> None:
    folder = installed.folder / "recorded"
    for name in ("schedule", "vectors"):
        shutil.copytree(ROOT / "tests" / name, folder / "tests" / name, ignore=shutil.ignore_patterns("__pycache__"))
    installed.install("pytest")
    used = installed.run_python(CASES, str(folder))
    assert used.startswith(f"{installed.folder}/lib")


def test_the_pythons_are_those_that_the_package_names() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    named = {text.rpartition(" ")[2] for text in project["classifiers"] if ":: Python :: 3." in text}
    assert named == set(PYTHONS)
    assert project["requires-python"] == f">={PYTHONS[0]}"


def test_the_fast_tier_passes_on_what_is_installed(installed: Installed) -> None:
    if not os.environ.get("NATS_SCHEDULER_RELEASE"):
        pytest.skip("NATS_SCHEDULER_RELEASE=1 runs the fast tier on each Python, which takes minutes")
    folder = installed.folder / "without-the-package"
    for name in ("tests", "docs"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md"):
        shutil.copyfile(ROOT / name, folder / name)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    installed.install(*(text for text in extras["test"] if not text.startswith("nats-scheduler")))
    chosen = [str(folder / "tests" / name) for name in OF_THE_PACKAGE]
    command = [
        str(installed.python),
        "-I",
        "-m",
        "pytest",
        "--rootdir",
        str(folder),
        "-c",
        str(folder / "pyproject.toml"),
    ]
    said = installed.run([*command, "-n", "2", "-q", "-m", "fast", *chosen], FAST_TIER_SECONDS)
    assert " passed" in said
    print(f"{installed.folder.name}: {said.splitlines()[-1]}")


@pytest.mark.parametrize("installed", PYTHONS[:1], indirect=True)
def test_beside_the_client_it_is_the_same_if_that_has_its_version_and_does_not_start_if_not(
    installed: Installed, tmp_path: Path
) -> None:
    before = contents(installed)
    installed.install("--no-deps", str(build(CLIENT, tmp_path, "wheel")))
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


def contents(installed: Installed) -> dict[str, bytes]:
    """Return the files of the package."""
    (package,) = installed.folder.glob("lib/*/site-packages/nats_scheduler")
    found = (path for path in package.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(package).as_posix(): path.read_bytes() for path in found}
