"""A stranger sends requests without end: the schedules of others fire, and others are answered.

Real servers, a real sidecar. What an attack may cost the sidecar is measured in what it does for others, and in its
memory. The stranger is a process of its own.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

import pytest

from nats_scheduler.control.errors import NoRespondersError
from nats_scheduler.message.headers import header_value
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.micro import MAX_UNSENT_BYTES
from nats_scheduler.settings.control_rules import ControlRule
from tests.conftest import StartServer
from tests.harness.account import Account, account_on
from tests.harness.flagged import Served, served_on
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11
from tests.harness.waiting import PATIENCE_SECONDS, eventually

FLOODING = Path(__file__).parent / "flooding.py"
RATE = 20_000
EVERY_SECONDS = 3
"""Longer than the pauses of a shared machine."""
FIRES = 2
"""Fires of the innocent schedule during an attack."""
MOST_GROWTH_MB = 48
"""Growth of the resident memory: without limits it is 30 MB a second."""
SUBJECTS = "nats_scheduler.v1"
PLENTY = 64
"""Requests of the busy client at a time."""


@pytest.fixture
async def innocent(start_server: StartServer) -> AsyncIterator[Served]:
    """Serve a schedule that fires every three seconds, on a server of its own."""
    server = await start_server(V2_11)
    async with served_on(server.url) as served:
        await served.schedule("canary", f"@every {EVERY_SECONDS}s", target="song")
        await served.wait_for("song")
        yield served


def resident_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


@contextmanager
def flood(served: Served, folder: Path, subject: str, *, kind: str = "one", body: str = "") -> Iterator[ChildProcess]:
    """Send `RATE` requests a second meanwhile."""
    host, _, port = served.url.partition("//")[2].partition(":")
    command = [sys.executable, str(FLOODING), host, port, str(RATE), kind, subject, body]
    with ChildProcess(command, folder, name="flooding") as child:
        yield child
        assert child.exit_code is None, child.stderr


async def sings_on(served: Served) -> None:
    """Wait for fires, and hold all of them against the grid."""
    fires = await served.wait_for("song", len(await served.messages("song")) + FIRES)
    await served.none_left_out(fires, "canary", EVERY_SECONDS * SECOND)


async def code_of(account: Account, endpoint: str, body: bytes = b"{}") -> int:
    """Ask once, and return the code of the answer, 0 for none."""
    reply = await account.connection.request(f"{SUBJECTS}.{endpoint}", body, deadline=PATIENCE_SECONDS)
    return int(header_value(reply.block, b"Nats-Service-Error-Code") or 0)


@asynccontextmanager
async def watching(served: Served, *endpoints: str) -> AsyncIterator[list[int]]:
    """Ask as another client all the time, and show in the end that each request that was received was answered."""
    codes: list[int] = []
    unsent, sidecar = 0, served.sidecar.sidecar

    async def ask(account: Account) -> None:
        nonlocal unsent
        while True:
            for endpoint in endpoints:
                with suppress(NoRespondersError):  # an endpoint that is flooded is not subscribed to for a moment
                    codes.append(await code_of(account, endpoint))
                assert sidecar.connection is not None
                unsent = max(unsent, sidecar.connection.unsent_bytes())

    async with account_on(served.url) as account:
        before = resident_mb()
        asking = asyncio.create_task(ask(account))
        yield codes
        await eventually(lambda: codes or asking.done(), describe="another client is answered")
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled(), asking.exception()
    assert set(codes) == {0}
    assert resident_mb() - before < MOST_GROWTH_MB
    assert unsent <= 2 * MAX_UNSENT_BYTES


async def test_discovery_that_is_asked_without_end_is_answered_in_part(innocent: Served, tmp_path: Path) -> None:
    connection = innocent.sidecar.sidecar.connection
    async with watching(innocent, "health.get"):
        with flood(innocent, tmp_path, "$SRV.INFO") as child:
            await child.wait_for_line("begun")
            await sings_on(innocent)
    told = await innocent.sidecar.told_of("requests_limited", subject="$SRV.INFO")
    assert (told["client"], told["unanswered"] > 0) == ("_INBOX.flood", True)
    await innocent.sidecar.shows("requests_dropped_total", 1)
    assert innocent.sidecar.sidecar.connection is connection, "the server has not cut it off"


@pytest.mark.parametrize(
    ("endpoint", "kind", "body"),
    [
        ("schedules.list", "one", '{"stream": "S"}'),
        ("check", "many", '{"pattern": "0 0 9 * * 1-5", "time_zone": "Europe/Dublin"}'),
    ],
)
async def test_while_one_client_asks_without_end_another_is_answered(
    innocent: Served, tmp_path: Path, endpoint: str, kind: str, body: str
) -> None:
    connection = innocent.sidecar.sidecar.connection
    async with watching(innocent, "health.get", *(["instances.list"] if kind == "one" else [])):
        with flood(innocent, tmp_path, f"{SUBJECTS}.{endpoint}", kind=kind, body=body) as child:
            await child.wait_for_line("begun")
            await sings_on(innocent)
    await innocent.sidecar.shows("requests_refused_total", 1)
    await innocent.sidecar.shows("requests_dropped_total", 1)
    assert innocent.sidecar.sidecar.connection is connection, "the server has not cut it off"


def cost(**headers: str) -> bytes:
    """Return the request to check a message, which costs what reading its headers does."""
    return json.dumps({"headers": {"Nats-Schedule-Target": "S.out", **headers}}).encode()


DEAR: dict[str, tuple[str, bytes]] = {
    "a rare pattern": ("schedules.next", b'{"pattern": "0 0 0 29 2 1", "time_zone": "Europe/Dublin", "count": 1000}'),
    "many headers": ("check", cost(**{"Nats-Schedule": "@every 1s"}, **{f"h{n}": "" for n in range(5_000)})),
    "deep": ("check", b'{"headers": ' + b'{"a":' * 9_000),
    "a search": (
        "schedules.list",
        json.dumps(
            {"stream": "S", "contains": "S" * 256, "owner": "S", "order": "target", "count": True, "limit": 1}
        ).encode(),
    ),
    "names": ("streams.list", json.dumps({"streams": [f"s{n}" for n in range(6_000)]}).encode()),
    "the content of a megabyte": ("content.get", b'{"stream": "S", "subject": "S.big"}'),
}


async def test_requests_that_cost_much_leave_fires_and_others_their_time(innocent: Served) -> None:
    """Each kind is sent as fast as it is answered."""
    await innocent.schedule("big", "@every 9h", target="never", body=b"\xff" * 1_000_000)
    answered: dict[str, int] = {}

    async def ask_again(account: Account, what: str) -> None:
        while True:
            with suppress(NoRespondersError):  # as above
                await code_of(account, *DEAR[what])
                answered[what] = answered.get(what, 0) + 1

    async with account_on(innocent.url) as account:
        tasks = [asyncio.create_task(ask_again(account, what)) for what in DEAR]
        async with watching(innocent, "health.get"):
            await sings_on(innocent)
            await eventually(
                lambda: answered.keys() == DEAR.keys(),
                within_seconds=3 * PATIENCE_SECONDS,
                describe=lambda: f"each of the dear ones is answered: {answered}",
            )
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends} == {asyncio.CancelledError}


# -- teams -------------------------------------------------------------------------------------------------------------

FOR = "nats_scheduler.control.v1.for"
LONG_EXCEPT = [
    ["Nats-Schedule", "* * * * * *"],
    ["Nats-Schedule-Time-Zone", "Europe/Dublin"],
    ["Nats-Schedule-X-Except", "2026-01-01..9998-12-31"],
    ["Nats-Schedule-Target", "S.busy.out"],
]
FAR = [["Nats-Schedule", "@at 2100-01-01T00:00:00Z"], ["Nats-Schedule-Target", "S.calm.out"]]


def team(name: str) -> ControlRule:
    """Return a rule that names no policies: all are allowed."""
    return ControlRule(
        name=name, streams=("S",), subjects=(f"S.{name}.s.>",), targets=(f"S.{name}.>",), changes_per_minute=60_000
    )


async def test_a_team_that_asks_without_end_leaves_others_their_places(
    start_server: StartServer,
) -> None:
    """Its requests store nothing, and cost as much as the policies that it may use."""
    server = await start_server(V2_11)
    answered: list[int] = []

    async def add(account: Account, name: str, headers: list[list[str]]) -> int:
        body = {"stream": "S", "subject": f"S.{name}.s.1", "headers": headers, "dry_run": True}
        subject = f"{FOR}.{name}.schedules.add"
        reply = await account.connection.request(subject, json.dumps(body).encode(), deadline=PATIENCE_SECONDS)
        return int(header_value(reply.block, b"Nats-Service-Error-Code") or 0)

    async def ask_again(account: Account) -> None:
        while True:
            answered.append(await add(account, "busy", LONG_EXCEPT))

    async with (
        served_on(server.url, control_rules=(team("busy"), team("calm"))) as served,
        account_on(served.url) as busy,
        account_on(served.url) as calm,
    ):
        await served.schedule("canary", f"@every {EVERY_SECONDS}s", target="song")
        await served.wait_for("song")
        tasks = [asyncio.create_task(ask_again(busy)) for _ in range(PLENTY)]
        async with watching(served, "health.get"):
            await eventually(lambda: answered, describe="the busy team is answered too")
            codes = [await add(calm, "calm", FAR) for _ in range(10)]
            await sings_on(served)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert set(codes) == {0}
    assert 429 in answered
