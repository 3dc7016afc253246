"""The files that the lock files of the image name, in a folder, for builds without any network.

Its rule: each file has one of the hashes of the lock, and is for the Python and the architecture of the image, whatever
this process runs on.
They are fetched once from the package index that pip is set up with, and kept in `.cache/containers/`.
"""

import hashlib
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.harness.base_image import kept

NEWEST_GLIBC = 36
"""The minor version of the C library in Debian 12: wheels that ask for a newer one cannot be used."""
OFFLINE = re.compile(r"Retrying \(Retry|ConnectionError|ConnectTimeout|ReadTimeout|Name or service not known")
"""The output of pip if it does not reach the index."""
FETCH_SECONDS = 600.0
"""Longest run of pip for one lock file."""


class WheelhouseError(Exception):
    """The files cannot be fetched; says why, and whether it is because the package index cannot be reached."""

    def __init__(self, reason: str, *, is_offline: bool) -> None:
        super().__init__(reason)
        self.is_offline = is_offline


def wheelhouse(locks: tuple[Path, ...], python: str, machine: str = platform.machine()) -> Path:
    """Return the folder with all files of the locks for a Python such as "3.12"; raises WheelhouseError."""
    key = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()[:12]

    def make(_folder: Path, made: Path) -> None:
        for lock in locks:
            fetch(lock, python, machine, made)

    return kept(f"wheels-{python}-{machine}-{key}", make)


def fetch(lock: Path, python: str, machine: str, folder: Path) -> None:
    """Fetch the files of one lock into a folder; raises WheelhouseError."""
    options = ["--quiet", "--disable-pip-version-check", "--no-deps", "--require-hashes", "--dest", str(folder)]
    target = ["--implementation", "cp", "--python-version", python, *platforms(machine)]
    command = [sys.executable, "-m", "pip", "download", *options, *target, "--requirement", str(lock)]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise WheelhouseError(f"pip took longer than {FETCH_SECONDS:g} s", is_offline=True) from error
    if answer.returncode != 0:
        reason = f"pip failed: {' / '.join(answer.stderr.splitlines()[-3:])}"
        raise WheelhouseError(reason, is_offline=OFFLINE.search(answer.stderr) is not None)


def platforms(machine: str) -> Iterator[str]:
    """Give the options of pip for the wheels that run on Debian 12."""
    for tag in ("manylinux2014", *(f"manylinux_2_{minor}" for minor in range(17, NEWEST_GLIBC + 1))):
        yield from ("--platform", f"{tag}_{machine}")
