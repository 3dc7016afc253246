"""The wheel and the source distribution are whole, reproducible, and of the version that one file says."""

import email
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from nats_scheduler.version import VERSION
from tests.house.sources import PACKAGE
from tests.release.building import ROOT, build, copied_tree

pytestmark = pytest.mark.server

OTHER_TIME = 1_000_000_000
Built = dict[tuple[str, int], Path]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Build each distribution in two copies: the second is older, belongs to its user only, and was imported from."""
    first = copied_tree(tmp_path_factory.mktemp("first"))
    second = copied_tree(tmp_path_factory.mktemp("second") / "elsewhere")
    for path in second.rglob("*"):
        path.chmod(path.stat().st_mode & 0o700)  # what its owner may execute is a part of the distribution
        os.utime(path, (OTHER_TIME, OTHER_TIME))
    for folder in (second / "nats_scheduler", second / "nats_scheduler" / "client"):
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "left.cpython-311.pyc").write_bytes(b"left from an import")
    return {
        (kind, number): build(copy, tmp_path_factory.mktemp(f"{kind}-{number}"), kind)
        for kind in ("wheel", "sdist")
        for number, copy in enumerate((first, second))
    }


def test_two_builds_have_the_same_bytes_also_from_the_sources(built: Built, tmp_path: Path) -> None:
    for kind in ("wheel", "sdist"):
        first, second = built[kind, 0], built[kind, 1]
        assert first.name == second.name
        assert first.name.startswith(f"nats_scheduler-{VERSION}")
        assert first.read_bytes() == second.read_bytes(), kind
    with tarfile.open(built["sdist", 0]) as archive:
        archive.extractall(tmp_path, filter="data")
    (unpacked,) = tmp_path.iterdir()
    assert build(unpacked, tmp_path / "out", "wheel").read_bytes() == built["wheel", 0].read_bytes()


def files_in(wheel: Path) -> set[str]:
    """Return the names of the files of a wheel, without its metadata."""
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_the_wheel_has_all_of_the_package_and_nothing_else(built: Built) -> None:
    there = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert files_in(built["wheel", 0]) == {path.relative_to(ROOT).as_posix() for path in there}


def test_the_metadata_are_those_of_this_version(built: Built) -> None:
    with zipfile.ZipFile(built["wheel", 0]) as archive:
        folder = f"nats_scheduler-{VERSION}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{folder}/METADATA"))
        licences = {entry for entry in archive.namelist() if entry.startswith(f"{folder}/licenses/")}
    assert (metadata["Version"], metadata["License-Expression"]) == (VERSION, "Apache-2.0")
    assert licences == {f"{folder}/licenses/LICENSE", f"{folder}/licenses/NOTICE"}
