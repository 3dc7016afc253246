"""`nats-scheduler fire`: one fire of a schedule now, beside its own fires.

Rule: see `control.fires`; the schedule itself is not changed.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.changing import How, change_one, change_options, one_options
from nats_scheduler.control.fires import fire
from nats_scheduler.settings.load import ResolvedSettings


@click.command("fire")
@one_options
@change_options
def command(resolved: ResolvedSettings, stream: str, subject: str, how: How) -> None:
    """Fire a schedule once, now.

    It is the schedule on SUBJECT, in STREAM. The fire has the current time as its fire time; the schedule goes on.
    Exit codes: 0 done, 1 there is none, or the server refuses or is not reached, 2 wrong use or settings.
    """
    change_one(
        resolved, how, lambda access: fire(access.store, stream, subject, author=how.author, dry_run=how.dry_run)
    )
