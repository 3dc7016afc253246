"""`nats-scheduler resume`: let paused schedules fire again.

Rule: see `control.switch`; what came due while a schedule was paused is not made up, but for an `@at`, whose only fire
it is.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.changing import How
from nats_scheduler.cli.many import Chosen, Task, change_many, many_options
from nats_scheduler.control.changes import Change
from nats_scheduler.control.port import ScheduleStore
from nats_scheduler.control.switch import resume
from nats_scheduler.settings.load import ResolvedSettings


@click.command("resume")
@many_options
@click.option("--drop", is_flag=True, help="Remove an @at whose time has passed, instead of firing it at once.")
def command(resolved: ResolvedSettings, chosen: Chosen, how: How, drop: bool) -> None:
    """Resume schedules that are paused.

    Resumes the schedules on each SUBJECT of STREAM; wildcards are allowed, and are confirmed.
    Exit codes: 0 done, 1 one could not be resumed, or the server refuses or is not reached, 2 wrong use or settings.
    """

    async def operation(store: ScheduleStore, subject: str) -> Change:
        return await resume(store, chosen.stream, subject, author=how.author, dry_run=how.dry_run, drop=drop)

    change_many(resolved, chosen, how, Task("resume", "active", lambda found: found.is_paused, operation))
