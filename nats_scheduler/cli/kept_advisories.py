"""What `changes` and `failures` share: both show advisories, from the stream that keeps them.

Rule: both have the same arguments and options, checked before a server is asked.
Cost: see `service.kept_failures`. Limit: the stream exists only where a sidecar keeps failures.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

import click

from nats_scheduler.cli.arguments import check_stream
from nats_scheduler.cli.completion import complete_stream, complete_subject
from nats_scheduler.cli.options import Command, connection_options
from nats_scheduler.cli.output import CommandError
from nats_scheduler.cli.past import instant_since, limit_option, since_option
from nats_scheduler.cli.session import Session
from nats_scheduler.cli.tables import wide_option
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.subjects import is_valid_subject
from nats_scheduler.service.kept_failures import DEFAULT_FAILURES, MAX_FAILURES, FailureQuery


def kept_options(command: Command) -> Command:
    """Give a command the arguments and options of a list of advisories: it gets `resolved`, `query`, `wide`, `as_json`.

    Ends the command with 2 if a value cannot be that of a stream, a subject, a time or a number of rows.
    """

    @wraps(command)
    def run(stream: str | None, subject: str | None, since: str | None, limit: int, **arguments: Any) -> Any:
        check_stream(stream)
        if subject is not None and not is_valid_subject(subject):
            raise click.UsageError(f"{subject!r}: expected a subject such as 'orders.>'")
        return command(query=FailureQuery(stream, subject, limit, instant_since(since)), **arguments)

    decorated: Command = run
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print one JSON document."),
        wide_option,
        limit_option(DEFAULT_FAILURES, MAX_FAILURES),
        since_option,
        connection_options,
        click.argument("subject", required=False, shell_complete=complete_subject),
        click.argument("stream", required=False, shell_complete=complete_stream),
    ):
        decorated = option(decorated)
    return decorated


async def keeping_stream(session: Session, name: str) -> StreamState:
    """Return the stream that keeps advisories, as it is now; end the command with 1 if it does not exist."""
    info = await session.api.stream(name)
    if info is None:
        raise CommandError(f"stream {name} does not exist: a sidecar creates it, unless keep_failures is false")
    return StreamState.from_info(info)


def print_completeness(*, is_complete: bool) -> None:
    """Print that a list is not complete, if so, and how to get a complete one."""
    if not is_complete:
        click.echo("there were too many messages to read them all: --since and STREAM make the search shorter")
