"""Fixtures that all tests share: servers of their own, servers shared by the whole run, and the nats CLI.

A test that restarts, kills or configures its server takes `start_server`; one that only needs *a* server of
a version takes `shared_server` (or `emulated_server`, `native_server`) and names its streams uniquely.
"""

import asyncio
import gc
import logging
import os
import secrets
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from nats_scheduler.runtime import embedded, wakes
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import MINUTE
from tests.harness.failures import sections_of
from tests.harness.leads import note_in, write_overtaken
from tests.harness.log_lines import JudgedLines, handled_by
from tests.harness.nats_cli import NatsCli, nats_cli_binary
from tests.harness.seeds import REPEAT, SEED
from tests.harness.servers import EMULATED_VERSIONS, NATIVE_VERSIONS, V2_11, server_binary
from tests.harness.tiers import (
    folders_left_out,
    is_fast,
    long_files_first,
    mark_deep,
    mark_fast,
    mark_servers,
    no_process_starts,
    select_the_usual_tier,
)
from tests.harness.turns import ports_of_this_worker, turn_of_this_worker

StartServer = Callable[..., Awaitable[EmbeddedServer]]
SharedServer = Callable[[str], Awaitable[EmbeddedServer]]

FOLDER = pytest.StashKey[Path]()
"""The temporary folder of the run."""
BEGUN = pytest.StashKey[float]()
"""The time (s since 1970) at which a case began."""

# Hypothesis measures time by default, and a busy machine may take any; what it draws is drawn again by the next run.
settings.register_profile(
    "any-machine",
    deadline=None,
    derandomize=not SEED,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("any-machine")

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # each worker and each process of a test would compile all modules anew
sys.dont_write_bytecode = False

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell ignores Ctrl-C for what it runs in the background, and the processes of the tests would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_configure(config: pytest.Config) -> None:
    """Run the usual tier where nothing else is asked for, with ports of its own for each worker."""
    select_the_usual_tier(config)
    embedded.PORTS = ports_of_this_worker(embedded.PORTS)
    if SEED:
        config.option.hypothesis_seed = str(SEED)
    if sys.version_info < (3, 12):
        # `asyncio.wait_for`, in which nats-py makes a connection, may lose what it waited for if it is cancelled at
        # that moment (mended in Python 3.12, where a socket that is not closed is an error as any other warning is).
        for message in ("unclosed", "loop is closed"):
            config.addinivalue_line("filterwarnings", f"ignore:{message}:ResourceWarning")


def pytest_report_header() -> str:
    """Say how the random inputs of this run are drawn again."""
    return f"random inputs: {REPEAT}"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import no folder of which nothing would be left: a third of the fast tier's start."""
    unwanted = folders_left_out(config.option.markexpr)
    return True if collection_path.parent.name == "tests" and collection_path.name in unwanted else None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect no garbage while modules are imported, and never look at them again: that is a sixth of the start."""
    gc.disable()
    try:
        with turn_of_this_worker():
            return (yield)
    finally:
        gc.enable()
        gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what starts a server before `-m` selects, and begin with the files that take long."""
    mark_servers(items)
    mark_deep(items)
    mark_fast(items)
    long_files_first(items)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note what the clock has overtaken, and show with a failure what the processes of the case wrote."""
    report = yield
    note_in(report)
    begun = item.stash.setdefault(BEGUN, call.start)
    if report.failed and (folder := item.config.stash.get(FOLDER, None)) is not None:
        report.sections.extend(sections_of(item, folder, begun))
    return report


@pytest.fixture(scope="session", autouse=True)
def _folder_of_the_run(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[None]:
    """Have all temporary files in the folder of the run: no sidecar of a test uses the folder of one of the user's."""
    pytestconfig.stash[FOLDER] = folder = tmp_path_factory.getbasetemp()
    before, temporary = tempfile.tempdir, folder / "tmp"
    temporary.mkdir(0o700, exist_ok=True)
    tempfile.tempdir = str(temporary)
    yield
    tempfile.tempdir = before


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """List what was overtaken."""
    write_overtaken(terminalreporter)


@pytest.fixture(autouse=True)
def refused_starts(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Hold a test of the fast tier to starting no process; what it tried to start is listed here."""
    if not is_fast(request.node):
        yield []
        return
    with no_process_starts() as refused:
        yield refused
    assert refused == [], "a test that starts a process has the mark server (or slow): tests/harness/tiers.py"


@pytest.fixture(autouse=True)
def _pauses_change_no_outcome(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sidecar in the event loop of a test with a server be late after a pause of the machine, and no more.

    It would read everything anew after 1.5 s, and what is read so is not reported: another outcome than the one that
    the test is about. What a pause does is tested in `tests/runtime/`, and with sidecars of their own processes.
    """
    if request.node.get_closest_marker("server") is not None:
        monkeypatch.setattr(wakes, "CONTACT_STANDSTILL_LIMIT_NS", MINUTE)


@pytest.fixture
async def start_server(tmp_path: Path) -> AsyncIterator[StartServer]:
    """Start servers for this test alone: `await start_server(V2_10, config="…")`."""
    servers: list[EmbeddedServer] = []

    async def start(version: str = V2_11, *, config: str = "", tls_first: bool = False) -> EmbeddedServer:
        folder = tmp_path / f"server-{len(servers)}"
        server = EmbeddedServer(server_binary(version), folder, config=config, tls_first=tls_first)
        servers.append(server)
        await server.start()
        return server

    yield start
    for server in servers:
        await server.stop()


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedServer]:
    """Give the one server of a version that the whole run shares, started when first asked for."""
    servers: dict[str, EmbeddedServer] = {}

    async def share(version: str) -> EmbeddedServer:
        if version not in servers:
            folder = tmp_path_factory.mktemp(f"shared-{version}")
            servers[version] = EmbeddedServer(server_binary(version), folder)
        if servers[version].pid is None:
            await servers[version].start()
        return servers[version]

    async def stop_all() -> None:
        for server in servers.values():
            await server.stop()

    yield share
    asyncio.run(stop_all())


@pytest.fixture(params=EMULATED_VERSIONS)
async def emulated_server(request: pytest.FixtureRequest, shared_server: SharedServer) -> EmbeddedServer:
    """Run the test on a shared server of each version whose schedules the sidecar fires."""
    return await shared_server(request.param)


@pytest.fixture(params=NATIVE_VERSIONS)
async def native_server(request: pytest.FixtureRequest, shared_server: SharedServer) -> EmbeddedServer:
    """Run the test on a shared server of each version that fires flagged streams itself."""
    return await shared_server(request.param)


@pytest.fixture
def stream_name() -> str:
    """A name that no other test uses, for a stream (and its subjects) on a shared server."""
    return f"T{secrets.token_hex(5)}"


@pytest.fixture
def nats_cli(tmp_path: Path) -> NatsCli:
    """The real nats CLI with a home folder of its own; the test is skipped where there is none."""
    return NatsCli(nats_cli_binary(), tmp_path / "nats-home")


@pytest.fixture(autouse=True)
def _log_settings_of_its_own() -> Iterator[None]:
    """Undo what a command run in this process said of log lines: the next test may look at them.

    Until then each line of the test has to be one that the reference describes, with these fields.
    """
    judge = JudgedLines()
    with handled_by(judge, logging.DEBUG):
        yield
    assert judge.faults == []
