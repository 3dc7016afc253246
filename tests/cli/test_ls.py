"""`nats-scheduler ls`: what is stored, when it fires next, and what is wrong with the rest.

It tests `cli/listing.py` too.
"""

from __future__ import annotations

import re

import pytest

from nats_scheduler.runtime.modes import EXPLANATIONS, Mode
from nats_scheduler.schedule.patterns import Cron, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from tests.cli.prompt import NEVER, Cli, Prompt, prompt_on
from tests.conftest import StartServer
from tests.harness.account import in_seconds
from tests.harness.servers import EMULATED_VERSIONS


@pytest.mark.clause("listing")
@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_json_says_everything_about_a_schedule(cli: Cli, start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with prompt_on(cli, server.url) as prompt:
        await prompt.create()
        sequence = await prompt.schedule(
            "ORDERS.daily", "0 30 9 * * mon-fri", Time_Zone="Europe/Berlin", Source="ORDERS.in", Rollup="sub"
        )
        stored = await prompt.account.api.message("ORDERS", seq=sequence)
        document = await prompt.document("ls ORDERS")
        (info,) = [info async for info in prompt.account.api.streams()]
    assert [info["state"][key] for key in ("messages", "consumer_count")] == [1, 0], "nothing is written"
    assert stored is not None
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
                "problem": "no sidecar is running: nothing fires the schedules of ORDERS",
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


async def test_tables_show_the_soonest_first_and_leave_out_what_nobody_uses(prompt: Prompt) -> None:
    assert (await prompt.shows("ls")).startswith("no stream carries schedules")
    await prompt.create()
    problem = "no sidecar is running: nothing fires the schedules of ORDERS; nats-scheduler run (no_sidecar)"
    assert await prompt.shows("ls") == f"no schedules on ORDERS\n{problem}\n"
    assert await prompt.shows("ls --invalid") == "nothing is invalid on ORDERS\n"
    await prompt.schedule("ORDERS.b", NEVER)
    await prompt.schedule("ORDERS.a", f"@at {in_seconds(-90)}")
    await prompt.schedule("ORDERS.c", "\x1b[31mred")
    shown = await prompt.shows("ls ORDERS")
    lines = [line.split() for line in shown.splitlines()]
    assert lines[0] == ["subject", "pattern", "target", "next", "fire", "(UTC)", "in"]
    assert [line[0] for line in lines[1:3]] == ["ORDERS.a", "ORDERS.b"]
    assert lines[1][5] == "overdue"
    assert lines[2][4:6] == ["2200-01-01T00:00:00Z", lines[2][5]]
    assert re.fullmatch(r"1[0-9][0-9]y[0-9]+d", lines[2][5])
    assert shown.splitlines()[4] == "1 invalid, stored but never fired:"
    assert lines[5] == ["subject", "code", "what", "is", "wrong"]
    assert lines[6][:5] == ["ORDERS.c", "10189", "Nats-Schedule", "of", "'\\x1b[31mred'"]
    assert "\x1b" not in shown, "what a message holds cannot speak to the terminal"
    assert shown.splitlines()[-2:] == ["2 schedules; 1 invalid", problem]
    wide = [line.split() for line in (await prompt.shows("ls ORDERS --wide")).splitlines()]
    assert wide[0] == [*lines[0], "sequence", "stored", "dialect", "mode"]
    assert wide[5] == ["stream", "subject", "code", "header", "value", "reason", "sequence", "stored"]


async def test_what_is_listed_is_chosen(prompt: Prompt) -> None:
    await prompt.create()
    for rest, pattern, target in (
        *(("a.due", f"@at {in_seconds(-90)}", "out"), ("a.later", NEVER, "out"), ("b.often", "@every 1h", "in.b")),
        *(("a.wrong", "soon", "out"), ("b.wrong", "soon", "in.b")),
    ):
        await prompt.schedule(f"ORDERS.{rest}", pattern, f"ORDERS.{target}")

    async def found(options: str) -> tuple[list[str], list[str], int]:
        document = await prompt.document(f"ls ORDERS {options}")
        names = [[one["subject"].removeprefix("ORDERS.") for one in document[key]] for key in ("schedules", "invalid")]
        return names[0], names[1], document["total"]

    wrong = ["a.wrong", "b.wrong"]
    assert await found("--filter ORDERS.a.*") == (["a.due", "a.later"], ["a.wrong"], 2)
    assert await found("--filter .often") == (["b.often"], [], 1)
    assert await found("--filter a.") == (["a.due", "a.later"], ["a.wrong"], 2)
    assert await found("--filter A.") == ([], [], 0)
    assert await found("--target in. --sort subject") == (["b.often"], ["b.wrong"], 1)
    assert await found("--sort subject --count 2") == (["a.due", "a.later"], wrong, 3)
    assert await found("--sort target") == (["b.often", "a.due", "a.later"], wrong, 3)
    assert await found("--owner nobody") == ([], [], 0)
    assert await found("--target *.in.>") == (["b.often"], ["b.wrong"], 1)
    assert await found("--kind every --kind cron") == (["b.often"], wrong, 1)
    assert await found("--state overdue") == (["a.due"], wrong, 1)
    assert await found("--state overdue --filter ORDERS.b.>") == ([], ["b.wrong"], 0)
    assert await found("--count 1") == (["a.due"], wrong, 3)
    assert await found("--invalid") == ([], wrong, 3)
    assert "\n3 schedules, of which 1 is shown; 2 invalid\n" in await prompt.shows("ls --count 1")
    assert "ORDERS.b.often" not in await prompt.shows("ls --invalid")


async def test_times_are_shown_in_the_zone_of_the_reader(prompt: Prompt) -> None:
    await prompt.create()
    await prompt.schedule("ORDERS.s", "@at 2100-07-01T10:00:00Z", "ORDERS.out")
    shown = await prompt.shows("ls ORDERS --tz Europe/Berlin --wide")
    assert "next fire (Europe/Berlin)" in shown
    assert "2100-07-01T12:00:00+02:00" in shown
    assert "next fire (UTC)" in await prompt.shows("ls ORDERS"), "the next command is not changed"
    document = await prompt.document("ls ORDERS --tz Europe/Berlin")
    assert document["schedules"][0]["next_fire"]["utc"] == "2100-07-01T10:00:00Z"
    for command in ("info ORDERS ORDERS.s", "history ORDERS", "instances"):
        await prompt.shows(f"{command} --tz Asia/Tokyo")


async def test_all_flagged_streams_are_listed_and_those_that_the_settings_name(prompt: Prompt) -> None:
    for name in ("A", "B"):
        await prompt.create(name, allow_msg_schedules=False)
    for name in ("NAMED", "PLAIN"):
        await prompt.account.create(name, allow_msg_schedules=False)
    for name in ("A", "B", "NAMED", "PLAIN"):
        for x in ("", "X-"):
            await prompt.schedule(f"{name}.{x}s", NEVER, x=x)
    document = await prompt.document("ls", env={"NATS_SCHEDULER_PORTABLE_STREAMS": "NAMED"})
    assert [(one["stream"], one["mode"]) for one in document["streams"]] == [
        *(("A", "emulated"), ("B", "emulated"), ("NAMED", "portable")),
    ]
    assert [(one["stream"], one["dialect"]) for one in document["schedules"]] == [
        *(("A", "portable"), ("A", "adr51"), ("B", "portable"), ("B", "adr51"), ("NAMED", "portable")),
    ]
    assert (await prompt.shows("ls")).startswith("stream  subject")
    narrowed = "no schedule on A is as you ask"
    assert (await prompt.shows("ls A --filter A.none.*")).splitlines()[0] == narrowed
    assert (await prompt.shows("ls A --filter reminder")).splitlines()[0] == narrowed
    for name, why in (
        (
            "PLAIN",
            "does not carry schedules: nats-scheduler stream add FILE, where FILE is PLAIN with "
            "allow_msg_schedules: true",
        ),
        ("MISSING", "does not exist"),
    ):
        said = await prompt.says(f"ls {name}")
        error = f"nats-scheduler: error: stream {name} {why}\n"
        assert (said.exit_code, said.stdout, said.stderr) == (1, "", error)
