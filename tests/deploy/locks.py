"""The lock files of the image, read.

The rule: every line is understood, so that a line which pins nothing is an error and is not passed over.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.utils import NormalizedName, canonicalize_name
from packaging.version import Version

from tests.deploy.files import DEPLOY

REQUIREMENTS = DEPLOY / "image" / "requirements.lock"
BUILD = DEPLOY / "image" / "build.lock"
BUILD_INPUT = DEPLOY / "image" / "build.in"

_ENTRY = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(\[[a-z,]+\])?==(?P<version>[^\s;]+)(?: ; (?P<marker>[^\\]+?))?"
    r"(?P<hashes>(?: \\\n    --hash=sha256:[0-9a-f]{64})+)"
)


@dataclass(frozen=True, slots=True)
class Pin:
    """One package of a lock file."""

    version: Version
    marker: Marker | None
    hashes: tuple[str, ...]


def pinned(lock: Path) -> Mapping[NormalizedName, Pin]:
    """Read a lock file."""
    lines = [line for line in lock.read_text("utf-8").splitlines() if not line.lstrip().startswith("#")]
    found = {}
    for entry in re.split(r"\n(?=\S)", "\n".join(lines).strip()):
        read = _ENTRY.fullmatch(entry)
        assert read is not None, f"a line of {lock.name} that pins nothing: {entry}"
        marker = Marker(read["marker"]) if read["marker"] else None
        hashes = tuple(re.findall("sha256:([0-9a-f]{64})", read["hashes"]))
        found[canonicalize_name(read["name"])] = Pin(Version(read["version"]), marker, hashes)
    return found
