"""`nats-scheduler failures`: what went wrong with schedules, newest first.

Rule: what is shown is what sidecars published as advisories, as far as a stream keeps it (`service.kept_failures`).
A running sidecar is asked (`service.client`); if none answers, that stream is read here, with the same code.
Cost: a few requests. Limit: what went wrong while no sidecar had a connection was not published.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.kept_advisories import keeping_stream, kept_options, print_completeness
from nats_scheduler.cli.output import print_json
from nats_scheduler.cli.session import Session, in_session
from nats_scheduler.cli.tables import moment_text, print_table
from nats_scheduler.observe.failure_words import what_happened
from nats_scheduler.service.client import ask_for_failures
from nats_scheduler.service.kept_failures import FailureQuery, FoundFailures, failure_document, find_failures
from nats_scheduler.settings.load import ResolvedSettings


@click.command("failures")
@kept_options
def command(resolved: ResolvedSettings, query: FailureQuery, wide: bool, as_json: bool) -> None:
    """Show what went wrong with schedules, newest first.

    Of all streams, of one STREAM, or of its schedules on SUBJECT; wildcards are allowed.
    A running sidecar is asked; if none answers, the stream that keeps them is read.
    Exit codes: 0 shown, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    kept_in = resolved.settings.failures_stream
    found = in_session(resolved, lambda session: _read(session, kept_in, query))
    if as_json:
        documents = [failure_document(failure) for failure in found.failures]
        print_json({"kept_in": kept_in, "complete": found.is_complete, "failures": documents})
    else:
        _print(found, wide=wide)


async def _read(session: Session, kept_in: str, query: FailureQuery) -> FoundFailures:
    answered = await ask_for_failures(session.service, kept_in, query)
    if answered is not None:
        return answered
    return await find_failures(session.connection, session.api, await keeping_stream(session, kept_in), query)


def _print(found: FoundFailures, *, wide: bool) -> None:
    if not found.failures:
        click.echo("nothing went wrong, as far as it is kept")
    else:
        rows = [
            [moment_text(one.stored_at), one.kind, one.stream, one.schedule or "", what_happened(one.body)]
            for one in found.failures
        ]
        print_table(["stored (UTC)", "kind", "stream", "schedule", "what"], rows, wide=wide)
        number = len(found.failures)
        click.echo(f"{number} failure{'' if number == 1 else 's'}, newest first")
    print_completeness(is_complete=found.is_complete)
