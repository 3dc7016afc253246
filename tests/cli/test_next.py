"""`nats-scheduler next`: the fires of a pattern or of a schedule that is stored, or the refusal of the server.

It tests `cli/next_of_schedule.py` too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.cli.prompt import NEVER, Cli, Prompt
from tests.harness.account import in_seconds


def lines(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


def test_fires_are_shown_in_utc_and_in_the_zone(cli: Cli) -> None:
    shown = cli("next", "0 30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-03-27T12:00:00Z", "--count", "2")
    assert shown.exit_code == 0
    assert [" ".join(line) for line in lines(shown.stdout)] == [
        "day UTC Europe/Berlin clock change in",
        "Sat 2026-03-28T01:30:00Z 2026-03-28T02:30:00+01:00 13h30m0s",
        "Sun - 2026-03-29T02:30:00 skipped: the clock goes from 02:00 to 03:00",
        "Mon 2026-03-30T00:30:00Z 2026-03-30T02:30:00+02:00 moved: the clock goes forward 1 hour 2d12h",
        "2 fires, counted from 2026-03-27T12:00:00Z",
    ]


def test_an_invalid_pattern_is_told_as_the_server_would_and_ends_with_1(cli: Cli) -> None:
    for arguments, code, message in (
        (["61 * * * * *"], 10189, "Nats-Schedule of '61 * * * * *' is not a valid pattern: second 61"),
        (["@daily", "--tz", "Mars/Olympus"], 10223, "Nats-Schedule-Time-Zone of 'Mars/Olympus' is not a time zone"),
        (["\x1b[2Jboo"], 10189, "\\x1b[2Jboo"),  # what a terminal would obey is escaped
    ):
        shown, in_json = cli("next", *arguments), cli("next", *arguments, "--json")
        assert (shown.exit_code, shown.stdout, in_json.exit_code) == (1, "", 1), arguments
        assert message in shown.stderr
        assert f"(server code {code})" in shown.stderr
        assert "\x1b" not in shown.stderr
        assert json.loads(in_json.stdout)["error"]["err_code"] == code


# -- a schedule that is stored ---------------------------------------------------------------------------------


async def stored(prompt: Prompt, subject: str, headers: Mapping[str, str]) -> tuple[str, dict[str, Any]]:
    """Store a schedule; return what the command prints of it, and the document."""
    await prompt.account.publish(subject, {"Nats-Schedule-Target": "S.t", **headers})
    line = f"next S {subject}"
    return await prompt.shows(line), await prompt.document(line)


async def test_a_stored_schedule_is_shown_as_its_pattern_is(cli: Cli, prompt: Prompt) -> None:
    await prompt.create("S")
    await prompt.schedule("S.s", "0 30 9 1 1 *", Time_Zone="Europe/Berlin")
    document = await prompt.document("next S S.s --count 2")
    pattern = cli("next", "0 30 9 1 1 *", "--tz", "Europe/Berlin", "--count", "2", "--json")
    expected: dict[str, Any] = json.loads(pattern.stdout)
    where = {"stream": "S", "subject": "S.s", "excepted": []}
    assert {**document, "after": None} == {**expected, "after": None, **where}


async def test_what_ends_or_pauses_a_schedule_is_said(prompt: Prompt) -> None:
    await prompt.create("S", allow_msg_ttl=True)
    for pattern, why in (
        ({"Nats-Schedule": NEVER}, "then it ends: it fires once\n"),
        ({"Nats-Schedule": "@every 1h", "Nats-TTL": "90m"}, "it is removed by its Nats-TTL\n"),
    ):
        table, _document = await stored(prompt, "S.once", pattern)
        assert table.splitlines()[-2].startswith("1 fires, counted from ")
        assert table.endswith(why)
    table, document = await stored(prompt, "S.s", {"Nats-Schedule": f"@at {in_seconds(7200)}", "Nats-TTL": "1h"})
    assert (table, document["fires"]) == ("S.s does not fire again: it is expiring\n", [])
    paused = {"X-Nats-Schedule-X-Paused": "@every 1h", "X-Nats-Schedule-Target": "S.out"}
    table, document = await stored(prompt, "S.s", paused)
    assert table.startswith("S.s is paused since 20")
    by_hand = "publish its message again with X-Nats-Schedule-X-Paused renamed to X-Nats-Schedule"
    assert f"to resume it: nats-scheduler resume S S.s; or {by_hand}" in table
    assert document["fires"] == []


async def test_what_is_no_schedule_ends_with_1(prompt: Prompt) -> None:
    await prompt.create("S")
    await prompt.schedule("S.wrong", "@every soon")
    await prompt.account.publish("S.other", {"Other": "x"})
    for name, why in (
        ("wrong", "the schedule on 'S.wrong' never fires: Nats-Schedule of '@every soon'"),
        ("other", "stream S has no schedule on 'S.other'"),
    ):
        said = await prompt.says(f"next S S.{name}")
        assert (said.exit_code, why in said.stderr) == (1, True), said.stderr
