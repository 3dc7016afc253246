"""`nats-scheduler pause`: keep schedules stored and let nothing fire them, until `resume`.

Rule: see `control.switch`; the schedule that is stored in place of the active one differs in the name of one header.
"""

from __future__ import annotations

import click

from nats_scheduler.cli.changing import How
from nats_scheduler.cli.many import Chosen, Task, change_many, many_options
from nats_scheduler.control.changes import Change
from nats_scheduler.control.port import ScheduleStore
from nats_scheduler.control.switch import pause
from nats_scheduler.settings.load import ResolvedSettings


@click.command("pause")
@many_options
def command(resolved: ResolvedSettings, chosen: Chosen, how: How) -> None:
    """Pause schedules: they stay stored, and nothing fires them.

    Pauses the schedules on each SUBJECT of STREAM; wildcards are allowed, and are confirmed.
    Exit codes: 0 done, 1 one could not be paused, or the server refuses or is not reached, 2 wrong use or settings.
    """

    async def operation(store: ScheduleStore, subject: str) -> Change:
        return await pause(store, chosen.stream, subject, author=how.author, dry_run=how.dry_run)

    change_many(resolved, chosen, how, Task("pause", "paused", lambda found: not found.is_paused, operation))
