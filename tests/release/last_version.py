"""The version before this one, built from the history of this repository.

Nothing is published yet, so the last version is a commit; once a release has a tag, the tag goes here.

Its rule: it is the distribution of that commit, installed in a folder of its own; what it needs of others is what this
version has installed.
"""

import subprocess
import sys
from pathlib import Path

from tests.nemesis.instance import Program
from tests.release.building import ROOT, build

LAST_VERSION = "0.1.0"
LAST_COMMIT = "b6261a477f108b681aa687415a840dd10fa35e9c"
START = "from nats_scheduler.cli.main import main; main()"
BUILD_SECONDS = 300.0


def last_version(folder: Path) -> Program | str:
    """Build the last version in a folder and install it there; returns why that cannot be done if so."""
    found = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "--verify", "--quiet", f"{LAST_COMMIT}^{{commit}}"],
        capture_output=True,
        check=False,
    )
    if found.returncode:
        return f"the history of this checkout has no commit {LAST_COMMIT}, which is version {LAST_VERSION}"
    archive, sources, modules = folder / "last.tar", folder / "last", folder / "last-installed"
    sources.mkdir(parents=True)
    subprocess.run(["git", "-C", str(ROOT), "archive", "--output", str(archive), LAST_COMMIT], check=True)
    subprocess.run(["tar", "-xf", str(archive), "-C", str(sources)], check=True)
    wheel = build(sources, folder / "last-built", "wheel")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(modules), str(wheel)]
    subprocess.run(pip, check=True, timeout=BUILD_SECONDS)
    return Program((sys.executable, "-P", "-c", START), modules)
