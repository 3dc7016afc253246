"""`nats-scheduler next STREAM SUBJECT`: when a schedule fires next that is stored."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import Result

from nats_scheduler.message.timetable import delay_of
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import account_on, in_seconds
from tests.harness.servers import V2_11, V2_15

YEARLY = {
    "Nats-Schedule": "0 30 9 1 1 *",
    "Nats-Schedule-Time-Zone": "Europe/Berlin",
    "Nats-Schedule-Target": "S.out",
}

FLAG = {"nats-scheduler.allow_msg_schedules": "true"}
"""Metadata that stand for the flag, since no sidecar runs that records it."""


async def said(cli: Cli, server: EmbeddedServer, *words: str) -> Result:
    """Run the command in a thread, in which it has an event loop of its own."""
    return await asyncio.to_thread(cli, "next", *words, "--server", server.url)


async def stored(cli: Cli, start_server: StartServer, headers: Mapping[str, str], *words: str) -> Result:
    """Store a schedule on `S.s`, and run the command for it."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_ttl=True, metadata=FLAG)
        await account.publish("S.s", headers)
        return await said(cli, server, "S", "S.s", *words)


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_a_stored_schedule_is_shown_as_its_pattern_is(cli: Cli, start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        await account.create("S", metadata=FLAG)
        await account.publish("S.s", YEARLY)
        document = json.loads((await said(cli, server, "S", "S.s", "--json", "--count", "2")).stdout)
        table = (await said(cli, server, "S", "S.s", "--count", "2")).stdout
    pattern = cli("next", "0 30 9 1 1 *", "--tz", "Europe/Berlin", "--count", "2", "--json")
    expected: dict[str, Any] = json.loads(pattern.stdout)
    where = {"stream": "S", "subject": "S.s", "excepted": []}
    assert {**document, "after": None} == {**expected, "after": None, **where}
    assert "Europe/Berlin" in table.splitlines()[0]
    assert table.splitlines()[-1].startswith("2 fires, counted from ")


async def test_a_jittered_schedule_shows_when_each_fire_is_sent(cli: Cli, start_server: StartServer) -> None:
    jittered = {"Nats-Schedule": "@every 1h", "Nats-Schedule-X-Jitter": "10m", "Nats-Schedule-Target": "S.t"}
    document = json.loads((await stored(cli, start_server, jittered, "--json", "--count", "2")).stdout)
    for fire in document["fires"]:
        delay = delay_of("S.s", 1, fire["nanoseconds"], 600 * SECOND)
        assert fire["sent"] == format_rfc3339(fire["nanoseconds"] + delay)
    table = (await stored(cli, start_server, jittered, "--count", "2")).stdout
    assert re.search(r"^day +UTC +sent \(UTC\) +in$", table, re.MULTILINE)


async def test_excepted_fires_are_shown_as_such(cli: Cli, start_server: StartServer) -> None:
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    over = tomorrow + timedelta(days=1)
    headers = {"Nats-Schedule": "0 0 */12 * * *", "Nats-Schedule-Target": "S.t"}
    headers["Nats-Schedule-X-Except"] = str(tomorrow)
    document = json.loads((await stored(cli, start_server, headers, "--json", "--count", "4")).stdout)
    assert document["excepted"] == [{"first": f"{tomorrow}T00:00:00Z", "last": f"{tomorrow}T12:00:00Z"}]
    assert str(tomorrow) not in [fire["utc"][:10] for fire in document["fires"]]
    table = (await stored(cli, start_server, headers, "--count", "4")).stdout.splitlines()
    rows = [line for line in table if str(tomorrow) in line or str(over) in line]
    assert rows[0].endswith(f"{tomorrow}T00:00:00Z  excepted, until {tomorrow}T12:00:00Z")
    assert f"{over}T00:00:00Z" in rows[1]
    assert table[-1].startswith("4 fires, counted from ")


async def test_an_unknown_calendar_is_named(cli: Cli, start_server: StartServer) -> None:
    headers = {"Nats-Schedule": "@daily", "Nats-Schedule-Target": "S.t", "Nats-Schedule-X-Except": "calendar:none"}
    shown = await stored(cli, start_server, headers)
    assert "the days of calendar none are not known here" in shown.stderr


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ({"Nats-Schedule": "@at 2200-01-01T00:00:00Z"}, "then it ends: it fires once\n"),
        ({"Nats-Schedule": "@every 1h", "Nats-TTL": "90m"}, "it is removed by its Nats-TTL\n"),
    ],
)
async def test_the_last_fire_is_followed_by_why_it_is_the_last(
    cli: Cli, start_server: StartServer, pattern: dict[str, str], why: str
) -> None:
    shown = await stored(cli, start_server, {**pattern, "Nats-Schedule-Target": "S.out"})
    assert (shown.exit_code, shown.stdout.splitlines()[-2].startswith("1 fires, counted from ")) == (0, True)
    assert shown.stdout.endswith(why)


async def test_a_schedule_that_ends_before_its_fire_has_none(cli: Cli, start_server: StartServer) -> None:
    headers = {"Nats-Schedule": f"@at {in_seconds(7200)}", "Nats-Schedule-Target": "S.out", "Nats-TTL": "1h"}
    shown = await stored(cli, start_server, headers)
    assert (shown.exit_code, shown.stdout) == (0, "S.s does not fire again: it is expiring\n")
    assert json.loads((await stored(cli, start_server, headers, "--json")).stdout)["fires"] == []


async def test_a_paused_schedule_is_said_to_be_paused(cli: Cli, start_server: StartServer) -> None:
    headers = {"X-Nats-Schedule-X-Paused": "@every 1h", "X-Nats-Schedule-Target": "S.out"}
    shown = await stored(cli, start_server, headers)
    assert shown.exit_code == 0
    assert shown.stdout.startswith("S.s is paused since 20")
    by_hand = "publish its message again with X-Nats-Schedule-X-Paused renamed to X-Nats-Schedule"
    assert f"to resume it: nats-scheduler resume S S.s; or {by_hand}" in shown.stdout
    assert json.loads((await stored(cli, start_server, headers, "--json")).stdout)["fires"] == []


async def test_what_is_no_schedule_ends_with_1(cli: Cli, start_server: StartServer) -> None:
    shown = await stored(cli, start_server, {"Nats-Schedule": "@every soon", "Nats-Schedule-Target": "S.out"})
    assert shown.exit_code == 1
    assert "the schedule on 'S.s' never fires: Nats-Schedule of '@every soon'" in shown.stderr
    shown = await stored(cli, start_server, {"Other": "x"})
    assert shown.exit_code == 1
    assert "stream S has no schedule on 'S.s'" in shown.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("S.S", "S.s"), "the name of a stream"),
        (("S", "S.*"), "the subject of a schedule"),
        (("S", "S.s", "--tz", "UTC"), "go with a PATTERN"),
        (("S", "S.s", "--after", "2026-01-01T00:00:00Z"), "go with a PATTERN"),
        (("@every", "5m"), "'@every 5m' in quotes"),
        (("@daily", "--server", "nats://127.0.0.1:1"), "go with STREAM and SUBJECT"),
        (("S", "S.s", "S.t"), "unexpected extra argument"),
    ],
)
def test_wrong_use_is_refused_with_what_was_expected(cli: Cli, words: tuple[str, ...], complaint: str) -> None:
    shown = cli("next", *words)
    assert shown.exit_code == 2
    assert complaint in shown.stderr


def test_help_has_the_flags_of_the_connection(cli: Cli) -> None:
    assert "--server" in cli("next", "--help").stdout
