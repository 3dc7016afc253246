"""`nats-scheduler rm`: remove schedules from their stream.

Rule: see `control.edits`; a schedule that another client has changed meanwhile is not removed.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.changing import How
from nats_scheduler.cli.many import Chosen, Task, change_many, many_options
from nats_scheduler.control.changes import Change
from nats_scheduler.control.edits import remove
from nats_scheduler.control.port import ScheduleStore
from nats_scheduler.settings.load import ResolvedSettings


@click.command("rm")
@many_options
def command(resolved: ResolvedSettings, chosen: Chosen, how: How) -> None:
    """Remove schedules.

    Removes the schedules on each SUBJECT of STREAM; wildcards are allowed, and are confirmed.
    Fires that are stored stay stored.
    Exit codes: 0 done, 1 one could not be removed, or the server refuses or is not reached, 2 wrong use or settings.
    """

    async def operation(store: ScheduleStore, subject: str) -> Change:
        return await remove(store, chosen.stream, subject, author=how.author, dry_run=how.dry_run)

    change_many(resolved, chosen, how, Task("remove", "removed", lambda _found: True, operation))
