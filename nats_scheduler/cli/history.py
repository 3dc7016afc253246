"""`nats-scheduler history`: the past fires of a schedule, or of a stream, newest first, and how late each was.

Rule: what is shown is what is stored in the stream (`control.past`): fires of sidecars and of servers.
A running sidecar is asked about one schedule (`service.client`); else the stream is read here, with the same code.
With `--contents` each fire is read too, by one request each.
Cost: the server skips the messages on other subjects; some milliseconds in a small stream, half a second among a
million other messages. Limit: fires that are not stored any more are not shown.
"""

from collections.abc import Sequence
from functools import partial

import click

from nats_scheduler.cli.arguments import Range, check_schedule, check_stream, range_options, zone_option
from nats_scheduler.cli.completion import complete_stream, complete_subject
from nats_scheduler.cli.contents import of_content, print_content
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import json_option, print_json, print_table, wide_option
from nats_scheduler.cli.session import Session, in_session
from nats_scheduler.control.past import ALL_SUBJECTS, FireQuery
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.message.subjects import is_valid_subject
from nats_scheduler.observe.documents import PastFireDocument, instant_of
from nats_scheduler.observe.message_contents import ContentDocument
from nats_scheduler.observe.texts import printable
from nats_scheduler.observe.times import lateness_text, moment_text, time_text
from nats_scheduler.service.past_answers import FiresDocument
from nats_scheduler.settings.load import ResolvedSettings

MAX_CONTENTS = 100
"""Most fires of which one call shows the contents."""

MAX_AT_ONCE = 8
"""Contents that are asked for at once: a sidecar works on 16 requests of one client."""

NOT_STORED = "unknown: the server does not store when a fire was due; the fire before it would show it"


@click.command("history")
@click.argument("stream", shell_complete=complete_stream)
@click.argument("subject", required=False, shell_complete=complete_subject)
@connection_options
@zone_option
@range_options
@click.option(
    "--target", metavar="SUBJECT", help="Look there instead of on the schedule's target; wildcards are allowed."
)
@click.option(
    "--contents",
    is_flag=True,
    help=f"Show the headers and the body of each fire too; with a --limit of at most {MAX_CONTENTS}.",
)
@wide_option
@json_option
def command(
    resolved: ResolvedSettings,
    stream: str,
    subject: str | None,
    within: Range,
    target: str | None,
    contents: bool,
    wide: bool,
    as_json: bool,
) -> None:
    """Show the past fires of a schedule, and how late they were.

    SUBJECT is that of the schedule in STREAM, which may be gone; without it, the fires of all are shown.
    A running sidecar is asked; if none answers, the stream is read.
    Exit codes: 0 shown, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    check_stream(stream)
    if subject is not None:
        check_schedule(subject)
    if target is not None and not is_valid_subject(target):
        raise click.UsageError(f"--target of {target!r}: expected a subject such as 'orders.due'")
    if contents and within["limit"] > MAX_CONTENTS:
        raise click.UsageError(f"--limit of {within['limit']} with --contents: expected at most {MAX_CONTENTS}")
    query = FireQuery(subject, target=target, **within)
    found, read = in_session(resolved, lambda session: _read(session, stream, query, with_contents=contents))
    if as_json:
        print_json(_document(found, read))
        return
    _print(found, wide=wide)
    for fire, content in zip(found["fires"], read, strict=False):
        of = f"Fire {fire['sequence']} of {fire['schedule']}"
        if content is None:
            click.echo(printable(f"\n{of} is not stored any more"))
        else:
            print_content(content, of)


Contents = Sequence[ContentDocument | None]
"""The contents of fires; None is one that is not stored any more."""


async def _read(
    session: Session, stream: str, query: FireQuery, *, with_contents: bool
) -> tuple[FiresDocument, Contents]:
    """Return fires, and the content of each if they are wanted."""
    found = await session.known(lambda known: known.fires(stream, query), may_ask=query.schedule is not None)

    async def content(fire: PastFireDocument) -> ContentDocument | None:
        place, sequence, fire_in = fire["schedule"], fire["sequence"], fire["stream"]
        return await session.known(lambda known: known.content(stream, place, sequence, fire_in=fire_in))

    wanted = found["fires"] if with_contents else []
    return found, await in_turn([partial(content, fire) for fire in wanted], MAX_AT_ONCE)


def _document(found: FiresDocument, read: Contents) -> dict[str, object]:
    shown: dict[str, object] = {key: value for key, value in found.items() if key in FiresDocument.__annotations__}
    if not read:
        return shown
    pairs = zip(found["fires"], read, strict=True)
    return {**shown, "fires": [{**fire, "content": None if one is None else of_content(one)} for fire, one in pairs]}


def _print(found: FiresDocument, *, wide: bool) -> None:
    fires, searched = found["fires"], found["searched"]
    of = f" of {found['schedule']}" if found["schedule"] else ""
    stream = fires[0]["stream"] if fires else found["stream"]
    where = f"in {stream}" if searched == ALL_SUBJECTS else f"on {searched} in {stream}"
    if fires:
        print_past_fires(fires, wide=wide, of_all=not of)
        number = len(fires)
        click.echo(printable(f"{number} fire{'' if number == 1 else 's'}{of}, newest first, {where}"))
        if any(fire["fire_time"] is None for fire in fires):
            click.echo(NOT_STORED)
    else:
        click.echo(printable(f"no fire{of} is stored {where}"))
    if not found["complete"] and found["oldest_read"] is not None:
        oldest = moment_text(instant_of(found["oldest_read"]))
        click.echo(f"the search ended at {oldest}: --since and --target make it shorter")
    if found["older"] is not None:
        click.echo(f"older ones: --before {found['older']}")


def print_past_fires(fires: Sequence[PastFireDocument], *, wide: bool, of_all: bool = False) -> None:
    """Print past fires, one row each; with their schedules if they are those of all."""
    columns = ["fire time (UTC)", "late", "by", "seq", "stored (UTC)", "target"]
    cells = [_cells(fire) for fire in fires]
    if of_all:
        columns.insert(2, "schedule")
        for row, fire in zip(cells, fires, strict=True):
            row.insert(2, fire["schedule"])
    print_table(columns, cells, optional=["target", "stored (UTC)", "seq"], wide=wide)


def _cells(fire: PastFireDocument) -> list[str]:
    due = "unknown" if fire["fire_time"] is None else time_text(instant_of(fire["fire_time"]))
    stored_at, late = time_text(instant_of(fire["stored"])), lateness_text(fire["lateness_nanoseconds"])
    return [due, late, fire["fired_by"], str(fire["sequence"]), stored_at, fire["target"]]
