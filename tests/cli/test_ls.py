"""`nats-scheduler ls`: what is stored, when it fires next, and what is wrong with the rest."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from click.testing import Result

from nats_scheduler.jetstream.connection import frame
from nats_scheduler.runtime.embedded import EmbeddedServer, free_port
from nats_scheduler.runtime.modes import EXPLANATIONS, Mode
from nats_scheduler.schedule.patterns import Cron, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from tests.cli.conftest import Cli
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Account, account_on, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.servers import EMULATED_VERSIONS, V2_11, V2_14
from tests.harness.waiting import eventually

Ls = Callable[..., Awaitable[Result]]

NEVER = "@at 2200-01-01T00:00:00Z"


@pytest.fixture(params=EMULATED_VERSIONS)
async def server(request: pytest.FixtureRequest, start_server: StartServer) -> EmbeddedServer:
    """Start a server of each version without its own scheduler; no sidecar serves it."""
    return await start_server(request.param)


@pytest.fixture
async def account(server: EmbeddedServer) -> AsyncIterator[Account]:
    """Connect to the server."""
    async with account_on(server.url) as connected:
        yield connected


@pytest.fixture
def ls(cli: Cli, server: EmbeddedServer) -> Ls:
    """Run `nats-scheduler ls …` against the server."""
    return on(cli, server)


def on(cli: Cli, server: EmbeddedServer) -> Ls:
    """Return a function that runs `nats-scheduler ls …` against a server, in a thread with an event loop of its own."""

    async def run(*arguments: str, **options: Any) -> Result:
        return await asyncio.to_thread(cli, "ls", *arguments, "--server", server.url, **options)

    return run


async def flagged(account: Account, name: str, **config: Any) -> None:
    """Create a stream that carries the flag in its metadata, as a stream that the sidecar serves may."""
    metadata = {"nats-scheduler.allow_msg_schedules": "true"}
    await account.create(name, metadata=metadata, allow_msg_schedules=False, **config)


@pytest.mark.clause("listing")
async def test_json_says_everything_about_a_schedule(account: Account, ls: Ls) -> None:
    await flagged(account, "ORDERS")
    headers = {
        "Nats-Schedule": "0 30 9 * * mon-fri",
        "Nats-Schedule-Time-Zone": "Europe/Berlin",
        "Nats-Schedule-Target": "ORDERS.out",
        "Nats-Schedule-Source": "ORDERS.in",
        "Nats-Schedule-Rollup": "sub",
    }
    sequence = await account.publish("ORDERS.daily", headers)
    stored = await account.api.message("ORDERS", seq=sequence)
    assert stored is not None
    said = await ls("ORDERS", "--json")
    assert (said.exit_code, said.stderr) == (0, "")
    document = json.loads(said.stdout)
    at = parse_rfc3339(document["at"])
    pattern = parse_pattern("0 30 9 * * mon-fri", "Europe/Berlin")
    assert isinstance(at, int)
    assert isinstance(pattern, Cron)
    fire = pattern.next_fire(at, stored.stored_at)
    assert fire is not None
    assert document == {
        "at": document["at"],
        "streams": [
            {
                "stream": "ORDERS",
                "mode": "emulated",
                "served": EXPLANATIONS[Mode.EMULATED],
                "sidecars": 0,
                "problem": "no sidecar is running: nothing fires these",
                "failing": 0,
                "schedules": {"total": 1, "states": {"waiting": 1}, "kinds": {"cron": 1}},
            }
        ],
        "schedules": [
            {
                "stream": "ORDERS",
                "subject": "ORDERS.daily",
                "pattern": "0 30 9 * * mon-fri",
                "kind": "cron",
                "time_zone": "Europe/Berlin",
                "target": "ORDERS.out",
                "source": "ORDERS.in",
                "ttl": None,
                "rollup": "sub",
                "policies": {},
                "next_fire": {
                    "utc": format_rfc3339(fire),
                    "local": pattern.format(fire),
                    "nanoseconds": fire,
                    "sent": None,
                },
                "state": "waiting",
                "failing": None,
                "sequence": sequence,
                "stored": format_rfc3339(stored.stored_at),
                "dialect": "adr51",
                "mode": "emulated",
                "fired_by": "sidecar",
                "ends": None,
            }
        ],
        "total": 1,
        "failing": 0,
        "failing_unlisted": 0,
        "invalid": [],
        "misnamed": [],
        "sidecars": [],
        "warnings": [],
    }


@pytest.mark.clause("listing")
async def test_json_says_what_is_wrong_with_a_schedule(account: Account, ls: Ls) -> None:
    await flagged(account, "ORDERS")
    headers = {"X-Nats-Schedule": "@every 1ms", "X-Nats-Schedule-Target": "ORDERS.out"}
    sequence = await account.publish("ORDERS.fast", headers)
    (invalid,) = json.loads((await ls("--json")).stdout)["invalid"]
    assert invalid.pop("stored")
    assert invalid == {
        "stream": "ORDERS",
        "subject": "ORDERS.fast",
        "pattern": "@every 1ms",
        "target": "ORDERS.out",
        "sequence": sequence,
        "dialect": "portable",
        "mode": "emulated",
        "error": {
            "code": 400,
            "err_code": 10189,
            "description": "message schedules pattern is invalid",
            "header": "X-Nats-Schedule",
            "value": "@every 1ms",
            "reason": "is not a valid pattern: an interval is at least 1s",
        },
    }


async def test_tables_show_the_soonest_first_and_leave_out_what_nobody_uses(account: Account, ls: Ls) -> None:
    await flagged(account, "ORDERS")
    target = {"Nats-Schedule-Target": "ORDERS.out"}
    await account.publish("ORDERS.b", {"Nats-Schedule": NEVER, **target})
    await account.publish("ORDERS.a", {"Nats-Schedule": f"@at {in_seconds(-90)}", **target})
    await account.publish("ORDERS.c", {"Nats-Schedule": "@every soon", **target})
    said = await ls("ORDERS")
    lines = [line.split() for line in said.stdout.splitlines()]
    columns = ["subject", "pattern", "target", "next fire (UTC)", "in"]
    assert lines[0] == " ".join(columns).split()
    assert [line[0] for line in lines[1:3]] == ["ORDERS.a", "ORDERS.b"]
    assert lines[1][5] == "overdue"
    assert lines[2][4:6] == ["2200-01-01T00:00:00Z", lines[2][5]]
    assert re.fullmatch(r"1[0-9][0-9]y[0-9]+d", lines[2][5])
    assert said.stdout.splitlines()[4] == "1 invalid, stored but never fired:"
    assert lines[5] == ["subject", "code", "what", "is", "wrong"]
    assert lines[6][:6] == ["ORDERS.c", "10189", "Nats-Schedule", "of", "'@every", "soon'"]
    assert said.stdout.splitlines()[-2:] == [
        "2 schedules; 1 invalid",
        "ORDERS: no sidecar is running: nothing fires these",
    ]
    wide = [line.split() for line in (await ls("ORDERS", "--wide")).stdout.splitlines()]
    assert wide[0] == [*lines[0], "sequence", "stored", "dialect", "mode"]
    assert wide[5] == ["stream", "subject", "code", "header", "value", "reason", "sequence", "stored"]


async def test_what_a_message_holds_cannot_speak_to_the_terminal(account: Account, ls: Ls) -> None:
    await flagged(account, "ORDERS")
    await account.publish("ORDERS.c", {"Nats-Schedule": "\x1b[31mred", "Nats-Schedule-Target": "ORDERS.out"})
    said = (await ls()).stdout
    assert "\x1b" not in said
    assert "\\x1b[31mred" in said


async def test_count_and_invalid_choose_what_is_shown(account: Account, ls: Ls) -> None:
    await flagged(account, "ORDERS")
    for rest, pattern in (("late", NEVER), ("soon", "@every 1h"), ("wrong", "soon")):
        await account.publish(f"ORDERS.{rest}", {"Nats-Schedule": pattern, "Nats-Schedule-Target": "ORDERS.out"})
    counted = json.loads((await ls("--count", "1", "--json")).stdout)
    assert ([one["subject"] for one in counted["schedules"]], counted["total"]) == (["ORDERS.soon"], 2)
    assert "\n2 schedules, of which 1 is shown; 1 invalid\n" in (await ls("--count", "1")).stdout
    invalid = json.loads((await ls("--invalid", "--json")).stdout)
    assert ([one["subject"] for one in invalid["invalid"]], invalid["schedules"]) == (["ORDERS.wrong"], [])
    assert "ORDERS.soon" not in (await ls("--invalid")).stdout


async def test_subject_target_kind_and_state_choose_what_is_listed(account: Account, ls: Ls) -> None:
    await flagged(account, "ORDERS")
    for rest, pattern, target in (
        *(("a.due", f"@at {in_seconds(-90)}", "out"), ("a.later", NEVER, "out"), ("b.often", "@every 1h", "in.b")),
        *(("a.wrong", "soon", "out"), ("b.wrong", "soon", "in.b")),
    ):
        headers = {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"ORDERS.{target}"}
        await account.publish(f"ORDERS.{rest}", headers)

    async def found(*arguments: str) -> tuple[list[str], list[str], int]:
        document = json.loads((await ls("ORDERS", *arguments, "--json")).stdout)
        names = [[one["subject"].removeprefix("ORDERS.") for one in document[key]] for key in ("schedules", "invalid")]
        return names[0], names[1], document["total"]

    wrong = ["a.wrong", "b.wrong"]
    assert await found("--filter", "ORDERS.a.*") == (["a.due", "a.later"], ["a.wrong"], 2)
    assert await found("--target", "*.in.>") == (["b.often"], ["b.wrong"], 1)
    assert await found("--kind", "every", "--kind", "cron") == (["b.often"], wrong, 1)
    assert await found("--state", "overdue") == (["a.due"], wrong, 1)
    assert await found("--state", "overdue", "--filter", "ORDERS.b.>") == ([], ["b.wrong"], 0)


async def test_paused_schedules_are_listed_as_such(account: Account, ls: Ls) -> None:
    await flagged(account, "ORDERS")
    for rest, name in (("a", "Nats-Schedule"), ("b", "Nats-Schedule-X-Paused"), ("c", "X-Nats-Schedule-X-Paused")):
        target = "X-Nats-Schedule-Target" if name.startswith("X") else "Nats-Schedule-Target"
        await account.publish(f"ORDERS.{rest}", {name: "@every 1h", target: "ORDERS.out"})
    document = json.loads((await ls("ORDERS", "--state", "paused", "--json")).stdout)
    assert [(one["subject"], one["state"], one["dialect"]) for one in document["schedules"]] == [
        ("ORDERS.b", "paused", "adr51"),
        ("ORDERS.c", "paused", "portable"),
    ]
    everything = json.loads((await ls("ORDERS", "--json")).stdout)
    assert everything["streams"][0]["schedules"]["states"] == {"paused": 2, "waiting": 1}
    assert (everything["invalid"], everything["misnamed"]) == ([], [])
    shown = (await ls("ORDERS")).stdout
    assert [line.split()[0] for line in shown.splitlines()[1:4]] == ["ORDERS.a", "ORDERS.b", "ORDERS.c"]
    assert "3 schedules; 2 of them are paused" in shown


async def test_all_flagged_streams_are_listed_and_those_that_the_settings_name(account: Account, ls: Ls) -> None:
    for name in ("A", "B"):
        await flagged(account, name)
    for name in ("NAMED", "PLAIN"):
        await account.create(name, allow_msg_schedules=False)
    for name in ("A", "B", "NAMED", "PLAIN"):
        for prefix in ("", "X-"):
            headers = {f"{prefix}Nats-Schedule": NEVER, f"{prefix}Nats-Schedule-Target": f"{name}.out"}
            await account.publish(f"{name}.{prefix}s", headers)
    said = await ls("--json", env={"NATS_SCHEDULER_PORTABLE_STREAMS": "NAMED"})
    document = json.loads(said.stdout)
    assert [(one["stream"], one["mode"]) for one in document["streams"]] == [
        ("A", "emulated"),
        ("B", "emulated"),
        ("NAMED", "portable"),
    ]
    assert [(one["stream"], one["dialect"]) for one in document["schedules"]] == [
        ("A", "portable"),
        ("A", "adr51"),
        ("B", "portable"),
        ("B", "adr51"),
        ("NAMED", "portable"),
    ]
    assert (await ls()).stdout.startswith("stream  subject")


async def test_looking_writes_nothing(account: Account, ls: Ls) -> None:
    await flagged(account, "ORDERS")
    await account.publish(
        "ORDERS.due", {"Nats-Schedule": f"@at {in_seconds(-5)}", "Nats-Schedule-Target": "ORDERS.out"}
    )
    assert (await ls()).exit_code == 0
    (info,) = [info async for info in account.api.streams()]
    assert (info["config"]["name"], info["state"]["messages"], info["state"]["consumer_count"]) == ("ORDERS", 1, 0)


async def test_a_stream_that_is_not_there_or_carries_no_schedules_ends_with_1(account: Account, ls: Ls) -> None:
    await account.create("PLAIN", allow_msg_schedules=False)
    said = {name: await ls(name) for name in ("PLAIN", "MISSING")}
    assert {name: (one.exit_code, one.stdout, one.stderr) for name, one in said.items()} == {
        "PLAIN": (
            1,
            "",
            "nats-scheduler: error: stream PLAIN does not carry schedules: give its configuration with "
            "allow_msg_schedules to `nats-scheduler stream add`\n",
        ),
        "MISSING": (1, "", "nats-scheduler: error: stream MISSING does not exist\n"),
    }


async def test_nothing_to_list_is_said_and_is_no_failure(account: Account, ls: Ls) -> None:
    none = await ls()
    await flagged(account, "ORDERS")
    empty = await ls()
    assert (none.exit_code, empty.exit_code) == (0, 0)
    assert none.stdout.startswith("no stream carries schedules")
    assert empty.stdout == "no schedules on ORDERS\nORDERS: no sidecar is running: nothing fires these\n"
    assert (await ls("--invalid")).stdout == "nothing is invalid on ORDERS\n"


@pytest.mark.parametrize(
    "arguments",
    [
        *(["A.B"], ["a b"], [""], ["--count", "0"], ["--invalid", "--count", "3"]),
        *(["--state", "odd"], ["--kind", "odd"], ["--filter", "a..b"], ["--target", ""]),
    ],
)
def test_wrong_use_ends_with_2(cli: Cli, arguments: list[str]) -> None:
    assert cli("ls", *arguments).exit_code == 2


def test_a_server_that_is_not_reached_ends_with_1(cli: Cli) -> None:
    said = cli("ls", "--server", f"nats://bob:hunter2@127.0.0.1:{free_port()}")
    assert (said.exit_code, said.stdout) == (1, "")
    assert said.stderr.startswith("nats-scheduler: error: nats://bob:***@127.0.0.1")


async def test_schedules_of_the_server_are_listed_beside_the_portable_ones(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_14)
    async with account_on(server.url) as account:
        await account.create("ORDERS", allow_msg_ttl=True)
        ttl = {"Nats-Schedule-TTL": "5m"}
        await account.publish(
            "ORDERS.native", {"Nats-Schedule": "@hourly", "Nats-Schedule-Target": "ORDERS.out", **ttl}
        )
        await account.publish("ORDERS.ours", {"X-Nats-Schedule": NEVER, "X-Nats-Schedule-Target": "ORDERS.out"})
    document = json.loads((await on(cli, server)("--json")).stdout)
    shown = ("subject", "dialect", "mode", "fired_by", "ttl")
    assert [tuple(one[name] for name in shown) for one in document["schedules"]] == [
        ("ORDERS.native", "adr51", "native", "server", "5m"),
        ("ORDERS.ours", "portable", "native", "sidecar", None),
    ]


async def test_a_running_sidecar_is_asked_for_schedules_of_the_server(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_14)
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        await account.create("ORDERS")
        await running.ready("ORDERS")
        for name, prefix in (("ours", "X-"), ("native", "")):
            headers = {f"{prefix}Nats-Schedule": NEVER, f"{prefix}Nats-Schedule-Target": "ORDERS.out"}
            await account.publish(f"ORDERS.{name}", headers)

        async def asked() -> dict[str, Any] | None:
            """List until a sidecar answered that had read what is stored and was known to be alive."""
            document = json.loads((await on(cli, server)("--json")).stdout)
            stats = await account.connection.request_json("$SRV.STATS.nats-scheduler")
            pages = next(one["num_requests"] for one in stats["endpoints"] if one["name"] == "rejected-list")
            return document if pages and document["streams"][0]["sidecars"] else None

        document = await eventually(asked, within_seconds=WAIT_SECONDS, describe="the sidecar was asked")
        assert [(one["subject"], one["fired_by"]) for one in document["schedules"]] == [
            ("ORDERS.native", "server"),
            ("ORDERS.ours", "sidecar"),
        ]


async def test_a_hundred_thousand_schedules_are_listed(cli: Cli, start_server: StartServer) -> None:
    server = await start_server(V2_11)
    ls = on(cli, server)
    count = 100_000
    async with account_on(server.url) as account:
        await flagged(account, "MANY")
        headers = {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "MANY.out"}
        block = block_to_send(headers)
        for number in range(1, count + 1):
            if number % 1000:
                account.connection.write(frame(f"MANY.{number}", "", block, b""))
            else:  # wait for the server now and then: it drops messages when more than 10,000 are in flight
                await account.publish(f"MANY.{number}", headers)
    said = await ls("MANY")
    assert len(said.stdout.splitlines()) == count + 4
