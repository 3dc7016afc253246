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


def test_an_invalid_pattern_ends_with_1_and_the_code_of_the_server(cli: Cli) -> None:
    for arguments, code, message in (
        (["@daily", "--tz", "Mars/Olympus"], 10223, "no such time zone"),
        (["@every 5m", "--tz", "UTC"], 10189, "takes no time zone"),
        ([""], None, "not a schedule"),
    ):
        shown, in_json = cli("explain", *arguments), cli("explain", *arguments, "--json")
        assert (shown.exit_code, shown.stdout, message in shown.stderr) == (1, "", True)
        document = json.loads(in_json.stdout)
        assert (in_json.exit_code, (document["error"] or {}).get("err_code")) == (1, code)
        assert (document["words"], document["fires"]) == (None, [])
