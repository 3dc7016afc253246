"""Build distributions of a source tree, and install them into environments of their own.

Its rule: nothing of this checkout is seen by what is installed: its interpreter starts with neither this folder nor a
variable of ours.
"""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EPOCH = 1_790_000_000
"""The time (s since the Unix epoch) that all files of a distribution get here."""
BUILD_SECONDS = 300.0
INSTALL_SECONDS = 420.0
"""Longest time for the installation of everything that is needed, from a slow index."""
UNREACHABLE = ("NewConnectionError", "NameResolutionError", "ConnectTimeoutError", "ProxyError")
"""The reports of pip if it has no connection to an index; a package that is not there is something else."""
OF_THE_TREE = ("nats_scheduler", "deploy", "docs", "tests")
FILES_OF_THE_TREE = ("CHANGELOG.md", "SECURITY.md", "LICENSE", "NOTICE", "README.md", "pyproject.toml", ".gitignore")


def build(sources: Path, out: Path, kind: str, epoch: int = EPOCH) -> Path:
    """Build the wheel or the source distribution (`kind`) of a tree, and return its file."""
    if find_spec("hatchling") is None:
        pytest.skip("no hatchling: pip install -e '.[deep]'")
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch)}
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", kind, "--directory", str(out)],
        cwd=sources,
        env=environment,
        check=True,
        capture_output=True,
        timeout=BUILD_SECONDS,
    )
    (built,) = out.glob("*.whl" if kind == "wheel" else "*.tar.gz")
    return built


def copied_tree(folder: Path) -> Path:
    """Copy what distributions are built of to another folder."""
    for name in OF_THE_TREE:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in FILES_OF_THE_TREE:
        if (ROOT / name).exists():  # a source distribution has its own .gitignore
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def interpreter(version: str) -> Path | None:
    """Find Python of a version such as 3.12, on the path or among those of pyenv; None if it is not here."""
    pyenv = sorted(Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python3"))
    named = shutil.which(f"python{version}")
    candidates = [Path(sys.executable), *pyenv, *([Path(named)] if named else [])]
    return next((one for one in candidates if _version_of(one) == version), None)


def _version_of(python: Path) -> str:
    program = "import sys, ssl, ensurepip; print('%d.%d' % sys.version_info[:2])"
    ran = subprocess.run([str(python), "-I", "-c", program], capture_output=True, text=True, check=False)
    return ran.stdout.strip()


class Installed:
    """An environment of its own, with what was installed there."""

    def __init__(self, python: Path, folder: Path) -> None:
        self.folder = folder
        if python == Path(sys.executable):
            venv.create(folder, symlinks=True, with_pip=False)
        else:
            subprocess.run([str(python), "-m", "venv", "--without-pip", str(folder)], check=True, timeout=BUILD_SECONDS)
        self.python = folder / "bin" / "python"

    def install(self, *wanted: str) -> None:
        """Install distributions with what they need, by our pip; what is imported is compiled then."""
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        command = [*pip, "install", "--quiet", "--no-compile", *wanted]
        ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=INSTALL_SECONDS)
        if ran.returncode and any(sign in ran.stderr for sign in UNREACHABLE):
            pytest.skip(f"no index of Python packages can be reached: {ran.stderr.strip().splitlines()[0]}")
        assert ran.returncode == 0, ran.stdout + ran.stderr

    def versions(self) -> dict[str, str]:
        """Return the distributions that are installed, by name."""
        program = (
            "import importlib.metadata as m, json; print(json.dumps({d.name: d.version for d in m.distributions()}))"
        )
        return dict(json.loads(self.run([str(self.python), "-I", "-c", program])))

    def command(self, *arguments: str) -> list[str]:
        """Name `nats-scheduler` of this environment."""
        return [str(self.folder / "bin" / "nats-scheduler"), *arguments]

    def environment(self) -> dict[str, str]:
        """Return variables without any of Python's or ours."""
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("NATS", "PYTHON"))}
        return {**kept, "HOME": str(self.folder), "XDG_CONFIG_HOME": str(self.folder / ".config")}

    def run(self, command: Sequence[str], seconds: float = 120.0) -> str:
        """Run a command outside of this checkout, and return what it prints; it has to succeed."""
        ran = self.ran(command, seconds)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    def ran(self, command: Sequence[str], seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
        """Run a command outside of this checkout, and return how it ended."""
        options: Any = {"cwd": self.folder, "env": self.environment(), "timeout": seconds, "check": False}
        return subprocess.run(command, capture_output=True, text=True, **options)
