"""`nats-scheduler next` and `explain`: when a pattern fires, or a schedule that is stored, and what a pattern means.

Rule: the answer is what the scheduler would do with a message stored at `--after`, computed by the same code; a stored
schedule is looked up by `cli.next_of_schedule`.
Cost: no server, no client for a pattern. Limit: the fires are those of the pattern; what a stream or a TTL does to them
is known of a stored schedule only.
"""

from collections.abc import Callable
from typing import Any, NoReturn

import click
from click.shell_completion import CompletionItem

from nats_scheduler.cli.arguments import instant_of
from nats_scheduler.cli.check import no_schedule_error, one_line
from nats_scheduler.cli.fire_table import ending_text, next_document, print_fires
from nats_scheduler.cli.output import EXIT_FAILED, json_option, print_json, rejection_error, wide_option
from nats_scheduler.message.definition import read_pattern
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.documents import error_document
from nats_scheduler.observe.explanations import explanation_document
from nats_scheduler.observe.times import moment_text
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.schedule.clock_changes import with_clock_changes
from nats_scheduler.schedule.explain import explain_pattern
from nats_scheduler.schedule.patterns import Pattern, Syntax

MAX_FIRES_SHOWN = 10_000
"""The most fires that one call shows."""

NEED_QUOTES = frozenset({"@at", "@every"})
"""The first words of patterns that a shell has split; no stream is taken to have such a name."""

NEEDS_SERVER = "nats_scheduler.cli.next.needs_server"
"""Where the context of the command has whether it takes the flags of the connection."""

after_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--after",
    metavar="TIME",
    default="now",
    help="When the schedule is stored: RFC 3339 or `now`; an interval counts from then.",
)


syntax_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--syntax",
    type=click.Choice([one.value for one in Syntax]),
    help="How PATTERN is written (X-Syntax), if not as for the server.",
)


