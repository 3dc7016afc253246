"""The programs of `docs/examples/clients/`, made ready to run by the tools of their languages.

Its rule: where the machine has no such tool, or the tool reaches no registry, the test is skipped with the reason;
whatever else a tool refuses, such as a lock file that does not fit or a program that does not compile, fails the test.
A program is built in a copy of its folder in `.cache/clients/`, so that only the first run on a machine takes long.
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.harness.nats_cli import nats_cli_binary

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "docs" / "examples" / "clients"
CACHE = ROOT / ".cache" / "clients"

BUILD_SECONDS = 1_200.0
"""Longest download and compilation."""
UNREACHABLE = re.compile(
    r"npm error code (E40[134]|E5\d\d|ECONN\w+|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|E(HOST|NET)UNREACH|ERR_SOCKET_TIMEOUT)"
    r"|dial tcp|no such host|i/o timeout|TLS handshake|: (40[134]|5\d\d) [A-Z]"
    r"|No plugin found for prefix|Could not (transfer|find) artifact|was not found in \S+ during a previous attempt"
    r"|failed to download|download of \S+ failed"
)
"""The output of npm, go, mvn and cargo if the registry does not answer, or does not have the client."""


@dataclass(frozen=True)
class Program:
    """A program to start: its command, and what its environment has besides the usual."""

    command: list[str]
    """Begins with a path."""
    env: Mapping[str, str] = field(default_factory=dict)


def nats_cli(folder: Path) -> Program:
    """The script, with the CLI under test as the `nats` on its path."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "nats").symlink_to(nats_cli_binary())
    script = PROGRAMS / "nats-cli" / "due_orders.sh"
    return Program(["/bin/sh", str(script)], {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"})


def nats_py(_folder: Path) -> Program:
    """The program, with the nats-py of the project."""
    return Program([sys.executable, str(PROGRAMS / "nats-py" / "due_orders.py")])


def faststream(_folder: Path) -> Program:
    """The program, with the FastStream of the extra `deep`."""
    if find_spec("faststream") is None:
        pytest.skip("no FastStream: pip install -e '.[deep]'")
    return Program([sys.executable, str(PROGRAMS / "faststream" / "due_orders_app.py")])


def built(name: str, build: Sequence[str], command: Sequence[str], _folder: Path) -> Program:
    """Build a program, and return how it is started; `{}` stands for the folder with it."""
    for tool in (build[0], command[0]):
        if "{}" not in tool and shutil.which(tool) is None:
            pytest.skip(f"no {tool} on the path")
    place = CACHE / name
    place.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # no other run of the tests builds it meanwhile; freed when the file closes
        shutil.copytree(PROGRAMS / name, place, dirs_exist_ok=True)
        made = subprocess.run(build, cwd=place, text=True, capture_output=True, timeout=BUILD_SECONDS, check=False)
    said = made.stdout + made.stderr
    if made.returncode and (missing := UNREACHABLE.search(said)):
        pytest.skip(f"{build[0]} cannot fetch what the program needs: {missing[0]}")
    assert made.returncode == 0, f"{' '.join(build)} ended with {made.returncode}:\n{said}"
    program, *arguments = (word.replace("{}", str(place)) for word in command)
    return Program([shutil.which(program) or program, *arguments], {"NODE_NO_WARNINGS": "1"})


CLIENTS: dict[str, Callable[[Path], Program]] = {
    "nats-cli": nats_cli,
    "nats-py": nats_py,
    "nats-js": partial(
        built, "nats-js", ["npm", "ci", "--ignore-scripts", "--no-audit"], ["node", "{}/due_orders.mjs"]
    ),
    "nats-go": partial(built, "nats-go", ["go", "build", "-o", "due-orders", "."], ["{}/due-orders"]),
    "nats-java": partial(
        built,
        "nats-java",
        ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=packages"],
        ["java", "-cp", "{}/packages/*", "{}/DueOrders.java"],
    ),
    "nats-rust": partial(built, "nats-rust", ["cargo", "build", "--locked"], ["{}/target/debug/due-orders"]),
    "faststream": faststream,
}
"""The client of each folder of `docs/examples/clients/`."""
