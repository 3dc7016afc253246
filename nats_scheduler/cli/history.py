"""`nats-scheduler history`: the past fires of one schedule, newest first, and how late each of them was.

Rule: what is shown is what is stored in the stream (`service.history`): fires of sidecars and of servers.
A running sidecar is asked (`service.client`); if none answers, the stream is read here, with the same code.
Cost: the server skips the messages on other subjects; some milliseconds in a small stream, half a second among a
million other messages. Limit: fires that are not stored any more are not shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import click

from nats_scheduler.cli.arguments import check_schedule, check_stream, instant_since, limit_option, since_option
from nats_scheduler.cli.completion import complete_stream, complete_subject
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import CommandError, json_option, print_json, print_table, wide_option
from nats_scheduler.cli.session import Session, in_session
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.fires import PastFire
from nats_scheduler.message.subjects import is_valid_subject
from nats_scheduler.observe.documents import past_fire_document
from nats_scheduler.observe.texts import moment_text, printable, span_text, time_text
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.client import ask_for_fires
from nats_scheduler.service.history import DEFAULT_FIRES, MAX_FIRES, FireQuery, FoundFires, find_fires
from nats_scheduler.settings.load import ResolvedSettings

SHOWN_IN_MILLISECONDS_BELOW_NS = 10 * SECOND


@click.command("history")
@click.argument("stream", shell_complete=complete_stream)
@click.argument("subject", shell_complete=complete_subject)
@connection_options
@since_option
@limit_option(DEFAULT_FIRES, MAX_FIRES)
@click.option(
    "--target", metavar="SUBJECT", help="Look there instead of on the schedule's target; wildcards are allowed."
)
@wide_option
@json_option
def command(
    resolved: ResolvedSettings,
    stream: str,
    subject: str,
    since: str | None,
    limit: int,
    target: str | None,
    wide: bool,
    as_json: bool,
) -> None:
    """Show the past fires of a schedule, and how late they were.

    SUBJECT is that of the schedule in STREAM; the schedule itself may be gone.
    A running sidecar is asked; if none answers, the stream is read.
    Exit codes: 0 shown, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    check_stream(stream)
    check_schedule(subject)
    if target is not None and not is_valid_subject(target):
        raise click.UsageError(f"--target of {target!r}: expected a subject such as 'orders.due'")
    query = FireQuery(subject, limit, instant_since(since), target)
    found = in_session(resolved, lambda session: read_fires(session, stream, query))
    if as_json:
        print_json(_document(stream, found, query))
    else:
        _print(found, query, wide=wide)


async def read_fires(session: Session, stream: str, query: FireQuery) -> FoundFires:
    """Return the past fires of a schedule; end the command with 1 if its stream does not exist."""
    answered = await ask_for_fires(session.service, stream, query)
    if answered is not None:
        return answered
    info = await session.api.stream(stream)
    if info is None:
        raise CommandError(f"stream {stream} does not exist")
    state, _mode = await session.with_mode(StreamState.from_info(info))
    return await find_fires(session.connection, session.api, state, query)


def _document(stream: str, found: FoundFires, query: FireQuery) -> dict[str, object]:
    return {
        "stream": stream,
        "schedule": query.schedule,
        "searched": found.searched,
        "complete": found.is_complete,
        "oldest_read": None if found.oldest_read is None else format_rfc3339(found.oldest_read),
        "fires": [past_fire_document(found.stream, fire) for fire in found.fires],
    }


def _print(found: FoundFires, query: FireQuery, *, wide: bool) -> None:
    where = f"in {found.stream}" if found.searched == ">" else f"on {found.searched} in {found.stream}"
    if found.fires:
        print_past_fires(found.fires, wide=wide)
        number = len(found.fires)
        click.echo(printable(f"{number} fire{'' if number == 1 else 's'} of {query.schedule}, newest first, {where}"))
    else:
        click.echo(printable(f"no fire of {query.schedule} is stored {where}"))
    if not found.is_complete and found.oldest_read is not None:
        click.echo(f"the search ended at {moment_text(found.oldest_read)}: --since and --target make it shorter")


def print_past_fires(fires: Sequence[PastFire], *, wide: bool) -> None:
    """Print past fires, one row each."""
    columns = ["fire time (UTC)", "late", "by", "seq", "stored (UTC)", "target"]
    cells = [_cells(fire) for fire in fires]
    print_table(columns, cells, optional=["target", "stored (UTC)", "seq"], wide=wide)


def _cells(fire: PastFire) -> list[str]:
    due = "unknown" if fire.fire_time is None else time_text(fire.fire_time)
    stored_at = time_text(fire.stored_at)
    return [due, lateness_text(fire.lateness), fire.fired_by, str(fire.sequence), stored_at, fire.target]


def lateness_text(lateness: int | None) -> str:
    """Return a lateness (ns) as text: in milliseconds below 10 s; "" if it is unknown."""
    if lateness is None:
        return ""
    if abs(lateness) < SHOWN_IN_MILLISECONDS_BELOW_NS:
        return f"{lateness / MILLISECOND:.1f} ms"
    return span_text(lateness)
