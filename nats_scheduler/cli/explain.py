"""`nats-scheduler explain`: what a pattern means, in plain words, and when it fires next.

Rule: words and fires are those that a running sidecar answers (`observe.explanations`).
Cost: no server, no client. Limit: as for `next`: what a stream, a TTL or an outage does is not known here.
"""

import click

from nats_scheduler.cli.check import no_schedule_error, one_line
from nats_scheduler.cli.fire_table import ending_text, print_next_fires
from nats_scheduler.cli.next import (
    MAX_FIRES_SHOWN,
    after_option,
    fire_count_option,
    instant_of,
    syntax_option,
)
from nats_scheduler.cli.output import EXIT_FAILED, json_option, print_json, rejection_error, wide_option
from nats_scheduler.message.definition import read_pattern
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.explanations import explanation_document
from nats_scheduler.observe.texts import moment_text
from nats_scheduler.schedule.clock_changes import with_clock_changes
from nats_scheduler.schedule.explain import explain_pattern
from nats_scheduler.schedule.patterns import Pattern


@click.command("explain")
@click.argument("pattern")
@click.option("--tz", "--time-zone", "tz", metavar="ZONE", help="Time zone of a cron pattern, as Europe/Berlin.")
@syntax_option
@after_option
@fire_count_option(MAX_FIRES_SHOWN)
@wide_option
@json_option
def command(
    pattern: str, tz: str | None, syntax: str | None, after: str, count: int, wide: bool, as_json: bool
) -> None:
    """Say in plain words when a pattern fires; needs no server.

    PATTERN is what goes into Nats-Schedule, such as '@every 5m' or '0 30 9 * * mon-fri'.
    No sidecar is asked; `info` explains a schedule that is stored.
    Exit codes: 0 explained, 1 invalid pattern or time zone, 2 wrong use.
    """
    stored_at = instant_of(after)
    one_line(pattern)
    one_line(tz or "")
    read = read_pattern(pattern, tz, stored_at, syntax)
    if as_json:
        print_json(explanation_document(pattern, tz, stored_at, count, syntax))
        if read is None or isinstance(read, Rejection):
            raise click.exceptions.Exit(EXIT_FAILED)
        return
    if read is None:
        raise no_schedule_error(f"the pattern was {pattern!r}")
    if isinstance(read, Rejection):
        raise rejection_error(read)
    _print(read, stored_at, count, wide=wide)


def _print(pattern: Pattern, stored_at: int, count: int, *, wide: bool) -> None:
    timetable = Timetable(pattern, stored_at)
    fires = timetable.fires(count + 1)
    click.echo(f"{explain_pattern(pattern)}\n\nIts next fires, if it is stored at {moment_text(stored_at)}:\n")
    print_next_fires(timetable, with_clock_changes(pattern, stored_at, fires[:count]), wide=wide)
    if not timetable.repeats:
        passed = fires[0] <= stored_at
        click.echo(f"\n{'its time has passed: it fires at once' if passed else 'it fires once'}")
    elif len(fires) <= count:
        click.echo(f"\nthen it ends: {ending_text(timetable)}")
