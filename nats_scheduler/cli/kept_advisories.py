"""`nats-scheduler changes` and `failures`: advisories, newest first, from the stream that keeps them.

Rule: what is shown is what sidecars published about problems, and what those published who changed schedules by
commands, by the micro service or by the Python client (`service.stored_advisories`); nothing vouches for the names of
the latter.
For failures a running sidecar is asked (`service.client`); if none answers, the stream is read, with the same code.
Cost: a few requests. Limit: the stream exists only where a sidecar keeps failures; a change by any other client, such
as `nats pub`, and what went wrong while no sidecar had a connection, are not in it.
"""

from dataclasses import replace
from functools import wraps
from typing import Any

import click

from nats_scheduler.cli.arguments import Range, check_stream, range_options, zone_option
from nats_scheduler.cli.completion import complete_stream, complete_subject
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import (
    Command,
    decorated,
    json_option,
    print_json,
    print_table,
    wide_option,
)
from nats_scheduler.cli.session import Session, in_session
from nats_scheduler.cli.without_sidecar import StoredSource
from nats_scheduler.control.change_advisory import MAX_FIRES_NAMED
from nats_scheduler.control.changes import Change, Kind
from nats_scheduler.message.subjects import is_valid_subject
from nats_scheduler.observe.advisories import FAILURE_KINDS
from nats_scheduler.observe.documents import FailureDocument, FailuresDocument, instant_of
from nats_scheduler.observe.texts import parts_text, what_happened
from nats_scheduler.observe.times import moment_text
from nats_scheduler.service.past_answers import changes_document, kept_changes
from nats_scheduler.service.stored_advisories import AdvisoryQuery, find_changes
from nats_scheduler.settings.load import ResolvedSettings

CHANGE_COLUMNS = ("when (UTC)", "stream", "schedule", "what", "by", "why", "changed", "sequence")
FAILURE_COLUMNS = ("stored (UTC)", "kind", "stream", "schedule", "what")
NOT_OF_THE_SERVER = "the server's own scheduler reports no failures: what it missed is not known"


def kept_options(command: Command) -> Command:
    """Give a command the arguments and options of a list of advisories: it gets `resolved`, `query`, `wide`, `as_json`.

    Ends the command with 2 if a value cannot be that of a stream, a subject, a time or a number of rows.
    """

    @wraps(command)
    def run(stream: str | None, subject: str | None, within: Range, **arguments: Any) -> Any:
        check_stream(stream)
        if subject is not None and not is_valid_subject(subject):
            raise click.UsageError(f"{subject!r}: expected a subject such as 'orders.>'")
        return command(query=AdvisoryQuery(stream, subject, **within), **arguments)

    return decorated(
        run,
        click.argument("stream", required=False, shell_complete=complete_stream),
        click.argument("subject", required=False, shell_complete=complete_subject),
        connection_options,
        range_options,
        zone_option,
        wide_option,
        json_option,
    )


def _print_end(found: FailuresDocument, number: int, noun: str, nothing: str) -> None:
    """Print how many rows were printed, and how to get those that are missing."""
    click.echo(f"{number} {noun}{'' if number == 1 else 's'}, newest first" if number else nothing)
    if not found["complete"]:
        click.echo("there were too many messages to read them all: --since and STREAM make the search shorter")
    if found["older"] is not None:
        click.echo(f"older ones: --before {found['older']}")


@click.command("changes")
@kept_options
def changes_command(resolved: ResolvedSettings, query: AdvisoryQuery, wide: bool, as_json: bool) -> None:
    """Show who changed what in schedules and why, newest first.

    Of all streams, of one STREAM, or of its schedules on SUBJECT; wildcards are allowed.
    Exit codes: 0 shown, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    kept_in = resolved.settings.failures_stream
    found = in_session(resolved, lambda session: _read_changes(session, kept_in, query))
    if as_json:
        print_json(changes_document(found))
    else:
        kept = kept_changes(found)
        if kept:
            rows = [_cells(one, change) for one, change in kept]
            print_table(CHANGE_COLUMNS, rows, optional=["sequence", "stream"], wide=wide)
        _print_end(found, len(kept), "change", "no change is kept")


async def _read_changes(session: Session, kept_in: str, query: AdvisoryQuery) -> FailuresDocument:
    stream = await StoredSource(session).keeping(kept_in)
    return await find_changes(session.connection, session.api, stream, query)


def _cells(kept: FailureDocument, change: Change) -> list[str]:
    sequences = dict.fromkeys(str(one) for one in (change.before, change.after) if one is not None)
    what = change.kind.value
    if change.kind is Kind.BACKFILLED:
        number = len(change.fires)
        what += f" {number} fire{'' if number == 1 else 's'}" + (" or more" if number == MAX_FIRES_NAMED else "")
    return [
        moment_text(instant_of(kept["stored"])),
        change.stream,
        change.subject,
        what,
        change.author.name,
        change.author.reason,
        parts_text(change.parts),
        " → ".join(sequences),
    ]


@click.command("failures")
@click.option(
    "--kind",
    metavar="KIND",
    type=click.Choice(sorted(FAILURE_KINDS)),
    help="Only failures of this kind, such as fire_refused.",
)
@kept_options
def failures_command(
    resolved: ResolvedSettings, query: AdvisoryQuery, kind: str | None, wide: bool, as_json: bool
) -> None:
    """Show what went wrong with schedules, newest first.

    Of all streams, of one STREAM, or of its schedules on SUBJECT; wildcards are allowed.
    A running sidecar is asked; if none answers, the stream that keeps them is read.
    Exit codes: 0 shown, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    kept_in, query = resolved.settings.failures_stream, replace(query, kind=kind)

    async def read(session: Session) -> tuple[FailuresDocument, bool]:
        return await session.known(lambda known: known.failures(kept_in, query)), session.server.schedules_natively

    found, is_native = in_session(resolved, read)
    if as_json:
        print_json({key: value for key, value in found.items() if key in FailuresDocument.__annotations__})
    else:
        rows = [
            [
                moment_text(instant_of(one["stored"])),
                one["kind"],
                one["stream"],
                one["schedule"] or "",
                what_happened(one["advisory"]),
            ]
            for one in found["failures"]
        ]
        if rows:
            print_table(FAILURE_COLUMNS, rows, wide=wide)
        _print_end(found, len(rows), "failure", "nothing went wrong, as far as it is kept")
        if is_native:
            click.echo(NOT_OF_THE_SERVER)
