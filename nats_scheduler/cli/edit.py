"""`nats-scheduler edit`: change parts of a stored schedule.

Rule: see `control.edits`; only what is named is changed, byte for byte. An edit of another client in between is kept:
the change is made again to what that client stored, or refused if the operator expects a version.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import click

from nats_scheduler.cli.changing import Access, How, change_options, in_store, one_options
from nats_scheduler.cli.check import one_line
from nats_scheduler.cli.definition_options import Given, definition_options
from nats_scheduler.cli.output import EXIT_WRONG_USE, CommandError, print_warning, printable
from nats_scheduler.cli.stored_schedule import StoredSchedule, print_stored, stored_schedule
from nats_scheduler.control.changes import Change
from nats_scheduler.control.current import Current, read_current
from nats_scheduler.control.edits import edit_latest
from nats_scheduler.control.port import ScheduleStore, Served
from nats_scheduler.control.words import Edit, edited, named_header
from nats_scheduler.message.headers import decoded, header_value
from nats_scheduler.message.paused import paused_block
from nats_scheduler.settings.load import ResolvedSettings


@click.command("edit")
@one_options
@definition_options
@click.option(
    "--unset",
    metavar="NAME",
    multiple=True,
    help="Remove target, source, ttl, tz, rollup, a policy such as X-Jitter, or a header; repeatable.",
)
@click.option("--expect", metavar="SEQ", type=click.IntRange(1), help="Change it only if this is its sequence.")
@change_options
def command(
    resolved: ResolvedSettings,
    stream: str,
    subject: str,
    given: Given,
    unset: tuple[str, ...],
    expect: int | None,
    how: How,
) -> None:
    """Change parts of a stored schedule.

    It is the schedule on SUBJECT, in STREAM; what is not named stays as it is, also that it is paused.
    Exit codes: 0 done, 1 there is none, it would be invalid, another client changed it, or the server refuses or is
    not reached, 2 wrong use or settings.
    """
    if given.is_empty and not unset:
        raise click.UsageError("nothing is to be changed: expected an option such as --every, --unset or a BODY")
    stored = in_store(resolved, lambda access: _edit(access, stream, subject, given, unset, expect, how))
    print_stored(stored, how)


async def _edit(
    access: Access, stream: str, subject: str, given: Given, unset: Sequence[str], expect: int | None, how: How
) -> StoredSchedule:
    served = await access.store.served(stream)
    change, left = await edited_schedule(access.store, served, subject, given, unset, expect, how)
    return await stored_schedule(access, served, change, left if how.dry_run else None)


async def edited_schedule(
    store: ScheduleStore,
    served: Served,
    subject: str,
    given: Given,
    unset: Sequence[str],
    expect: int | None,
    how: How,
) -> tuple[Change, Current | None]:
    """Edit a schedule, again if another client has changed it meanwhile; return the schedule as it is left, too."""
    left: Current | None = None

    def wanted(found: Current) -> Edit:
        nonlocal left
        one = _wanted(found, given, unset, store.now())
        left = _edited(served, found, one, store.now())
        return one

    change = await edit_latest(
        store, served.name, subject, wanted, expected=expect, author=how.author, dry_run=how.dry_run
    )
    return change, left


def _wanted(found: Current, given: Given, unset: Sequence[str], now: int) -> Edit:
    """Return the edit of the schedule as it is stored; warn of names to remove that it does not have."""
    names = [named_header(found.dialect, one_line(name).decode("utf-8", "surrogateescape")) for name in unset]
    for name in names:
        if header_value(found.active_block, name) is None:
            print_warning(printable(f"{found.subject} has no {decoded(name)}: there is nothing to remove"))
    headers = given.written(found.dialect, now)
    _check_repeated([*names, *(name for name, _value in headers)])
    return Edit(headers, names, given.body)


def _check_repeated(names: Sequence[bytes]) -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise CommandError(f"{decoded(name)} is to be changed twice: expected one change", EXIT_WRONG_USE)


def _edited(served: Served, found: Current, wanted: Edit, now: int) -> Current | None:
    """Return the schedule as an edit would leave it: it keeps its stored time if it keeps its pattern."""
    message, block = found.message, edited(found.active_block, wanted)
    stored_at = now if found.dialect.schedule in dict(wanted.set) else message.stored_at
    block = paused_block(block, found.dialect) if found.is_paused else block
    return read_current(message._replace(block=block, stored_at=stored_at), served)
