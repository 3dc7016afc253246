"""The lock files of the image: in step with what is asked for, and good for each architecture of the image."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

from tests.deploy.files import ROOT, rests
from tests.deploy.locks import BUILD, BUILD_INPUT, REQUIREMENTS, pinned
from tests.harness.wheelhouse import WheelhouseError, wheelhouse

MACHINES = ("x86_64", "aarch64")
"""Those of the command in docs/operating/deploy.md, by the names that wheels have for them."""
WITHOUT_WHEELS = {"nkeys"}
"""Packages that are built from their source: pure Python, with the build system of build.in."""


def asked_for() -> list[Requirement]:
    """Return what pyproject.toml asks for, for the image."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    return [Requirement(text) for text in (*project["dependencies"], *project["optional-dependencies"]["web"])]


def asked_for_by_the_build() -> list[Requirement]:
    """Return what build.in asks for."""
    lines = BUILD_INPUT.read_text("utf-8").splitlines()
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


@pytest.mark.parametrize(
    ("lock", "requirement"),
    [*((REQUIREMENTS, one) for one in asked_for()), *((BUILD, one) for one in asked_for_by_the_build())],
    ids=str,
)
def test_a_lock_satisfies_what_is_asked_for(lock: Path, requirement: Requirement) -> None:
    pins = pinned(lock)
    name = canonicalize_name(requirement.name)
    assert name in pins, "run deploy/image/lock"
    assert requirement.specifier.contains(pins[name].version), "run deploy/image/lock"


def test_the_build_has_the_build_system_of_the_package() -> None:
    system = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]
    assert {str(one) for one in map(Requirement, system["requires"])} <= {str(one) for one in asked_for_by_the_build()}


@pytest.mark.parametrize(
    "line",
    ["rich", "rich==15.0.0", "rich>=15 \\\n    --hash=sha256:" + "a" * 64, "--index-url https://example.com"],
)
def test_a_line_that_pins_nothing_is_seen(tmp_path: Path, line: str) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text(f"{REQUIREMENTS.read_text('utf-8')}{line}\n")
    with pytest.raises(AssertionError, match="pins nothing"):
        pinned(lock)


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
