"""`nats-scheduler next`: the fires that the scheduler would make, or the refusal that the server would give."""

from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Cli


def lines(output: str) -> list[list[str]]:
    return [line.split() for line in output.splitlines()]


def test_fires_are_shown_in_utc_and_in_the_zone(cli: Cli) -> None:
    shown = cli("next", "0 30 2 * * *", "--tz", "Europe/Berlin", "--after", "2026-03-27T12:00:00Z", "--count", "2")
    assert shown.exit_code == 0
    assert lines(shown.stdout) == [
        ["day", "UTC", "Europe/Berlin", "in"],
        ["Sat", "2026-03-28T01:30:00Z", "2026-03-28T02:30:00+01:00", "13h30m0s"],
        ["Mon", "2026-03-30T00:30:00Z", "2026-03-30T02:30:00+02:00", "2d12h"],
        ["2", "fires,", "counted", "from", "2026-03-27T12:00:00Z"],
    ]


def test_an_interval_counts_from_the_stored_time_rounded_to_the_second(cli: Cli) -> None:
    shown = cli("next", "@every 90m", "--after", "2026-01-01T00:00:00.6Z", "--count", "2", "--json")
    assert [fire["utc"] for fire in json.loads(shown.stdout)["fires"]] == [
        "2026-01-01T01:30:01Z",
        "2026-01-01T03:00:01Z",
    ]


def test_a_pattern_in_another_syntax_fires_on_its_days(cli: Cli) -> None:
    shown = cli("next", "0 9 15W * *", "--syntax", "crontab", "--after", "2026-07-20T00:00:00Z", "--count", "2")
    assert [line[:2] for line in lines(shown.stdout)[1:3]] == [
        ["Fri", "2026-08-14T09:00:00Z"],
        ["Tue", "2026-09-15T09:00:00Z"],
    ]
    ending = cli("next", "0 0 9 L 12 ? 2026", "--syntax", "quartz", "--after", "2026-07-20T00:00:00Z")
    assert ending.stdout.splitlines()[-1] == "then it ends: its years are over"
    refused = cli("next", "0 9 LW * *", "--syntax", "crontab")
    assert refused.exit_code == 1
    assert "the last weekday of a month is written 31W" in refused.stderr


def test_a_pattern_that_fires_once_says_that_it_ends(cli: Cli) -> None:
    shown = cli("next", "@at 2030-01-01T09:00:00+01:00", "--after", "2029-12-31T00:00:00Z")
    assert lines(shown.stdout)[1] == ["Tue", "2030-01-01T08:00:00Z", "32h0m0s"]
    assert shown.stdout.splitlines()[-1] == "then it ends: it fires once"


def test_a_time_in_the_past_fires_at_once(cli: Cli) -> None:
    assert "at once" in cli("next", "@at 2020-01-01T00:00:00Z").stdout


def test_a_pattern_that_goes_on_does_not_say_that_it_ends(cli: Cli) -> None:
    shown = cli("next", "@yearly", "--count", "3")
    assert len(shown.stdout.splitlines()) == 5
    assert "ends" not in shown.stdout


def test_what_is_far_away_is_told_in_days_and_in_years(cli: Cli) -> None:
    shown = cli("next", "@at 2063-04-05T00:00:00Z", "--after", "2026-01-01T00:00:00Z")
    assert lines(shown.stdout)[1][-1] == "37y103d"
    shown = cli("next", "@at 2026-03-05T00:00:00Z", "--after", "2026-01-01T00:00:00.25Z")
    assert lines(shown.stdout)[1][-1] == "62d23h"


def test_a_pattern_that_goes_on_says_so_in_json(cli: Cli) -> None:
    assert json.loads(cli("next", "@yearly", "--json").stdout)["ends"] is False


def test_json_is_one_document_with_everything(cli: Cli) -> None:
    arguments = ["@hourly", "--tz", "America/New_York", "--after", "2026-06-01T00:10:00Z", "--count", "1", "--json"]
    assert json.loads(cli("next", *arguments).stdout) == {
        "pattern": "@hourly",
        "time_zone": "America/New_York",
        "after": "2026-06-01T00:10:00Z",
        "fires": [
            {
                "utc": "2026-06-01T01:00:00Z",
                "local": "2026-05-31T21:00:00-04:00",
                "nanoseconds": 1780275600000000000,
                "sent": None,
            }
        ],
        "ends": False,
    }


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["61 * * * * *"], 10189, "Nats-Schedule of '61 * * * * *' is not a valid pattern: second 61"),
        (["* * * * *"], 10189, "beginning with seconds"),
        (["2030-01-01T00:00:00Z"], 10189, "'@at '"),
        (["@every 5m", "--tz", "UTC"], 10189, "takes no time zone"),
        (["@daily", "--tz", "Mars/Olympus"], 10223, "Nats-Schedule-Time-Zone of 'Mars/Olympus' is not a time zone"),
        (["0 0 0 30 2 *"], 10189, "Nats-Schedule of '0 0 0 30 2 *'"),
    ],
)
def test_an_invalid_pattern_is_told_as_the_server_would_and_ends_with_1(
    cli: Cli, arguments: list[str], code: int, message: str
) -> None:
    shown = cli("next", *arguments)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert message in shown.stderr
    assert f"(server code {code})" in shown.stderr
    in_json = cli("next", *arguments, "--json")
    assert in_json.exit_code == 1
    assert json.loads(in_json.stdout)["error"]["err_code"] == code


@pytest.mark.parametrize("pattern", ["", "@at 0001-01-01T00:00:00Z"])
def test_what_is_no_schedule_is_said_to_be_none(cli: Cli, pattern: str) -> None:
    shown = cli("next", pattern)
    assert shown.exit_code == 1
    assert "not a schedule" in shown.stderr
    in_json = cli("next", pattern, "--json")
    assert in_json.exit_code == 1
    assert json.loads(in_json.stdout)["fires"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["@daily", "--after", "soon"],
        ["@daily", "--count", "0"],
        ["@daily", "--count", "x"],
        ["a\r\nb"],
        ["@every", "5m"],
    ],
)
def test_wrong_use_ends_with_2(cli: Cli, arguments: list[str]) -> None:
    assert cli("next", *arguments).exit_code == 2


def test_what_a_terminal_would_obey_is_shown_escaped(cli: Cli) -> None:
    shown = cli("next", "\x1b[2Jboo")
    assert "\x1b" not in shown.stderr
    assert "\\x1b[2Jboo" in shown.stderr
