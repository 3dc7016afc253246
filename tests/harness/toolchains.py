"""The programs of `docs/examples/clients/`, made ready to run by the tools of their languages.

Its rule: where the machine has no such tool, or the tool reaches no registry, the test is skipped with the reason;
whatever else a tool refuses, such as a lock file that does not fit or a program that does not compile, fails the test.
What is built stays in `.cache/clients/` of the checkout, so that only the first run on a machine waits for it: a few
seconds for npm and Maven, and up to a minute for Go and Rust. What is fetched stays there too, except what Cargo and
Maven keep where their settings are, in the home of the user.
"""

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.harness.nats_cli import nats_cli_binary

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "docs" / "examples" / "clients"
CACHE = ROOT / ".cache" / "clients"

FETCH_SECONDS = 120.0
"""Longest wait for a registry."""
BUILD_SECONDS = 1_200.0
"""Longest compilation, of the standard library too."""
OLDEST = {"node": (20, 0), "javac": (17, 0), "cargo": (1, 89)}
"""The oldest version of a tool that the packages of a program were seen to run with, or ask for."""
UNREACHABLE = re.compile(
    r"npm error code (E40[134]|E5\d\d|ECONN\w+|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|E(HOST|NET)UNREACH|ERR_SOCKET_TIMEOUT)"
    r"|dial tcp|no such host|i/o timeout|TLS handshake|: (40[134]|5\d\d) [A-Z]"
    r"|No plugin found for prefix|Could not (transfer|find) artifact|was not found in \S+ during a previous attempt"
    r"|failed to download|download of \S+ failed"
)
"""The output of npm, go, mvn and cargo if the registry does not answer, or does not have the client."""
TOO_OLD = re.compile(r"requires go >= |invalid go version")
"""The output of a go that is older than the program asks for; one before 1.21 cannot read its version."""


@dataclass(frozen=True)
class Program:
    """A program to start: its command, and what its environment has besides the usual."""

    command: list[str]
    env: Mapping[str, str] = field(default_factory=dict)


