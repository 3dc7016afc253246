"""`nats-scheduler explain`: the words of a pattern, its next fires, and what a change of the clock does to them.

It tests `cli/fire_table.py` too.
"""

from __future__ import annotations

import json

from tests.cli.prompt import Cli

NIGHT = ["--tz", "Europe/Berlin", "--after", "2026-03-27T12:00:00Z"]


def test_the_words_come_first_and_then_the_fires_with_the_clock_changes(cli: Cli) -> None:
    shown = cli("explain", "0 30 2 * * *", *NIGHT, "--count", "2")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == [
        "every day at 02:30 in Berlin",
        "",
        "Its next fires, if it is stored at 2026-03-27T12:00:00Z:",
        "",
        "day  UTC                   Europe/Berlin              clock change",
        "Sat  2026-03-28T01:30:00Z  2026-03-28T02:30:00+01:00",
        "Sun  -                     2026-03-29T02:30:00        skipped: the clock goes from 02:00 to 03:00",
        "Mon  2026-03-30T00:30:00Z  2026-03-30T02:30:00+02:00  moved: the clock goes forward 1 hour",
    ]


def test_a_pattern_that_ends_says_so(cli: Cli) -> None:
    for arguments, last_line in (
        (["@at 2026-01-01T00:00:00Z"], "its time has passed: it fires at once"),
        (["@at 2200-01-01T00:00:00Z"], "it fires once"),
        (["0 0 0 29 2 *", "--after", "2091-01-01T00:00:00Z"], "then it ends: no further fire within five years"),
    ):
        assert cli("explain", *arguments, "--count", "2").stdout.splitlines()[-1] == last_line


def test_in_json_the_fires_are_marked_and_the_skipped_times_are_listed(cli: Cli) -> None:
    shown = json.loads(cli("explain", "0 30 2 * * *", *NIGHT, "--count", "2", "--json").stdout)
    assert shown["words"] == "every day at 02:30 in Berlin"
    assert [(fire["clock_change"], fire["clock_shift_seconds"]) for fire in shown["fires"]] == [
        (None, None),
        ("moved", 3600),
    ]
    assert [one["first"] for one in shown["skipped"]] == ["2026-03-29T02:30:00"]
    assert (shown["kind"], shown["ends"], shown["error"]) == ("cron", False, None)


def test_an_invalid_pattern_ends_with_1_and_the_code_of_the_server(cli: Cli) -> None:
    for arguments, code, message in (
        (["61 * * * * *"], 10189, "second 61 is above 59"),
        (["@daily", "--tz", "Mars/Olympus"], 10223, "no such time zone"),
        (["@every 5m", "--tz", "UTC"], 10189, "takes no time zone"),
        ([""], None, "not a schedule"),
    ):
        shown, in_json = cli("explain", *arguments), cli("explain", *arguments, "--json")
        assert (shown.exit_code, shown.stdout, message in shown.stderr) == (1, "", True)
        document = json.loads(in_json.stdout)
        assert (in_json.exit_code, (document["error"] or {}).get("err_code")) == (1, code)
        assert (document["words"], document["fires"]) == (None, [])
