"""`nats-scheduler add`: store a schedule, unless it is stored already.

Rule: see `control.edits`; the message is read first by the code that reads stored messages, and what that would reject
is not stored. The spelling of the headers is decided as for Python programs (`control.spelling`).
"""

from __future__ import annotations

from dataclasses import replace as replace_fields

import click

from nats_scheduler.cli.changing import Access, How, change_options, in_store, one_options
from nats_scheduler.cli.definition_options import PATTERN_OPTIONS, Given, definition_options
from nats_scheduler.cli.stored_schedule import StoredSchedule, print_stored, stored_schedule
from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.edits import add
from nats_scheduler.control.port import Served
from nats_scheduler.control.spelling import spelling_of
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.headers import EMPTY_BLOCK, with_headers
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.settings.load import ResolvedSettings


@click.command("add")
@one_options
@definition_options
@click.option("--replace", is_flag=True, help="Replace another schedule on SUBJECT.")
@click.option("--portable", is_flag=True, help="Write portable headers (X-Nats-Schedule), which the sidecar fires.")
@change_options
def command(
    resolved: ResolvedSettings, stream: str, subject: str, given: Given, replace: bool, portable: bool, how: How
) -> None:
    """Store a schedule, if it is valid.

    It is stored on SUBJECT, in STREAM, with BODY; if the same is stored there already, nothing is done.
    Exit codes: 0 done, also if it was there, 1 it is invalid, another schedule is there, or the server refuses or is
    not reached, 2 wrong use or settings.
    """
    if not given.has_pattern:
        raise click.UsageError(f"expected one of {PATTERN_OPTIONS}")
    if given.target is None and "X-Target" not in given.policies:
        raise click.UsageError("expected --target with the subject where the fires go")
    stored = in_store(
        resolved, lambda access: _add(access, stream, subject, given, how, replace=replace, portable=portable)
    )
    print_stored(stored, how)


async def _add(
    access: Access, stream: str, subject: str, given: Given, how: How, *, replace: bool, portable: bool
) -> StoredSchedule:
    served = await access.store.served(stream)
    now = access.store.now()
    has_sidecar = await _has_sidecar(access, served)
    dialect, notes = spelling_of(served, given.written(ADR51, now), now, portable=portable, has_sidecar=has_sidecar)
    block = with_headers(EMPTY_BLOCK, given.written(dialect, now))
    body = given.body or b""
    change = await add(
        access.store, stream, subject, block, body, replace=replace, author=how.author, dry_run=how.dry_run
    )
    change = replace_fields(change, notes=(*change.notes, *notes))
    wanted = _wanted(served, subject, block, body, access.store.now()) if how.dry_run else None
    return await stored_schedule(access, served, change, wanted)


async def _has_sidecar(access: Access, served: Served) -> bool:
    """Return whether a sidecar serves the stream at the moment; where the server fires nothing, it does not matter."""
    return not served.is_native or bool(access.sidecars.serving(await access.session.served_stream(served.name)))


def _wanted(served: Served, subject: str, block: bytes, body: bytes, now: int) -> Current | None:
    """Return the schedule as it would be stored now."""
    return read_current(StoredMessage(subject, 1, now, block, body), served)
