"""The real `nats` command line, for tests that type what a user types.

Its rule: commands run in a home folder of their own, so that no saved context of the machine reaches a test.
The CLI is in no package registry: it is taken from `NATS_CLI` or from the path, and must be 0.4.0 or later,
where the schedule flags came in.
"""

import asyncio
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.harness.processes import ChildProcess, clean_environment

OLDEST = (0, 4, 0)
"""The first version with `nats pub --schedule-at` and its kin."""
COMMAND_SECONDS = 30.0
"""Longest run of one command."""


class NatsCli:
    """The CLI pointed at one server; `home` is its home folder, where a test may save contexts."""

    def __init__(self, binary: Path, home: Path, url: str | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self.home = home
        self._binary = binary
        self._env = clean_environment(home) | ({"NATS_URL": url} if url else {})

    def at(self, url: str) -> "NatsCli":
        """Point the same CLI, with the same home folder, at a server."""
        return NatsCli(self._binary, self.home, url)

    async def run(
        self, *arguments: str, stdin: str = "", exit_code: int = 0, env: Mapping[str, str] | None = None
    ) -> str:
        """Run one command, check its exit code, and return its output, both streams."""
        result = await asyncio.to_thread(
            subprocess.run,
            [str(self._binary), *arguments],
            input=stdin,
            env={**self._env, **(env or {})},
            cwd=self.home,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=COMMAND_SECONDS,
            check=False,
        )
        said = f"nats {' '.join(arguments)} ended with {result.returncode}:\n{result.stdout}"
        assert result.returncode == exit_code, said
        return result.stdout

    def start(self, *arguments: str, name: str = "nats") -> ChildProcess:
        """Start a command that runs until it is ended, such as `sub`."""
        return ChildProcess([str(self._binary), *arguments], self.home, name=name, env=self._env)


def nats_cli_binary() -> Path:
    """Find the CLI; skips the test, with the reason, where there is none or it is too old."""
    found = _binary_or_reason()
    if isinstance(found, str):
        pytest.skip(found)
    return found


@cache
def _binary_or_reason() -> Path | str:
    wanted = ".".join(map(str, OLDEST))
    named = os.environ.get("NATS_CLI") or shutil.which("nats")
    if not named:
        return f"no nats CLI: set NATS_CLI or put nats {wanted} or later on the path"
    try:
        answer = subprocess.run([named, "--version"], capture_output=True, text=True, timeout=10.0, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        return f"the nats CLI {named!r} does not tell its version: {error}"
    said = (answer.stdout + answer.stderr).strip()
    version = re.search(r"(\d+)\.(\d+)\.(\d+)", said)
    if version is None or tuple(map(int, version.groups())) < OLDEST:
        return f"the nats CLI {named!r} is {said!r}, and the schedule flags came with {wanted}"
    return Path(named).resolve()
