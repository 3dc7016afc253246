"""The lock files of the image: in step with what is asked for, and good for each architecture of the image.

The rule: every line is understood, so that a line which pins nothing is an error and is not passed over.
"""

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name, parse_sdist_filename, parse_wheel_filename
from packaging.version import Version

from tests.deploy.files import DEPLOY, ROOT, rests
from tests.harness.wheelhouse import WheelhouseError, wheelhouse

REQUIREMENTS = DEPLOY / "image" / "requirements.lock"
BUILD = DEPLOY / "image" / "build.lock"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
ENTRY = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[[a-z,]+\])?==(?P<version>[^\s;]+)(?: ; [^\\]+?)?"
    r"(?: \\\n    --hash=sha256:[0-9a-f]{64})+"
)
MACHINES = ("x86_64", "aarch64")
"""Those of the command in docs/operating/deploy.md, by the names that wheels have for them."""
WITHOUT_WHEELS = {"nkeys"}
"""Packages that are built from their source: pure Python, with the build system of build.in."""


def pinned(lock: Path) -> Mapping[NormalizedName, Version]:
    """Read a lock file."""
    lines = [line for line in lock.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    found = {}
    for entry in re.split(r"\n(?=\S)", "\n".join(lines).strip()):
        read = ENTRY.fullmatch(entry)
        assert read is not None, f"a line of {lock.name} that pins nothing: {entry}"
        found[canonicalize_name(read["name"])] = Version(read["version"])
    return found


def asked_for() -> dict[Path, list[Requirement]]:
    """Return what pyproject.toml asks for, for the image, and what build.in does, by lock file."""
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    asked = [Requirement(text) for text in (*project["dependencies"], *extras["run"], *extras["web"])]
    build = [line for line in (DEPLOY / "image" / "build.in").read_text("utf-8").splitlines() if line]
    return {
        REQUIREMENTS: [one for one in asked if one.name != project["name"]],
        BUILD: [Requirement(line) for line in build if not line.startswith("#")],
    }


def test_a_lock_satisfies_what_is_asked_for() -> None:
    for lock, requirements in asked_for().items():
        pins = pinned(lock)
        for one in requirements:
            version = pins.get(canonicalize_name(one.name))
            assert version is not None, f"{one}: run deploy/image/lock"
            assert one.specifier.contains(version), f"{one}: run deploy/image/lock"
    system = {str(Requirement(one)) for one in PYPROJECT["build-system"]["requires"]}
    assert system <= {str(one) for one in asked_for()[BUILD]}, "the build has the build system of the package"


@pytest.mark.server
@pytest.mark.parametrize("machine", MACHINES)
def test_every_package_has_a_file_for_each_architecture_and_needs_no_compiler(machine: str) -> None:
    """Each file has one of the hashes of the lock; pip compares them."""
    python = re.search(r"python:(3\.\d+)", rests("ARG")[0])
    assert python is not None
    try:
        files = sorted(path.name for path in wheelhouse((REQUIREMENTS, BUILD), python[1], machine).iterdir())
    except WheelhouseError as error:
        if not error.is_offline:
            raise
        pytest.skip(f"the package index cannot be reached: {error}")
    wheels = {parse_wheel_filename(name)[0] for name in files if name.endswith(".whl")}
    archives = {parse_sdist_filename(name)[0] for name in files if not name.endswith(".whl")}
    assert archives == WITHOUT_WHEELS
    assert wheels | archives == {*pinned(REQUIREMENTS), *pinned(BUILD)}
