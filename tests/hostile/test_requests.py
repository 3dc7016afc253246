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
from typing import Any

import pytest

from nats_scheduler.control.errors import NoRespondersError, SchedulerError
from nats_scheduler.message.headers import header_value
from nats_scheduler.service.micro import MAX_UNSENT_BYTES
from nats_scheduler.settings.control_rules import ControlRule
from tests.conftest import StartServer
from tests.harness.account import Account, account_on
from tests.harness.flagged import Served, served_on
from tests.harness.processes import ChildProcess
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

FLOODING = Path(__file__).parent / "flooding.py"
RATE = 60_000
FIRES = 5
"""Fires of the innocent schedule during an attack, one a second."""
MOST_GROWTH_MB = 48
"""Growth of the resident memory: before there were limits, 100 MB a second."""
SUBJECTS = "nats_scheduler.v1"
PLENTY = 64
"""Requests of the busy client at a time."""


@pytest.fixture
async def innocent(start_server: StartServer) -> AsyncIterator[Served]:
    """Serve a schedule that fires each second, on a server of its own."""
    server = await start_server(V2_11)
    async with served_on(server.url) as served:
        await served.schedule("canary", "@every 1s", target="song")
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
    await served.none_left_out(fires, "canary")


async def code_of(account: Account, endpoint: str, body: bytes = b"{}") -> int:
    """Ask once, and return the code of the answer, 0 for none."""
    reply = await account.connection.request(f"{SUBJECTS}.{endpoint}", body, deadline=30.0)
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


@pytest.mark.parametrize("verb", ["PING", "INFO", "STATS"])
async def test_discovery_that_is_asked_without_end_is_answered_in_part(
    innocent: Served, tmp_path: Path, verb: str
) -> None:
    connection = innocent.sidecar.sidecar.connection
    async with watching(innocent, "health.get"):
        with flood(innocent, tmp_path, f"$SRV.{verb}") as child:
            await child.wait_for_line("begun")
            await sings_on(innocent)
    told = await innocent.sidecar.told_of("requests_limited", subject=f"$SRV.{verb}")
    assert (told["client"], told["unanswered"] > 0) == ("_INBOX.flood", True)
    await innocent.sidecar.shows("requests_dropped_total", 1)
    assert innocent.sidecar.sidecar.connection is connection, "the server has not cut it off"


@pytest.mark.parametrize(
    ("endpoint", "kind", "body"),
    [
        ("health.get", "one", ""),
        ("check", "one", '{"pattern": "0 0 9 * * 1-5", "time_zone": "Europe/Dublin"}'),
        ("check", "many", '{"pattern": "0 0 9 * * 1-5", "time_zone": "Europe/Dublin"}'),
        ("schedules.list", "one", '{"stream": "S"}'),
        ("explain", "many", "{"),
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


async def test_a_client_with_many_requests_in_work_does_not_keep_others_from_being_answered(innocent: Served) -> None:
    answered: list[int] = []

    async def ask_again(account: Account) -> None:
        while True:
            answered.append(await code_of(account, "streams.modes"))

    async with account_on(innocent.url) as busy:
        tasks = [asyncio.create_task(ask_again(busy)) for _ in range(PLENTY)]
        async with watching(innocent, "health.get", "streams.list", "instances.list") as codes:
            await eventually(lambda: len(codes) >= 60, describe="another client is answered")
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ends} == {asyncio.CancelledError}
    assert set(answered) == {0, 429}


def cost(**headers: str) -> bytes:
    """Return the request to check a message, which costs what reading its headers does."""
    return json.dumps({"headers": {"Nats-Schedule-Target": "S.out", **headers}}).encode()


DEAR: dict[str, tuple[str, bytes]] = {
    "a rare pattern": ("next", b'{"pattern": "0 0 0 29 2 1", "time_zone": "Europe/Dublin", "count": 1000}'),
    "many headers": ("check", cost(**{"Nats-Schedule": "@every 1s"}, **{f"h{n}": "" for n in range(5_000)})),
    "deep": ("check", b'{"headers": ' + b'{"a":' * 9_000),
    "a search": (
        "schedules.list",
        json.dumps(
            {"stream": "S", "contains": "S" * 256, "owner": "S", "order": "target", "count": True, "limit": 1}
        ).encode(),
    ),
    "names": ("streams.list", json.dumps({"streams": [f"s{n}" for n in range(6_000)]}).encode()),
}


async def asked_eight_at_a_time(served: Served, endpoint: str, body: bytes) -> list[Any]:
    """Send a request as fast as it is answered while the innocent schedule sings on; return what was answered."""
    answered: list[Any] = []

    async def ask_again(account: Account) -> None:
        while True:
            try:
                answered.append(await code_of(account, endpoint, body))
            except SchedulerError as error:
                answered.append(error)

    async with account_on(served.url) as account:
        tasks = [asyncio.create_task(ask_again(account)) for _ in range(8)]
        async with watching(served, "health.get"):
            await sings_on(served)
            await eventually(lambda: len(answered) >= 8, describe="the dear ones are answered too")
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return answered


@pytest.mark.parametrize("what", DEAR)
async def test_requests_that_cost_much_leave_fires_and_others_their_time(innocent: Served, what: str) -> None:
    name, body = DEAR[what]
    answered = await asked_eight_at_a_time(innocent, "schedules.next" if name == "next" else name, body)
    assert {one for one in answered if not isinstance(one, int)} == set()


async def test_the_content_of_a_megabyte_that_is_asked_for_without_end_leaves_fires_and_others_their_time(
    innocent: Served,
) -> None:
    await innocent.schedule("big", "@every 9h", target="never", body=b"\xff" * 1_000_000)
    wanted = json.dumps({"stream": "S", "subject": "S.big"}).encode()

    async def is_known() -> bool:
        return await code_of(innocent.account, "content.get", wanted) == 0

    await eventually(is_known, describe="the sidecar knows S.big")
    answered = await asked_eight_at_a_time(innocent, "content.get", wanted)
    assert set(answered) <= {0, 429}


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


async def test_a_team_that_asks_without_end_leaves_the_others_their_places_and_the_fires_their_time(
    start_server: StartServer,
) -> None:
    """Its requests store nothing, and cost as much as the policies that it may use."""
    server = await start_server(V2_11)
    answered: list[int] = []

    async def add(account: Account, name: str, headers: list[list[str]]) -> int:
        body = {"stream": "S", "subject": f"S.{name}.s.1", "headers": headers, "dry_run": True}
        subject = f"{FOR}.{name}.schedules.add"
        reply = await account.connection.request(subject, json.dumps(body).encode(), deadline=30.0)
        return int(header_value(reply.block, b"Nats-Service-Error-Code") or 0)

    async def ask_again(account: Account) -> None:
        while True:
            answered.append(await add(account, "busy", LONG_EXCEPT))

    async with (
        served_on(server.url, control_rules=(team("busy"), team("calm"))) as served,
        account_on(served.url) as busy,
        account_on(served.url) as calm,
    ):
        await served.schedule("canary", "@every 1s", target="song")
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
