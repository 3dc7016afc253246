"""`nats-scheduler changes`: who changed schedules, when and why, newest first.

Rule: what is shown is what those who changed schedules by commands, by the micro service or by the Python client have
published as advisories, as far as a stream keeps them (`service.kept_changes`). Nothing vouches for the names.
Cost: a few requests. Limit: a change by any other client, such as `nats pub`, is not among them.
"""

from __future__ import annotations

from typing import Any

import click

from nats_scheduler.cli.kept_advisories import keeping_stream, kept_options, print_completeness
from nats_scheduler.cli.output import print_json
from nats_scheduler.cli.session import Session, in_session
from nats_scheduler.cli.tables import moment_text, print_table
from nats_scheduler.control.advisories import MAX_FIRES_NAMED
from nats_scheduler.control.changes import Kind
from nats_scheduler.observe.change_documents import change_document
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.kept_changes import ChangeQuery, FoundChanges, KeptChange, find_changes
from nats_scheduler.settings.load import ResolvedSettings


@click.command("changes")
@kept_options
def command(resolved: ResolvedSettings, query: ChangeQuery, wide: bool, as_json: bool) -> None:
    """Show who changed schedules, when and why, newest first.

    Of all streams, of one STREAM, or of its schedules on SUBJECT; wildcards are allowed.
    Exit codes: 0 shown, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    kept_in = resolved.settings.failures_stream
    found = in_session(resolved, lambda session: _read(session, kept_in, query))
    if as_json:
        documents = [_document(change) for change in found.changes]
        print_json({"kept_in": kept_in, "complete": found.is_complete, "changes": documents})
    else:
        _print(found, wide=wide)


async def _read(session: Session, kept_in: str, query: ChangeQuery) -> FoundChanges:
    return await find_changes(session.connection, session.api, await keeping_stream(session, kept_in), query)


def _document(kept: KeptChange) -> dict[str, Any]:
    return {"stored": format_rfc3339(kept.stored_at), "kept_as": kept.sequence, **change_document(kept.change)}


def _print(found: FoundChanges, *, wide: bool) -> None:
    if found.changes:
        columns = ["when (UTC)", "stream", "schedule", "what", "by", "why", "sequence"]
        rows = [_cells(kept) for kept in found.changes]
        print_table(columns, rows, optional=["sequence", "stream"], wide=wide)
        number = len(found.changes)
        click.echo(f"{number} change{'' if number == 1 else 's'}, newest first")
    else:
        click.echo("no change is kept")
    print_completeness(is_complete=found.is_complete)


def _cells(kept: KeptChange) -> list[str]:
    change = kept.change
    sequences = dict.fromkeys(str(one) for one in (change.before, change.after) if one is not None)
    what = change.kind.value
    if change.kind is Kind.BACKFILLED:
        number = len(change.fires)
        what += f" {number} fire{'' if number == 1 else 's'}" + (" or more" if number == MAX_FIRES_NAMED else "")
    return [
        moment_text(kept.stored_at),
        change.stream,
        change.subject,
        what,
        change.author.name,
        change.author.reason,
        " → ".join(sequences),
    ]
