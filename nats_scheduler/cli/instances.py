"""`nats-scheduler instances`: the sidecars of the account, and who owns and stands by each stream.

Rule: what is shown is what the sidecars themselves use, read from the bucket of the registry; nothing is written.
A running sidecar is asked (`service.client`); if none answers, the bucket is read here, with the same code.
Ages are by the server's clock, which also stamps the heartbeats.
Cost: two requests for each instance, one for each stream.
Limit: an instance that serves more streams than fit into its heartbeat is shown as standing by none.
"""

from collections import Counter
from collections.abc import Sequence

import click

from nats_scheduler.cli.arguments import zone_option
from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import json_option, print_json, print_table, wide_option
from nats_scheduler.cli.session import in_session
from nats_scheduler.observe.documents import instant_of
from nats_scheduler.observe.texts import printable, takeover_text
from nats_scheduler.observe.times import moment_text
from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.service.schemas import InstanceDocument, InstancesDocument, OwnershipDocument
from nats_scheduler.settings.load import ResolvedSettings

NONE = "none"


@click.command("instances")
@connection_options
@zone_option
@wide_option
@json_option
def command(resolved: ResolvedSettings, wide: bool, as_json: bool) -> None:
    """List the sidecars, and the owner and standbys of each stream.

    A running sidecar is asked; if none answers, their bucket is read.
    Exit codes: 0 listed, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    found = in_session(resolved, lambda session: session.known(lambda known: known.instances()))
    if as_json:
        print_json(found)
    elif found["instances"]:
        _print_instances(found["instances"], wide=wide)
        if found["streams"]:
            click.echo()
            _print_streams(found["streams"], wide=wide)
        _print_problems(found)
    else:
        click.echo("no sidecar lives on this account: `nats-scheduler run` starts one")


def _print_instances(instances: Sequence[InstanceDocument], *, wide: bool) -> None:
    columns = ["instance", "state", "since (UTC)", "heartbeat", "owns", "stands by", "unable"]
    print_table(columns, map(_instance_row, instances), optional=["since (UTC)", "heartbeat"], wide=wide)
    states = Counter(one["state"] for one in instances)
    click.echo(f"{len(instances)} in all: {', '.join(f'{n} {state}' for state, n in sorted(states.items()))}")


def _instance_row(one: InstanceDocument) -> list[str]:
    age = one["age_nanoseconds"]
    heartbeat = "-" if age is None else f"{age // (100 * MILLISECOND) / 10} s ago"
    numbers = [str(len(part)) for part in (one["owns"], one["stands_by"], one["unable"])]
    return [one["id"], one["state"], _moment(one["since"]), heartbeat, *numbers]


def _print_streams(streams: Sequence[OwnershipDocument], *, wide: bool) -> None:
    columns = ["stream", "mode", "owner", "since (UTC)", "reason", "standbys"]
    print_table(columns, map(_stream_row, streams), optional=["mode", "reason", "since (UTC)"], wide=wide)


def _stream_row(one: OwnershipDocument) -> list[str]:
    reason = one["takeover_reason"]
    return [
        one["stream"],
        one["mode"],
        one["owner"] or NONE,
        _moment(one["owner_since"]),
        "-" if reason is None else takeover_text(reason, one["owner_before"]),
        " ".join(one["standbys"]) or NONE,
    ]


def _moment(time: str | None) -> str:
    return "-" if time is None else moment_text(instant_of(time))


def _print_problems(found: InstancesDocument) -> None:
    """Print which streams have no owner or no standby, and what instances cannot serve."""
    for stream in found["streams"]:
        if stream["owner"] is None:
            lost = "" if stream["lost_owner"] is None else f", since {stream['lost_owner']} is not alive"
            click.echo(printable(f"{stream['stream']} has no owner{lost}: nothing fires its schedules"))
        elif stream["lacks_standby"]:
            lost = f"if {stream['owner']} goes, another instance has to read it first"
            click.echo(printable(f"{stream['stream']} has no standby: {lost}"))
    for one in found["instances"]:
        for unable in one["unable"]:
            click.echo(printable(f"{one['id']} cannot serve {unable['stream']}: {unable['reason']}"))
