"""`nats-scheduler next`: the fires of a pattern or of a schedule that is stored, or the refusal of the server.

It tests `cli/next_of_schedule.py` too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from nats_scheduler.message.jitter import delay_of
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.cli.prompt import NEVER, Cli, Prompt, prompt_on
from tests.conftest import StartServer
from tests.harness.account import in_seconds
from tests.harness.servers import V2_11, V2_15


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


def test_an_interval_counts_from_the_stored_time_rounded_to_the_second(cli: Cli) -> None:
    shown = cli("next", "@every 90m", "--after", "2026-01-01T00:00:00.6Z", "--count", "2", "--json")
    fires = [fire["utc"] for fire in json.loads(shown.stdout)["fires"]]
    assert fires == ["2026-01-01T01:30:01Z", "2026-01-01T03:00:01Z"]


def test_a_pattern_in_another_syntax_fires_on_its_days(cli: Cli) -> None:
    shown = cli("next", "0 9 15W * *", "--syntax", "crontab", "--after", "2026-07-20T00:00:00Z", "--count", "2")
    fires = [line[:2] for line in lines(shown.stdout)[1:3]]
    assert fires == [["Fri", "2026-08-14T09:00:00Z"], ["Tue", "2026-09-15T09:00:00Z"]]
    ending = cli("next", "0 0 9 L 12 ? 2026", "--syntax", "quartz", "--after", "2026-07-20T00:00:00Z")
    assert ending.stdout.splitlines()[-1] == "then it ends: its years are over"
    refused = cli("next", "0 9 LW * *", "--syntax", "crontab")
    assert (refused.exit_code, "the last weekday of a month is written 31W" in refused.stderr) == (1, True)


def test_it_says_whether_it_ends_and_how_far_away_a_fire_is(cli: Cli) -> None:
    shown = cli("next", "@at 2030-01-01T09:00:00+01:00", "--after", "2029-12-31T00:00:00Z")
    assert lines(shown.stdout)[1] == ["Tue", "2030-01-01T08:00:00Z", "32h0m0s"]
    assert shown.stdout.splitlines()[-1] == "then it ends: it fires once"
    assert "at once" in cli("next", "@at 2020-01-01T00:00:00Z").stdout
    shown = cli("next", "@yearly", "--count", "3")
    assert (len(shown.stdout.splitlines()), "ends" in shown.stdout) == (5, False)
    for pattern, after, away in (
        ("@at 2063-04-05T00:00:00Z", "2026-01-01T00:00:00Z", "37y103d"),
        ("@at 2026-03-05T00:00:00Z", "2026-01-01T00:00:00.25Z", "62d23h"),
    ):
        assert lines(cli("next", pattern, "--after", after).stdout)[1][-1] == away


def test_json_is_one_document_with_everything(cli: Cli) -> None:
    arguments = ["@hourly", "--tz", "America/New_York", "--after", "2026-06-01T00:10:00Z", "--count", "1", "--json"]
    fire = {"utc": "2026-06-01T01:00:00Z", "local": "2026-05-31T21:00:00-04:00", "nanoseconds": 1780275600000000000}
    assert json.loads(cli("next", *arguments).stdout) == {
        "pattern": "@hourly",
        "time_zone": "America/New_York",
        "after": "2026-06-01T00:10:00Z",
        "fires": [fire | {"sent": None, "clock_change": None, "clock_shift_seconds": None}],
        "skipped": [],
        "ends": False,
    }


def test_an_invalid_pattern_is_told_as_the_server_would_and_ends_with_1(cli: Cli) -> None:
    for arguments, code, message in (
        (["61 * * * * *"], 10189, "Nats-Schedule of '61 * * * * *' is not a valid pattern: second 61"),
        (["* * * * *"], 10189, "beginning with seconds"),
        (["2030-01-01T00:00:00Z"], 10189, "'@at '"),
        (["@every 5m", "--tz", "UTC"], 10189, "takes no time zone"),
        (["@daily", "--tz", "Mars/Olympus"], 10223, "Nats-Schedule-Time-Zone of 'Mars/Olympus' is not a time zone"),
        (["0 0 0 30 2 *"], 10189, "Nats-Schedule of '0 0 0 30 2 *'"),
        (["\x1b[2Jboo"], 10189, "\\x1b[2Jboo"),  # what a terminal would obey is escaped
    ):
        shown, in_json = cli("next", *arguments), cli("next", *arguments, "--json")
        assert (shown.exit_code, shown.stdout, in_json.exit_code) == (1, "", 1), arguments
        assert message in shown.stderr
        assert f"(server code {code})" in shown.stderr
        assert "\x1b" not in shown.stderr
        assert json.loads(in_json.stdout)["error"]["err_code"] == code
    for pattern in ("", "@at 0001-01-01T00:00:00Z"):
        shown, in_json = cli("next", pattern), cli("next", pattern, "--json")
        assert (shown.exit_code, in_json.exit_code, json.loads(in_json.stdout)["fires"]) == (1, 1, [])
        assert "not a schedule" in shown.stderr


# -- a schedule that is stored ---------------------------------------------------------------------------------


async def stored(
    prompt: Prompt, subject: str, headers: Mapping[str, str], options: str = ""
) -> tuple[str, dict[str, Any]]:
    """Store a schedule; return what the command prints of it, and the document."""
    await prompt.account.publish(subject, {"Nats-Schedule-Target": "S.t", **headers})
    line = f"next S {subject} {options}"
    return await prompt.shows(line), await prompt.document(line)


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_a_stored_schedule_is_shown_as_its_pattern_is(cli: Cli, start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with prompt_on(cli, server.url) as prompt:
        await prompt.create("S")
        await prompt.schedule("S.s", "0 30 9 1 1 *", Time_Zone="Europe/Berlin")
        document = await prompt.document("next S S.s --count 2")
        table = await prompt.shows("next S S.s --count 2")
    pattern = cli("next", "0 30 9 1 1 *", "--tz", "Europe/Berlin", "--count", "2", "--json")
    expected: dict[str, Any] = json.loads(pattern.stdout)
    where = {"stream": "S", "subject": "S.s", "excepted": []}
    assert {**document, "after": None} == {**expected, "after": None, **where}
    assert "Europe/Berlin" in table.splitlines()[0]
    assert table.splitlines()[-1].startswith("2 fires, counted from ")


async def test_sent_and_excepted_fires_are_shown_as_such(prompt: Prompt) -> None:
    await prompt.create("S")
    table, document = await stored(
        prompt, "S.a", {"Nats-Schedule": "@every 1h", "Nats-Schedule-X-Jitter": "10m"}, "--count 2"
    )
    for fire in document["fires"]:
        delay = delay_of("S.a", 1, fire["nanoseconds"], 600 * SECOND)
        assert fire["sent"] == format_rfc3339(fire["nanoseconds"] + delay)
    assert re.search(r"^day +UTC +sent \(UTC\) +in$", table, re.MULTILINE)

    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    headers = {"Nats-Schedule": "0 0 */12 * * *", "Nats-Schedule-X-Except": f"{tomorrow}"}
    table, document = await stored(prompt, "S.b", headers, "--count 4")
    assert document["excepted"] == [{"first": f"{tomorrow}T00:00:00Z", "last": f"{tomorrow}T12:00:00Z"}]
    assert str(tomorrow) not in [fire["utc"][:10] for fire in document["fires"]]
    over = tomorrow + timedelta(days=1)
    rows = [line for line in table.splitlines() if str(tomorrow) in line or str(over) in line]
    assert rows[0].endswith(f"{tomorrow}T00:00:00Z  excepted, until {tomorrow}T12:00:00Z")
    assert f"{over}T00:00:00Z" in rows[1]
    assert table.splitlines()[-1].startswith("4 fires, counted from ")

    await prompt.schedule("S.c", "@daily", X_Except="calendar:none")
    assert "the days of calendar none are not known here" in (await prompt.says("next S S.c")).stderr


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
