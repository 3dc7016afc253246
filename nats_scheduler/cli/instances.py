"""`nats-scheduler instances`: the sidecars of the account, and which shards of which streams each of them holds.

Rule: what is shown is what the sidecars themselves use, read from the bucket of the registry; nothing is written.
Ages are by the server's clock, which also stamps the heartbeats.
Cost: two requests for each instance, one for each stream.
Limit: an instance that serves more streams than fit into its heartbeat is shown as serving all.
"""

from __future__ import annotations

from collections import Counter

import click

from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import print_json, printable
from nats_scheduler.cli.session import in_session
from nats_scheduler.cli.tables import moment_text, print_table, wide_option
from nats_scheduler.engine.shards import SHARDS
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.fleet import read_fleet
from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.service.instances import instance_document
from nats_scheduler.service.port import Fleet, Instance
from nats_scheduler.settings.load import ResolvedSettings


@click.command("instances")
@connection_options
@wide_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(resolved: ResolvedSettings, wide: bool, as_json: bool) -> None:
    """List the sidecars of the account, and what each of them holds.

    Exit codes: 0 listed, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    fleet = in_session(resolved, lambda session: read_fleet(session.registry, session.api, SystemClock().now))
    if as_json:
        print_json(
            {"at": format_rfc3339(fleet.at), "instances": [instance_document(one, fleet.at) for one in fleet.instances]}
        )
    elif fleet.instances:
        _print(fleet, wide=wide)
        for one in fleet.instances:
            for key, why in sorted(one.unable.items()):
                click.echo(printable(f"{one.name} cannot serve {key.partition('.')[2]}: {why}"))
    else:
        click.echo("no sidecar lives on this account: `nats-scheduler run` starts one")


def _print(fleet: Fleet, *, wide: bool) -> None:
    columns = ["instance", "state", "since (UTC)", "heartbeat", "stream", "mode", "shards"]
    rows = [row for one in fleet.instances for row in _rows(one, fleet.at)]
    shown = [number for number, name in enumerate(columns) if wide or name != "since (UTC)"]
    chosen = [[row[number] for number in shown] for row in rows]
    print_table([columns[number] for number in shown], chosen, optional=["heartbeat", "mode"], wide=wide)
    states = Counter(one.state(fleet.at) for one in fleet.instances)
    click.echo(f"{len(fleet.instances)} in all: {', '.join(f'{n} {state}' for state, n in sorted(states.items()))}")


def _rows(one: Instance, at: int) -> list[list[str]]:
    age = "-" if one.heartbeat_at is None else f"{max(at - one.heartbeat_at, 0) // (100 * MILLISECOND) / 10} s ago"
    about = [one.name, one.state(at), "-" if one.since is None else moment_text(one.since), age]
    held = [[part.stream, part.mode, f"{len(part.shards)} of {SHARDS}"] for part in one.parts]
    return [[*about, *part] for part in held or [["-", "-", "0"]]]
