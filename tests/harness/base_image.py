"""A base image without a registry: Debian with its own Python, put together from the mirror that apt uses.

Its rule: it stands in for the base that the Dockerfile names, so it holds what that one has and the Dockerfile needs:
`python` with venv, `useradd`, certificates. Its Python is Debian's, which is older than that of the real base.
It takes debootstrap about a minute, so the archive is kept in `.cache/containers/` of the checkout, under a name made
of what it was made of.
"""

import fcntl
import hashlib
import subprocess
from collections.abc import Callable
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "containers"

SUITE = "bookworm"
PYTHON = "3.11"
"""The version of Python in that Debian."""
PACKAGES = ("busybox", "ca-certificates", "passwd", "python3", "python3-venv")
"""The packages on top of Debian's smallest system; busybox has the `wget` of the server's image."""
MAKE_SECONDS = 600.0
"""Longest run of debootstrap."""

RECIPE = f"""set -eu
cd "$1"
unshare --mount debootstrap --variant=minbase --include={",".join(PACKAGES)} {SUITE} "$PWD/root" ${{3:+"$3"}} >&2
rm -rf root/var/cache/apt root/var/lib/apt/lists
ln -s /usr/bin/python3 root/usr/local/bin/python
tar --directory root --create --file "$2" .
"""


class BaseImageError(Exception):
    """The base image cannot be made here; says why."""


def base_archive() -> Path:
    """Return the file system of the base image as a tar file, made now unless it is cached; raises BaseImageError."""
    key = hashlib.sha256(RECIPE.encode()).hexdigest()[:12]
    return kept(f"base-{key}.tar", _make)


def kept(name: str, make: Callable[[Path, Path], None]) -> Path:
    """Return a file or folder of the cache; `make` makes it in a folder of its own, once for all runs."""
    CACHE.mkdir(parents=True, exist_ok=True)
    wanted, being_made = CACHE / name, CACHE / f"{name}.making"
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # freed when the file closes
        if not wanted.exists():
            _remove(being_made)
            being_made.mkdir()
            try:
                make(being_made, being_made / "made")
                (being_made / "made").rename(wanted)
            finally:
                _remove(being_made)
    return wanted


def mirror() -> str:
    """Return the address that apt has for this Debian; "", which is debootstrap's own, if apt has another suite."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", f"Release: {SUITE}", "Created-By: Packages"]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    return (answer.stdout.split() or [""])[0]


def _make(folder: Path, made: Path) -> None:
    command = ["sh", "-c", RECIPE, "make", str(folder), str(made), mirror()]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=MAKE_SECONDS, check=False)
    except subprocess.TimeoutExpired as error:
        raise BaseImageError(f"debootstrap took longer than {MAKE_SECONDS:g} s") from error
    if answer.returncode != 0:
        raise BaseImageError(f"debootstrap failed: {' / '.join(answer.stderr.splitlines()[-3:])}")


def _remove(folder: Path) -> None:
    subprocess.run(["rm", "-rf", "--one-file-system", str(folder)], check=True)
