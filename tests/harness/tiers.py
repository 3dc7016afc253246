"""The two marks that divide the tests into tiers, and the guard that holds the fast tier to what it promises.

`server`: the test starts a process (a nats-server, the program itself, the nats CLI, Docker).
`slow`: the test starts no server, and is too long for a tier that is run after every edit.
What has neither mark is the fast tier: `.venv/bin/pytest -n 2 -m "not server and not slow"`.

The rule: whatever tier is run, a test without a mark that starts a process fails.
Structure: an audit hook of the interpreter sees each start, however it is written, before it happens; a start that
the code under test takes for an error of its own is reported when the test is over.
Limit: an audit hook cannot be removed again, so that there is one, and a test switches it on and off.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

SERVER_FIXTURES = frozenset(
    {"start_server", "shared_server", "emulated_server", "native_server", "nats_cli", "sides", "account", "served"}
)
"""Fixtures that start a process: each test that asks for one has the mark `server`, without writing it."""
SERVER_FOLDERS = frozenset({"e2e", "nemesis", "differential"})
"""Folders of `tests/` where every test has the mark `server`."""

STARTS_OF_PROCESSES = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system"})
"""Audit events of the interpreter; asyncio's subprocesses and multiprocessing end in one of them."""


class ProcessStartedError(RuntimeError):
    """A test without a mark started a process: it starts none, or it gets `pytest.mark.server` (or `slow`)."""


_guards: list[list[str]] = []
"""What the guard of the running test has refused; empty while no guard is on."""


def mark_servers(items: list[pytest.Item]) -> None:
    """Give the mark `server` to each test that asks for a fixture that starts a process, and to whole folders."""
    for item in items:
        if item.path.parent.name in SERVER_FOLDERS or SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")


def long_files_first(items: list[pytest.Item]) -> None:
    """Move the files with tests that are not fast to the front: a long file that begins last is waited for alone.

    Each worker takes one file after the other, in the order of `items` (`--no-loadscope-reorder`).
    """
    long = {item.path for item in items if not is_fast(item)}
    items.sort(key=lambda item: item.path not in long)


def sample(seeds: range, fast: int) -> list[Any]:
    """Return the seeds as parameters; all but the first few have the mark `slow`."""
    return [seed if seed < fast else pytest.param(seed, marks=pytest.mark.slow) for seed in seeds]


def is_fast(item: pytest.Item) -> bool:
    """Return whether a test belongs to the fast tier."""
    return item.get_closest_marker("server") is None and item.get_closest_marker("slow") is None


@contextmanager
def no_process_starts() -> Iterator[list[str]]:
    """Refuse each start of a process with ProcessStartedError; the list that is given collects what was refused."""
    _install_hook()
    refused: list[str] = []
    _guards.append(refused)
    try:
        yield refused
    finally:
        _guards.remove(refused)


@cache
def _install_hook() -> None:
    sys.addaudithook(_refuse_starts)


def _refuse_starts(event: str, arguments: tuple[Any, ...]) -> None:
    if _guards and event in STARTS_OF_PROCESSES:
        start = f"{event} {arguments[:2]}"
        _guards[-1].append(start)
        raise ProcessStartedError(start)
