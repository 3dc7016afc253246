"""The marks that divide the tests into tiers, and the guard that holds the fast tier to what it promises.

`server`: the test starts a process (a nats-server, the program itself, the nats CLI, Docker).
`slow`: the test starts no server, and is too long for a tier that is run after every edit.
`deep`: the test needs a program that a newcomer does not have, or takes more time than what it finds is worth each day.
`fast`: none of these; every test that has no mark gets this one.

The tiers: `pytest -n 2 -m fast`; `pytest`, the usual one, which is all that is not `deep`; `pytest -m deep`. With a
path, `pytest` runs all that is there.

The rule: whatever tier is run, a test without a mark that starts a process fails.
Structure: an audit hook of the interpreter sees each start, however it is written, before it happens; a start that
the code under test takes for an error of its own is reported when the test is over.
Limit: an audit hook cannot be removed again, so that there is one, and a test switches it on and off.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.harness.servers import ALL_VERSIONS, V2_10, V2_11, V2_15

USUAL_TIER = "not deep"

SERVER_FIXTURES = frozenset(
    {"start_server", "shared_server", "emulated_server", "native_server", "nats_cli", "sides", "account", "served"}
)
"""Fixtures that start a process: each test that asks for one has the mark `server`, without writing it."""
SERVER_FOLDERS = frozenset({"e2e", "nemesis", "differential", "site"})
"""Folders of `tests/` where every test has the mark `server`."""

DEEP_FIXTURES = frozenset({"nats_cli"})
"""Fixtures that need a program that a newcomer does not have."""
DEEP_FOLDERS = frozenset({"deploy", "nemesis", "release", "site"})
"""Folders of `tests/` where every test has the mark `deep`."""
USUAL_VERSIONS = (V2_11, V2_15)
"""Servers of the usual tier: a case on another one is `deep` if the same test has one on a server of this tier."""
CONTRACT_VERSIONS = (V2_10, V2_15)
"""The same for `tests/contract/`, which shows what our fakes and the oldest and the newest server have in common."""

STARTS_OF_PROCESSES = frozenset({"subprocess.Popen", "os.posix_spawn", "os.fork", "os.exec", "os.system"})
"""Audit events of the interpreter; asyncio's subprocesses and multiprocessing end in one of them."""


class ProcessStartedError(RuntimeError):
    """A test without a mark started a process: it starts none, or it gets `pytest.mark.server` (or `slow`)."""


_guards: list[list[str]] = []
"""The calls that the guard of the running test has refused; empty while no guard is on."""


def mark_servers(items: list[pytest.Item]) -> None:
    """Give the mark `server` to each test that asks for a fixture that starts a process, and to whole folders."""
    for item in items:
        if item.path.parent.name in SERVER_FOLDERS or SERVER_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker("server")


def mark_fast(items: list[pytest.Item]) -> None:
    """Give the mark `fast` to each test that has none."""
    for item in items:
        if not any(item.get_closest_marker(mark) for mark in ("server", "slow", "deep")):
            item.add_marker("fast")


def mark_deep(items: list[pytest.Item]) -> None:
    """Give the mark `deep` to whole folders, to what needs a program, and to the cases of some servers."""
    usual = {_test_of(item) for item in items if not _is_on_another_server(item)}
    for item in items:
        is_repeated = _is_on_another_server(item) and _test_of(item) in usual
        needs = DEEP_FIXTURES & set(getattr(item, "fixturenames", ()))
        if is_repeated or needs or item.path.parent.name in DEEP_FOLDERS:
            item.add_marker("deep")


def _test_of(item: pytest.Item) -> tuple[Path, str]:
    return item.path, item.name.partition("[")[0]


def _is_on_another_server(item: pytest.Item) -> bool:
    """Return whether a case runs on a server that is not one of the usual tier."""
    usual = CONTRACT_VERSIONS if item.path.parent.name == "contract" else USUAL_VERSIONS
    versions = [version for version in ALL_VERSIONS if version in item.name]
    is_on_a_server = item.get_closest_marker("server") is not None
    return is_on_a_server and bool(versions) and not any(version in usual for version in versions)


def select_the_usual_tier(config: pytest.Config) -> None:
    """Leave out what is `deep` if a run names neither marks nor paths."""
    is_whole = config.args_source is not pytest.Config.ArgsSource.ARGS
    if is_whole and not config.option.markexpr:
        config.option.markexpr = USUAL_TIER


def long_files_first(items: list[pytest.Item]) -> None:
    """Move the files with tests that are not fast to the front: a long file that begins last is waited for alone.

    Each worker takes one file after the other, in the order of `items` (`--no-loadscope-reorder`).
    """
    long = {item.path for item in items if not is_fast(item)}
    items.sort(key=lambda item: item.path not in long)


def is_fast(item: pytest.Item) -> bool:
    """Return whether a test belongs to the fast tier."""
    return item.get_closest_marker("fast") is not None


def folders_left_out(wanted: str) -> frozenset[str]:
    """Return the folders of `tests/` of which nothing is `wanted`, the expression of `-m`."""
    if wanted == "fast":
        return SERVER_FOLDERS | DEEP_FOLDERS
    return DEEP_FOLDERS if wanted == USUAL_TIER else frozenset()


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
