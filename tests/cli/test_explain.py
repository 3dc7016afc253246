"""`nats-scheduler explain`: the words of a pattern, its next fires, and what a change of the clock does to them.

It tests `cli/fire_table.py` too.
"""

from __future__ import annotations

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
