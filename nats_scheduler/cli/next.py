"""`nats-scheduler next`: when does a pattern fire?

Rule: the answer is what the scheduler would do with a message stored at `--after`, computed by the same code.
Cost: no server, no client. Limit: the fires are those of the pattern; the effects of a stream, a TTL or an outage on a
schedule are not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

import click

from nats_scheduler.cli.check import no_schedule_error, one_line
from nats_scheduler.cli.fire_table import weekday_of_text
from nats_scheduler.cli.output import EXIT_FAILED, print_json, rejection_error
from nats_scheduler.cli.tables import moment_text, print_table, shortened, span_text, wide_option
from nats_scheduler.message.definition import read_pattern
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.documents import error_document, fire_document
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339

MAX_FIRES_SHOWN = 10_000
"""The most fires that one call shows."""

after_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--after",
    metavar="TIME",
    default="now",
    help="When the schedule is stored: RFC 3339 or `now`; an interval counts from then.",
)


def fire_count_option(most: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flag for how many fires it shows, at most so many."""
    return click.option(
        "--count",
        metavar="N",
        type=click.IntRange(1, most),
        default=5,
        help="Fires to show, 5 unless given.",
    )


@click.command("next")
@click.argument("pattern")
@click.option("--tz", metavar="ZONE", help="Time zone of a cron pattern (Nats-Schedule-Time-Zone), as Europe/Berlin.")
@after_option
@fire_count_option(MAX_FIRES_SHOWN)
@wide_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(pattern: str, tz: str | None, after: str, count: int, wide: bool, as_json: bool) -> None:
    """Show when a pattern fires; needs no server.

    PATTERN is what goes into Nats-Schedule, such as '@every 5m' or '0 30 9 * * mon-fri'.
    Exit codes: 0 shown, 1 invalid pattern or time zone, 2 wrong use.
    """
    stored_at = instant_of(after)
    one_line(pattern + (tz or ""))
    read = read_pattern(pattern, tz, stored_at)
    if read is None or isinstance(read, Rejection):
        _refuse(pattern, tz, read, as_json)
    timetable = Timetable(read, stored_at)
    fires = timetable.fires(count + 1)
    shown, ends = fires[:count], len(fires) <= count
    if as_json:
        _show_json(timetable, tz, shown, ends)
    else:
        _show_table(timetable, tz, shown, ends, wide=wide)


def _refuse(pattern: str, zone: str | None, rejection: Rejection | None, as_json: bool) -> NoReturn:
    """End the command with 1: the server would refuse the pattern or, for None, not see a schedule in it."""
    if as_json:
        error = {} if rejection is None else {"error": error_document(rejection)}
        print_json({"pattern": pattern, "time_zone": zone, "fires": [], **error})
        raise click.exceptions.Exit(EXIT_FAILED)
    raise no_schedule_error(f"the pattern was {pattern!r}") if rejection is None else rejection_error(rejection)


def instant_of(text: str) -> int:
    """Return the time of `--after` (ns); end the command with 2 if it is none."""
    if text == "now":
        return SystemClock().now()
    instant = parse_rfc3339(text)
    if not isinstance(instant, int):
        raise click.UsageError(f"--after of {instant}; expected `now` or a time such as 2026-01-31T09:00:00Z")
    return instant


def _show_json(timetable: Timetable, zone: str | None, fires: list[int], ends: bool) -> None:
    pattern = timetable.pattern
    shown = [fire_document(pattern, fire) for fire in fires]
    after = format_rfc3339(timetable.stored_at)
    print_json({"pattern": pattern.text, "time_zone": zone, "after": after, "fires": shown, "ends": ends})


def _show_table(timetable: Timetable, zone: str | None, fires: list[int], ends: bool, *, wide: bool) -> None:
    pattern, stored_at = timetable.pattern, timetable.stored_at
    local = [] if zone is None else [zone]
    rows = []
    for fire in fires:
        shown = fire if wide else shortened(fire)
        times = [format_rfc3339(shown)] + ([pattern.format(shown)] if local else [])
        rows.append([weekday_of_text(pattern.format(fire)), *times, _wait(fire - stored_at)])
    print_table(["day", "UTC", *local, "in"], rows, optional=["day"], wide=wide)
    click.echo(f"{len(fires)} fires, counted from {moment_text(stored_at)}")
    if ends:
        why = "no further fire within five years" if timetable.repeats else "it fires once"
        click.echo(f"then it ends: {why}")


def _wait(nanoseconds: int) -> str:
    """Return how long it takes from the stored time to the fire."""
    return "at once" if nanoseconds <= 0 else span_text(nanoseconds)
