"""The distributions are whole, reproducible, and of the version that one file says."""

import email
import os
import tarfile
import time
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.version import VERSION
from tests.house.sources import PACKAGE
from tests.release.building import CLIENT, ROOT, build, copied_tree

pytestmark = pytest.mark.server

PROJECTS = {"nats_scheduler": Path(), "nats_scheduler_client": CLIENT.relative_to(ROOT)}
OTHER_TIME = 1_000_000_000
CONFIGS: dict[str, dict[str, Any]] = {
    name: tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8")) for name, folder in PROJECTS.items()
}


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Copy the tree twice: the second one is older, belongs to its user only, and was imported from."""
    first = copied_tree(tmp_path_factory.mktemp("first"))
    second = copied_tree(tmp_path_factory.mktemp("second") / "elsewhere")
    for path in second.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)  # what its owner may execute is a part of the distribution
        os.utime(path, (OTHER_TIME, OTHER_TIME))
    for folder in (second / "nats_scheduler", second / "nats_scheduler" / "client"):
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "left.cpython-311.pyc").write_bytes(b"left from an import")
    return first, second


@pytest.fixture(scope="module")
def built(copies: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str, int], Path]:
    """Build each distribution in both copies."""
    found = {}
    for name, folder in PROJECTS.items():
        for kind in ("wheel", "sdist"):
            for number, copy in enumerate(copies):
                out = tmp_path_factory.mktemp(f"{kind}-{number}")
                found[name, kind, number] = build(copy / folder, out, kind)
    return found


Built = dict[tuple[str, str, int], Path]


@pytest.mark.parametrize("name", PROJECTS)
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_two_builds_are_the_same_bytes(built: Built, name: str, kind: str) -> None:
    first, second = built[name, kind, 0], built[name, kind, 1]
    assert first.name == second.name
    assert first.name.startswith(f"{name}-{VERSION}")
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("name", PROJECTS)
def test_the_source_distribution_builds_the_same_wheel(built: Built, name: str, tmp_path: Path) -> None:
    with tarfile.open(built[name, "sdist", 0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    wheel = build(unpacked, tmp_path / "out", "wheel")
    assert wheel.read_bytes() == built[name, "wheel", 0].read_bytes()


def files_in(wheel: Path) -> set[str]:
    """Return the names of the files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return set(archive.namelist())


def files_of(folder: Path) -> set[str]:
    """Return the files of a folder of the package, as a wheel names them."""
    found = (path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}


def test_the_wheel_has_all_of_the_package_and_nothing_else(built: Built) -> None:
    files = files_in(built["nats_scheduler", "wheel", 0])
    assert {name for name in files if ".dist-info/" not in name} == files_of(PACKAGE)
    assert {"nats_scheduler/py.typed", "nats_scheduler/web/templates/overview.html"} <= files
    assert {Path(name).suffix for name in files_of(PACKAGE / "web" / "static")} >= {".css"}


def test_the_wheel_of_the_client_has_its_rooms_and_nothing_else(built: Built) -> None:
    files = {name for name in files_in(built["nats_scheduler_client", "wheel", 0]) if ".dist-info/" not in name}
    rooms = ("client", "control", "files", "message", "schedule")
    expected = set().union(*(files_of(PACKAGE / room) for room in rooms))
    assert files - expected == {f"nats_scheduler/{name}" for name in ("__init__.py", "py.typed", "version.py")}
    assert expected - files == set()


@pytest.mark.parametrize("name", PROJECTS)
def test_the_metadata_are_those_of_this_version(built: Built, name: str) -> None:
    with zipfile.ZipFile(built[name, "wheel", 0]) as archive:
        folder = f"{name}-{VERSION}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
        licences = {entry for entry in archive.namelist() if entry.startswith(f"{folder}/licenses/")}
    assert metadata["Version"] == VERSION
    assert metadata["License-Expression"] == "Apache-2.0"
    assert licences == {f"{folder}/licenses/LICENSE", f"{folder}/licenses/NOTICE"}
    assert "nats-scheduler" in str(metadata.get_payload())


def test_no_file_but_one_says_the_version() -> None:
    for config in CONFIGS.values():
        assert config["project"]["dynamic"] == ["version"]
        assert "version" not in config["project"]


def test_the_client_needs_no_other_versions_than_the_whole() -> None:
    whole = {text.replace("[nkeys]", "") for text in CONFIGS["nats_scheduler"]["project"]["dependencies"]}
    client = CONFIGS["nats_scheduler_client"]["project"]
    assert set(client["dependencies"]) < whole
    assert set(client["optional-dependencies"]["files"]) < whole
    same = ("requires-python", "license", "license-files", "keywords", "urls")
    assert all(client[key] == CONFIGS["nats_scheduler"]["project"][key] for key in same)


@pytest.mark.parametrize("name", ["LICENSE", "NOTICE"])
def test_the_licence_of_the_client_is_that_of_the_whole(name: str) -> None:
    assert (CLIENT / name).read_bytes() == (ROOT / name).read_bytes()


def test_the_time_of_the_copies_is_another_one(copies: tuple[Path, Path]) -> None:
    first, second = ((copy / "nats_scheduler" / "version.py").stat() for copy in copies)
    assert first.st_mode != second.st_mode
    assert second.st_mtime == OTHER_TIME < first.st_mtime <= time.time()