def nats_cli(folder: Path) -> Program:
    """The script, with the CLI under test as the `nats` on its path."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "nats").symlink_to(nats_cli_binary())
    script = PROGRAMS / "nats-cli" / "due_orders.sh"
    return Program([found("sh"), str(script)], {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"})


def nats_py(_folder: Path) -> Program:
    """The program, with the nats-py of the project."""
    return Program([sys.executable, str(PROGRAMS / "nats-py" / "due_orders.py")])


def faststream(_folder: Path) -> Program:
    """The program, with the FastStream of the extra `deep`."""
    if find_spec("faststream") is None:
        pytest.skip("no FastStream: pip install -e '.[deep]'")
    return Program([sys.executable, str(PROGRAMS / "faststream" / "due_orders_app.py")])


def nats_js(folder: Path) -> Program:
    """A copy of the program beside the packages of its lock file: Node looks for them in the folder of the program."""
    node, modules = found("node"), npm_packages(PROGRAMS / "nats-js")
    program = folder / "nats-js"
    program.mkdir()
    (program / "node_modules").symlink_to(modules)
    shutil.copy(PROGRAMS / "nats-js" / "due_orders.mjs", program)
    return Program([node, str(program / "due_orders.mjs")], {"NODE_NO_WARNINGS": "1"})


def nats_go(_folder: Path) -> Program:
    """The program as `go build` makes it."""
    return Program([str(go_binary(PROGRAMS / "nats-go"))])


def nats_java(_folder: Path) -> Program:
    """The source of the program, which Java compiles as it starts, with the packages of its `pom.xml`."""
    source = PROGRAMS / "nats-java"
    found("javac")  # a runtime alone compiles nothing
    starts_sooner = "-XX:TieredStopAtLevel=1"  # half the CPU: a program of some seconds gains nothing by optimising
    packages = f"{maven_packages(source)}/*"
    return Program([found("java"), starts_sooner, "-cp", packages, str(source / "DueOrders.java")])


def nats_rust(_folder: Path) -> Program:
    """The program as `cargo build` makes it."""
    return Program([str(cargo_binary(PROGRAMS / "nats-rust"))])


CLIENTS: dict[str, Callable[[Path], Program]] = {
    "nats-cli": nats_cli,
    "nats-py": nats_py,
    "nats-js": nats_js,
    "nats-go": nats_go,
    "nats-java": nats_java,
    "nats-rust": nats_rust,
    "faststream": faststream,
}
"""The client of each folder of `docs/examples/clients/`."""


def npm_packages(source: Path) -> Path:
    """Install what the lock file of a folder names, and return the `node_modules` with it."""
    npm = found("npm")
    files = [source / "package.json", source / "package-lock.json"]
    packages = CACHE / f"npm-{digest(files)}"
    with locked(CACHE / "npm.lock"):
        if not packages.is_dir():
            unfinished = CACHE / "npm-unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir()
            for file in files:
                shutil.copy(file, unfinished)
            quick = ["--ignore-scripts", "--engine-strict=false", "--no-audit", "--no-fund", "--loglevel=error"]
            once = {"npm_config_fetch_retries": "1", "npm_config_fetch_retry_mintimeout": "1000"}
            fetch([npm, "ci", *quick], unfinished, {"npm_config_cache": str(CACHE / "npm"), **once})
            unfinished.rename(packages)
    return packages / "node_modules"


def go_binary(source: Path) -> Path:
    """Build the program of a folder from exactly the modules of its `go.sum`, and return the binary."""
    go = found("go")
    binary = CACHE / f"go-{digest(sorted(source.iterdir()))}"
    own = {
        "GOMODCACHE": str(CACHE / "go-modules"),
        "GOCACHE": str(CACHE / "go-build"),
        "GOFLAGS": "-modcacherw -mod=readonly -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
        "CGO_ENABLED": "0",  # to compile the standard library takes half as long then
    }
    with locked(CACHE / "go.lock"):
        if not binary.is_file():
            fetch([go, "mod", "download"], source, own)
            unfinished = CACHE / "go-unfinished"
            build([go, "build", "-o", str(unfinished), "."], source, {**own, "GOPROXY": "off"})
            unfinished.rename(binary)
    return binary


def maven_packages(source: Path) -> Path:
    """Fetch what the `pom.xml` of a folder names, and return the folder with the packages."""
    maven = found("mvn")
    packages = CACHE / f"maven-{digest([source / 'pom.xml'])}"
    with locked(CACHE / "maven.lock"):
        if not packages.is_dir():
            unfinished = CACHE / "maven-unfinished"
            shutil.rmtree(unfinished, ignore_errors=True)
            fetch([maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={unfinished}"], source, {})
            unfinished.rename(packages)
    return packages


def cargo_binary(source: Path) -> Path:
    """Build the program of a folder from exactly the packages of its `Cargo.lock`, and return the binary."""
    cargo = found("cargo")
    binary = CACHE / f"cargo-{digest([source / 'Cargo.toml', source / 'Cargo.lock', source / 'src' / 'main.rs'])}"
    own = {
        "CARGO_TARGET_DIR": str(CACHE / "cargo-build"),
        # Takes less time, and half the disk.
        "CARGO_PROFILE_DEV_DEBUG": "0",
        "CARGO_INCREMENTAL": "0",
    }
    with locked(CACHE / "cargo.lock"):
        if not binary.is_file():
            fetch([cargo, "fetch", "--locked"], source, own)
            build([cargo, "build", "--locked", "--offline"], source, own)
            built = CACHE / "cargo-build" / "debug" / "due-orders"
            built.rename(binary)
    return binary


def fetch(command: list[str], folder: Path, env: Mapping[str, str]) -> None:
    """Run the step of a tool that needs a registry; skips the test if there is none, or the tool is too old."""
    try:
        result = _run(command, folder, env, FETCH_SECONDS)
    except subprocess.TimeoutExpired as error:
        pytest.skip(f"{Path(command[0]).name} waits for a registry: {error}")
    said = result.stdout + result.stderr
    if result.returncode != 0 and (missing := (UNREACHABLE.search(said) or TOO_OLD.search(said))):
        line = next(line for line in said.splitlines() if missing[0] in line)
        pytest.skip(f"{Path(command[0]).name} cannot fetch what the program needs: {line.strip()}")
    _check(result)


def build(command: list[str], folder: Path, env: Mapping[str, str]) -> None:
    """Run the step of a tool that needs nothing but what was fetched: it has to end well."""
    _check(_run(command, folder, env, BUILD_SECONDS))


def _run(command: list[str], folder: Path, env: Mapping[str, str], seconds: float) -> subprocess.CompletedProcess[str]:
    own = {**os.environ, **env}
    return subprocess.run(command, cwd=folder, env=own, text=True, capture_output=True, timeout=seconds, check=False)


def _check(result: subprocess.CompletedProcess[str]) -> None:
    said = f"{' '.join(result.args)} ended with {result.returncode}:\n{result.stdout}{result.stderr}"
    assert result.returncode == 0, said


def found(tool: str) -> str:
    """Find a tool on the path; skips the test if there is none, or it is too old."""
    path = shutil.which(tool)
    if path is None:
        pytest.skip(f"no {tool} on the path")
    if oldest := OLDEST.get(tool):
        said = subprocess.run([path, "--version"], text=True, capture_output=True, timeout=30.0, check=True).stdout
        version = re.search(r"(\d+)(?:\.(\d+))?", said)
        assert version is not None, f"{tool} --version says {said!r}"
        if (int(version[1]), int(version[2] or 0)) < oldest:
            pytest.skip(f"{tool} {version[0]} is older than {oldest[0]}.{oldest[1]}")
    return path


def digest(files: list[Path]) -> str:
    """Return a name for the content of some files."""
    content = hashlib.sha256()
    for file in files:
        content.update(file.name.encode() + b"\0" + file.read_bytes() + b"\0")
    return content.hexdigest()[:16]


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other test runs of this checkout from the same work meanwhile."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # freed when the file closes
        yield
