"""The lock files of the image are in step with what is asked for."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from tests.deploy.files import DEPLOY, ROOT

IMAGE = DEPLOY / "image"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))


def pinned(lock: Path) -> dict[NormalizedName, Version]:
    """Read a lock file."""
    found = re.findall(r"^([\w.-]+)(?:\[[a-z,]+\])?==([^\s;]+)", lock.read_text("utf-8"), re.M)
    return {canonicalize_name(name): Version(version) for name, version in found}


def test_a_lock_satisfies_what_is_asked_for() -> None:
    project = PYPROJECT["project"]
    extras = project["optional-dependencies"]
    of_build = (IMAGE / "build.in").read_text("utf-8").splitlines()
    asked_for = {
        "requirements.lock": [*project["dependencies"], *extras["run"], *extras["web"]],
        "build.lock": [*PYPROJECT["build-system"]["requires"], *(one for one in of_build if one and one[0] != "#")],
    }
    for lock, texts in asked_for.items():
        pins = pinned(IMAGE / lock)
        for one in map(Requirement, texts):
            if one.name != project["name"]:
                version = pins.get(canonicalize_name(one.name))
                assert version is not None, f"{one}: run deploy/image/lock"
                assert one.specifier.contains(version), f"{one}: run deploy/image/lock"
