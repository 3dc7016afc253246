"""`nats-scheduler instances`: the sidecars of the account, and which shards of which streams each of them holds.

Rule: what is shown is what the sidecars themselves use, read from the bucket of the registry; nothing is written.
A running sidecar is asked (`service.client`); if none answers, the bucket is read here, with the same code.
Ages are by the server's clock, which also stamps the heartbeats.
Cost: two requests for each instance, one for each stream.
Limit: an instance that serves more streams than fit into its heartbeat is shown as serving all.
"""

from collections import Counter
from collections.abc import Sequence

import click

from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import json_option, print_json, print_table, wide_option
from nats_scheduler.cli.session import in_session
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.observe.documents import instant_of
from nats_scheduler.observe.texts import moment_text, printable
from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.service.schemas import InstanceDocument
from nats_scheduler.settings.load import ResolvedSettings


@click.command("instances")
@connection_options
@wide_option
@json_option
def command(resolved: ResolvedSettings, wide: bool, as_json: bool) -> None:
    """List the sidecars of the account, and what each of them holds.

    A running sidecar is asked; if none answers, their bucket is read.
    Exit codes: 0 listed, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    found = in_session(resolved, lambda session: session.known(lambda known: known.instances()))
    if as_json:
        print_json(found)
    elif found["instances"]:
        _print(found["instances"], wide=wide)
        for one in found["instances"]:
            for unable in one["unable"]:
                click.echo(printable(f"{one['id']} cannot serve {unable['stream']}: {unable['reason']}"))
            if one.get("room", 1) <= 0:
                click.echo(f"{one['id']} holds as many schedules as it is to: it begins no stream that another one can")
    else:
        click.echo("no sidecar lives on this account: `nats-scheduler run` starts one")


def _print(instances: Sequence[InstanceDocument], *, wide: bool) -> None:
    columns = ["instance", "state", "since (UTC)", "heartbeat", "stream", "mode", "shards"]
    rows = [row for one in instances for row in _rows(one)]
    shown = [number for number, name in enumerate(columns) if wide or name != "since (UTC)"]
    chosen = [[row[number] for number in shown] for row in rows]
    print_table([columns[number] for number in shown], chosen, optional=["heartbeat", "mode"], wide=wide)
    states = Counter(one["state"] for one in instances)
    click.echo(f"{len(instances)} in all: {', '.join(f'{n} {state}' for state, n in sorted(states.items()))}")


def _rows(one: InstanceDocument) -> list[list[str]]:
    since, age = one["since"], one["age_nanoseconds"]
    heartbeat = "-" if age is None else f"{age // (100 * MILLISECOND) / 10} s ago"
    about = [one["id"], one["state"], "-" if since is None else moment_text(instant_of(since)), heartbeat]
    held = [[part["stream"], part["mode"], f"{len(part['shards'])} of {SHARDS}"] for part in one["holds"]]
    return [[*about, *part] for part in held or [["-", "-", "0"]]]
