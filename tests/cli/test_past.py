"""`nats-scheduler history` shows what a sidecar or a server fired, and how late, as a table and as a document."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.cli.history import lateness_text
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, SECOND
from tests.cli.conftest import Cli
from tests.cli.test_tables import on_a_terminal
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.log_lines import capture_logs
from tests.harness.servers import V2_10, V2_11, V2_15

EVERY_SECOND = {"Nats-Schedule": "@every 1s", "Nats-Schedule-Target": "S.out"}


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Keep the log of the sidecar out of the output of the command, which runs in the same process."""
    with capture_logs():
        yield


async def shown(cli: Cli, url: str, *arguments: str) -> dict[str, Any]:
    """Run `nats-scheduler history --json` in a thread, in which it has an event loop of its own."""
    said = await asyncio.to_thread(cli, "history", *arguments, "--json", "--server", url)
    document: dict[str, Any] = json.loads(said.stdout)
    assert said.exit_code == 0, document
    return document


async def fired_twice(account: Account) -> None:
    await account.publish("S.s", EVERY_SECOND)
    await account.wait_for("S", "S.out", 2)


@pytest.mark.parametrize("version", [V2_10, V2_11])
async def test_the_fires_of_a_sidecar_are_shown(cli: Cli, start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        async with sidecar_on(server.url) as running:
            await account.create("S")
            await running.ready("S")
            await fired_twice(account)
        stored = [message.sequence for message in await account.messages("S", "S.out")]
        document = await shown(cli, server.url, "S", "S.s")
        assert (document["searched"], document["complete"]) == ("S.out", True)
        assert [fire["sequence"] for fire in document["fires"]] == stored[::-1]
        assert {fire["fired_by"] for fire in document["fires"]} == {"sidecar"}
        assert [fire["next_fire"] for fire in document["fires"][1:]] == [
            fire["fire_time"] for fire in document["fires"][:-1]
        ]
        assert len((await shown(cli, server.url, "S", "S.s", "--limit", "1"))["fires"]) == 1
        assert (await shown(cli, server.url, "S", "S.s", "--since", "2200-01-01T00:00:00Z"))["fires"] == []
        assert (await shown(cli, server.url, "S", "S.s", "--since", "1h"))["fires"] == document["fires"]


async def test_the_fires_of_a_native_server_are_shown_on_80_columns(
    cli: Cli, start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_15)
    async with account_on(server.url) as account:
        await account.create("S")
        await fired_twice(account)
        document = await shown(cli, server.url, "S", "S.s")
        assert {fire["fired_by"] for fire in document["fires"]} == {"server"}
        text = await on_a_terminal(80, "history", "S", "S.s", "--server", server.url, home=tmp_path)
        lines = text.splitlines()
        assert max(map(len, lines)) <= 80
        assert lines[0].split()[:5] == ["fire", "time", "(UTC)", "late", "by"]
        assert re.search(r" (ms|s) +server ", lines[1])
        assert any("newest first, on S.out in S" in line for line in lines), text


async def test_fires_are_found_on_a_target_that_is_not_allowed_any_more(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        async with sidecar_on(server.url) as running:
            await account.create("S")
            await running.ready("S")
            await fired_twice(account)
        async with sidecar_on(server.url, allowed_targets=("S=S.other",)) as running:
            await running.ready("S")
            asked = await shown(cli, server.url, "S", "S.s")
        assert (asked["searched"], len(asked["fires"]) >= 2) == ("S.out", True)
        assert await shown(cli, server.url, "S", "S.s") == asked


async def test_fires_into_another_stream_are_found_there(cli: Cli, start_server: StartServer) -> None:
    """By a sidecar that is asked, and without one, whatever the command itself allows."""
    server = await start_server(V2_11)
    headers = {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-X-Target": "jobs.run"}
    async with account_on(server.url) as account:
        async with sidecar_on(server.url, allowed_targets_elsewhere=("S=jobs.>",)) as running:
            await account.create("S")
            await account.create("JOBS", subjects=["jobs.>"], allow_msg_schedules=False)
            await running.ready("S")
            await account.publish("S.s", headers)
            await account.wait_for("JOBS", "jobs.run", 2)
            asked = await shown(cli, server.url, "S", "S.s", "--limit", "1")
            table = await asyncio.to_thread(cli, "history", "S", "S.s", "--server", server.url)
        read = await shown(cli, server.url, "S", "S.s")
        await account.api.call("STREAM.PURGE.S", {})
        gone = await shown(cli, server.url, "S", "S.s", "--target", "jobs.run")
    for found in (asked, read, gone):
        assert (found["stream"], found["searched"]) == ("S", "jobs.run")
        assert {fire["stream"] for fire in found["fires"]} == {"JOBS"}
        assert {fire["schedule_sequence"] for fire in found["fires"]} == {1}
    assert "newest first, on jobs.run in JOBS" in table.stdout


async def test_a_schedule_that_never_fired_has_no_fires(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S")
        said = await asyncio.to_thread(cli, "history", "S", "S.s", "--server", server.url)
        assert (said.exit_code, said.stdout) == (0, "no fire of S.s is stored in S\n")
        missing = await asyncio.to_thread(cli, "history", "T", "T.s", "--server", server.url)
        assert (missing.exit_code, missing.stderr) == (1, "nats-scheduler: error: stream T does not exist\n")


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (("S.S", "S.s"), "the name of a stream"),
        (("S", "S.*"), "the subject of a schedule"),
        (("S", "S.s", "--since", "soon"), "a duration such as 2h"),
        (("S", "S.s", "--since", "-2h"), "a duration such as 2h"),
        (("S", "S.s", "--limit", "1001"), "1<=x<=1000"),
        (("S", "S.s", "--target", "a..b"), "a subject such as"),
    ],
)
def test_wrong_use_is_refused_with_what_was_expected(cli: Cli, wrong: tuple[str, ...], complaint: str) -> None:
    said = cli("history", *wrong)
    assert said.exit_code == 2
    assert complaint in said.stderr


def test_lateness_is_shown_in_milliseconds_or_in_longer_units() -> None:
    cases = {3 * MILLISECOND: "3.0 ms", 9 * SECOND: "9000.0 ms", 90 * SECOND: "1m30s", 90 * MINUTE: "1h30m0s"}
    assert {lateness: lateness_text(lateness) for lateness in cases} == cases
    assert lateness_text(None) == ""
