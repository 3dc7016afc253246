"""The nats-server versions under test, fetched once into the checkout and started on loopback.

Its rule: a test names a version by its constant here, never by a number of its own.
The cache is `.cache/nats-server/<version>/` of the checkout, ignored by git. One lock file per version lets
test runs beside each other fetch it once. Where pip cannot fetch (no network, no wheel for the platform),
the test is skipped with pip's reason: a laptop on a train still runs all other tests.
"""

import fcntl
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path

import pytest

from nats_scheduler.runtime.embedded import RELEASES, EmbeddedServer, EmbeddedServerError, find_server

V2_10 = RELEASES["2.10"]
"""No per-message TTL, no guard, no schedules; unknown stream fields are ignored."""
V2_11 = RELEASES["2.11"]
"""Per-message TTL and the guard (`Nats-Expected-Last-Subject-Sequence-Subject`); no schedules."""
V2_12 = RELEASES["2.12"]
"""Native `@at` schedules only."""
V2_14 = RELEASES["2.14"]
"""All native patterns."""
V2_15 = RELEASES["2.15"]
"""The newest server under test."""

EMULATED_VERSIONS = (V2_10, V2_11)
"""Where the sidecar fires `Nats-Schedule*` itself."""
NATIVE_VERSIONS = (V2_12, V2_14, V2_15)
"""Where the server fires flagged streams."""
ALL_VERSIONS = (*EMULATED_VERSIONS, *NATIVE_VERSIONS)

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "nats-server"


def server_binary(version: str) -> Path:
    """Find the binary of a version, fetching it when missing; skips the test when that is impossible."""
    found = _binary_or_reason(version)
    if isinstance(found, str):
        pytest.skip(f"nats-server {version} is not available: {found}")
    return found


@cache
def _binary_or_reason(version: str) -> Path | str:
    """Fetch under a lock, once per test run: a failure is remembered too, since pip takes long to give up."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / f"{version}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # freed when the file closes
        try:
            return find_server(version, CACHE)
        except EmbeddedServerError as error:
            return str(error)


@asynccontextmanager
async def running_server(version: str, store_dir: Path) -> AsyncIterator[EmbeddedServer]:
    """Run a server of a version with its store in `store_dir` for the length of a `with` block."""
    async with EmbeddedServer(server_binary(version), store_dir) as server:
        yield server


def reload_config(server: EmbeddedServer, config: str) -> None:
    """Give a running server another configuration; what it was started with on its command line has to stand there."""
    kept = f'server_name: "{server.name}"\njetstream {{ store_dir: "{server.store_dir}" }}\n'
    (server.store_dir / "nats-server.conf").write_text(kept + config, "utf-8")
    assert server.pid is not None, "the server runs"
    os.kill(server.pid, signal.SIGHUP)
