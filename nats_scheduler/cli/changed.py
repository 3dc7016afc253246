"""What the commands that change schedules print for people: a line for each change.

Rule: a dry run prints the same lines with `would be`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click

from nats_scheduler.cli.output import printable
from nats_scheduler.cli.tables import time_text
from nats_scheduler.control.changes import Change, Kind

MAX_FIRES_SHOWN = 20
"""The most fire times of one change that are printed for people; JSON has all."""


def print_change(change: Change, *, dry_run: bool) -> None:
    """Print a change, one line, and below it the fire times that were stored, and what to know of it."""
    click.echo(printable(change_text(change, dry_run=dry_run)))
    for fire in change.fires[:MAX_FIRES_SHOWN] if change.kind is Kind.BACKFILLED else ():
        click.echo(f"  {time_text(fire)}")
    if change.kind is Kind.BACKFILLED and len(change.fires) > MAX_FIRES_SHOWN:
        click.echo(f"  and {len(change.fires) - MAX_FIRES_SHOWN:,} more")
    for note in change.notes:
        click.echo(f"  {printable(note)}")


def change_text(change: Change, *, dry_run: bool) -> str:
    """Return what was done, or would be done, as one line."""
    return f"{change.subject} {_WORDS[change.kind](change, 'would be ' if dry_run else '')}"


def _replaced(change: Change, would: str) -> str:
    if would or change.after is None:
        return f"{would}{change.kind.value}"
    return f"{change.kind.value}: sequence {change.after} in place of {change.before}"


def _added(change: Change, would: str) -> str:
    return "would be added" if would else f"added: sequence {change.after}"


def _unchanged(change: Change, _would: str) -> str:
    return f"unchanged: sequence {change.before}"


def _removed(change: Change, would: str) -> str:
    return f"{would}removed: it {'is' if would else 'was'} sequence {change.before}"


def _fired(change: Change, would: str) -> str:
    times = ", ".join(map(time_text, change.fires))
    return f"{would}fired once, beside its schedule, with the fire time {times}"


def _backfilled(change: Change, would: str) -> str:
    number = len(change.fires)
    return f"{would}backfilled: {number:,} fire{'' if number == 1 else 's'}"


_WORDS: Mapping[Kind, Callable[[Change, str], str]] = {
    Kind.ADDED: _added,
    Kind.UNCHANGED: _unchanged,
    Kind.EDITED: _replaced,
    Kind.PAUSED: _replaced,
    Kind.RESUMED: _replaced,
    Kind.REMOVED: _removed,
    Kind.FIRED: _fired,
    Kind.BACKFILLED: _backfilled,
}
