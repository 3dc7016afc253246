"""`nats-scheduler fire` and `backfill`: one fire of a schedule now, or past fires that are not stored.

Rule: see `control.fires`; the schedule itself is not changed, and what is stored already is not stored again.
Limit: fires that a consumer or a limit has removed from the stream are not known there.
"""

from functools import partial

import click

from nats_scheduler.cli.arguments import instant_of
from nats_scheduler.cli.changing import How, change_one, change_options, one_options
from nats_scheduler.control.fires import DEFAULT_BACKFILL, MAX_BACKFILL, backfill, fire
from nats_scheduler.settings.load import ResolvedSettings


@click.command("fire")
@one_options
@change_options
def fire_command(resolved: ResolvedSettings, stream: str, subject: str, how: How) -> None:
    """Fire a schedule once, now.

    It is the schedule on SUBJECT, in STREAM. The fire has the current time as its fire time; the schedule goes on.
    Exit codes: 0 done, 1 there is none, or the server refuses or is not reached, 2 wrong use or settings.
    """
    change_one(resolved, stream, subject, how, fire)


@click.command("backfill")
@one_options
@click.option("--from", "since", metavar="TIME", required=True, help="The first fire time, RFC 3339 with an offset.")
@click.option("--to", "until", metavar="TIME", required=True, help="The last fire time, RFC 3339 with an offset.")
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(1, MAX_BACKFILL),
    default=DEFAULT_BACKFILL,
    help=f"Store nothing if more fires are missing: 1 to {MAX_BACKFILL:,}, {DEFAULT_BACKFILL} unless given.",
)
@change_options
def backfill_command(
    resolved: ResolvedSettings, stream: str, subject: str, since: str, until: str, limit: int, how: How
) -> None:
    """Store past fires of a schedule that are not stored.

    It is the schedule on SUBJECT, in STREAM; its fire times between --from and --to count, both included.
    Exit codes: 0 done, also if none is missing, 1 there is no schedule, or the server refuses or is not reached,
    2 wrong use or settings.
    """
    first, last = instant_of("--from", since), instant_of("--to", until)
    if first > last:
        raise click.UsageError(f"--from of {since!r} is later than --to of {until!r}")
    change_one(resolved, stream, subject, how, partial(backfill, since_ns=first, until_ns=last, limit=limit))