def fire_count_option(most: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Give a command the flag for the number of fires that it shows, at most `most`."""
    return click.option(
        "--count",
        metavar="N",
        type=click.IntRange(1, most),
        default=5,
        help="Fires to show, 5 unless given.",
    )


class PatternOrSchedule(click.Command):
    """The command: it takes the flags of the connection only where a schedule is named, or for help.

    To declare them takes 100 ms more than a pattern does.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the arguments; those that only make sense with a server make it one that needs a server."""
        ctx.meta[NEEDS_SERVER] = self._needs_server(ctx, args)
        return super().parse_args(ctx, args)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with those of the connection if they are needed."""
        own = super().get_params(ctx)
        if not ctx.meta.get(NEEDS_SERVER):
            return own
        from nats_scheduler.cli.options import connection_parameters

        return [*own[:-1], *connection_parameters(), own[-1]]

    def _needs_server(self, ctx: click.Context, args: list[str]) -> bool:
        try:
            values, rest, _order = self.make_parser(ctx).parse_args(list(args))
        except click.UsageError:
            return True
        first = str(values.get("pattern") or "")
        is_split = first in NEED_QUOTES or first[:1] in "*0123456789"  # a stream may begin so, but has no third word
        if rest and is_split and not any(word.startswith("-") for word in rest):
            words = " ".join(filter(None, (first, values.get("subject"), *rest)))
            raise click.UsageError(f"a PATTERN is one argument: '{words}' in quotes", ctx)
        help_option = self.get_help_option(ctx)
        wants_help = help_option is not None and values.get(help_option.name or "") is True
        return wants_help or isinstance(values.get("subject"), str)


def _complete_stream(ctx: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    from nats_scheduler.cli.completion import complete_stream

    return complete_stream(ctx, parameter, incomplete)


@click.command("next", cls=PatternOrSchedule)
@click.argument("pattern", metavar="PATTERN | STREAM", shell_complete=_complete_stream)
@click.argument("subject", metavar="[SUBJECT]", required=False)
@click.option("--tz", metavar="ZONE", help="Time zone of a cron pattern (Nats-Schedule-Time-Zone), as Europe/Berlin.")
@syntax_option
@after_option
@fire_count_option(MAX_FIRES_SHOWN)
@wide_option
@json_option
def command(
    pattern: str,
    subject: str | None,
    tz: str | None,
    syntax: str | None,
    after: str,
    count: int,
    wide: bool,
    as_json: bool,
    **connection: Any,
) -> None:
    """Show when a pattern fires, or a schedule that is stored.

    PATTERN is what goes into Nats-Schedule, such as '@every 5m' or '0 30 9 * * mon-fri'; it needs no server.
    With STREAM and SUBJECT it is the schedule that is stored there: a running sidecar is asked; if none answers, the
    stream is read.
    Exit codes: 0 shown, 1 invalid pattern or time zone, no such schedule, or no server, 2 wrong use.
    """
    if subject is not None:
        from nats_scheduler.cli.next_of_schedule import show_next_fires

        if pattern in NEED_QUOTES:
            raise click.UsageError(f"a PATTERN is one argument: '{pattern} {subject}' in quotes")
        if tz is not None or syntax is not None or after != "now":
            raise click.UsageError("--tz, --syntax and --after go with a PATTERN: a stored schedule has its own")
        show_next_fires(connection, pattern, subject, count, wide=wide, as_json=as_json)
        return
    if any(connection.values()):
        raise click.UsageError("the flags of the connection go with STREAM and SUBJECT: a PATTERN needs no server")
    _show_pattern(pattern, tz, syntax, after, count, wide=wide, as_json=as_json)


def _show_pattern(
    pattern: str, tz: str | None, syntax: str | None, after: str, count: int, *, wide: bool, as_json: bool
) -> None:
    stored_at = _stored_at(after)
    one_line(pattern + (tz or ""))
    read = read_pattern(pattern, tz, stored_at, syntax)
    if read is None or isinstance(read, Rejection):
        _refuse(pattern, tz, read, as_json)
    timetable = Timetable(read, stored_at)
    fires = timetable.fires(count + 1)
    shown, ends = fires[:count], len(fires) <= count
    entries = with_clock_changes(read, stored_at, shown)
    if as_json:
        print_json(next_document(timetable, tz, stored_at, entries, ends=ends))
        return
    print_fires(timetable, entries, stored_at, wide=wide)
    if ends:
        click.echo(f"then it ends: {ending_text(timetable)}")


def _refuse(pattern: str, zone: str | None, rejection: Rejection | None, as_json: bool) -> NoReturn:
    """End the command with 1: the server would refuse the pattern or, for None, not see a schedule in it."""
    if as_json:
        error = {} if rejection is None else {"error": error_document(rejection)}
        print_json({"pattern": pattern, "time_zone": zone, "fires": [], **error})
        raise click.exceptions.Exit(EXIT_FAILED)
    raise no_schedule_error(f"the pattern was {pattern!r}") if rejection is None else rejection_error(rejection)


def _stored_at(after: str) -> int:
    """Return the time of `--after` (ns); end the command with 2 if it is none."""
    return SystemClock().now() if after == "now" else instant_of("--after", after)


@click.command("explain")
@click.argument("pattern")
@click.option("--tz", "--time-zone", "tz", metavar="ZONE", help="Time zone of a cron pattern, as Europe/Berlin.")
@syntax_option
@after_option
@fire_count_option(MAX_FIRES_SHOWN)
@wide_option
@json_option
def explain_command(
    pattern: str, tz: str | None, syntax: str | None, after: str, count: int, wide: bool, as_json: bool
) -> None:
    """Say in plain words when a pattern fires; needs no server.

    PATTERN is what goes into Nats-Schedule, such as '@every 5m' or '0 30 9 * * mon-fri'.
    No sidecar is asked; `info` explains a schedule that is stored.
    Exit codes: 0 explained, 1 invalid pattern or time zone, 2 wrong use.
    """
    stored_at = _stored_at(after)
    one_line(pattern + (tz or ""))
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
    _print_explanation(read, stored_at, count, wide=wide)


def _print_explanation(pattern: Pattern, stored_at: int, count: int, *, wide: bool) -> None:
    timetable = Timetable(pattern, stored_at)
    fires = timetable.fires(count + 1)
    click.echo(f"{explain_pattern(pattern)}\n\nIts next fires, if it is stored at {moment_text(stored_at)}:\n")
    print_fires(timetable, with_clock_changes(pattern, stored_at, fires[:count]), wide=wide)
    if not timetable.repeats:
        passed = fires[0] <= stored_at
        click.echo(f"\n{'its time has passed: it fires at once' if passed else 'it fires once'}")
    elif len(fires) <= count:
        click.echo(f"\nthen it ends: {ending_text(timetable)}")
