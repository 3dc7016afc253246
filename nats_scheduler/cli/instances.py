"""`nats-scheduler instances`: the sidecars of the account, and which shards of which streams each of them holds.

Rule: what is shown is what the sidecars themselves use, read from the bucket of the registry; nothing is written.
Ages are by the server's clock, which also stamps the heartbeats.
Cost: two requests for each instance, one for each stream.
Limit: an instance that serves more streams than fit into its heartbeat is shown as serving all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import click

from nats_scheduler.cli.options import connection_options
from nats_scheduler.cli.output import print_json, printable
from nats_scheduler.cli.session import Session, in_session
from nats_scheduler.cli.tables import moment_text, print_table, wide_option
from nats_scheduler.engine.leases import LEASE_DURATION_NS, NO_HOLDER
from nats_scheduler.engine.shards import SHARDS
from nats_scheduler.jetstream.foreign_json import inner
from nats_scheduler.jetstream.server_time import server_time
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.instances import INSTANCE, LEASE, holders_of
from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.settings.load import ResolvedSettings


@dataclass(frozen=True, slots=True)
class Part:
    """What an instance holds of a stream."""

    stream: str
    mode: str
    shards: Sequence[int]


@dataclass(frozen=True, slots=True)
class Instance:
    """A sidecar, by its last heartbeat; `heartbeat_at` is None if it holds shards and has no heartbeat stored."""

    name: str
    since: int | None
    heartbeat_at: int | None
    serves: Sequence[str] | None
    parts: Sequence[Part]
    unable: Mapping[str, str] = field(default_factory=dict)
    """The streams that it cannot serve, by mode and name, and why."""

    def state(self, at: int) -> str:
        """Return its state; one that is silent has lost its shards to other instances, if there are any."""
        if self.heartbeat_at is None:
            return "gone"
        return "alive" if at - self.heartbeat_at < LEASE_DURATION_NS else "silent"


@dataclass(frozen=True, slots=True)
class Fleet:
    """All instances at a moment of the server's clock (ns since the Unix epoch)."""

    at: int
    instances: Sequence[Instance]


@click.command("instances")
@connection_options
@wide_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(resolved: ResolvedSettings, wide: bool, as_json: bool) -> None:
    """List the sidecars of the account, and what each of them holds.

    Exit codes: 0 listed, 1 the server refuses or is not reached, 2 wrong use or settings.
    """
    fleet = in_session(resolved, read_fleet)
    if as_json:
        print_json({"at": format_rfc3339(fleet.at), "instances": [_document(one, fleet.at) for one in fleet.instances]})
    elif fleet.instances:
        _print(fleet, wide=wide)
        for one in fleet.instances:
            for key, why in sorted(one.unable.items()):
                click.echo(printable(f"{one.name} cannot serve {key.partition('.')[2]}: {why}"))
    else:
        click.echo("no sidecar lives on this account: `nats-scheduler run` starts one")


async def read_fleet(session: Session) -> Fleet:
    """Read the instances of the account, and what each of them holds."""
    info = await session.api.stream(session.registry.stream)
    if info is None:
        return Fleet(SystemClock().now(), [])
    parts = await _parts(session)
    known = [
        await _read_instance(session, name, parts.pop(name, [])) for name in sorted(await _keys(session, INSTANCE))
    ]
    silent = [Instance(name, None, None, None, held) for name, held in sorted(parts.items())]
    # Read last, so that no heartbeat is later than this time.
    at = server_time(await session.api.stream(session.registry.stream)) or SystemClock().now()
    return Fleet(at, [*(one for one in known if one is not None), *silent])


async def _keys(session: Session, kind: str) -> list[str]:
    return await session.registry.keys(kind.removesuffix("."))


async def _parts(session: Session) -> dict[str, list[Part]]:
    """Return what each instance holds, by the leases of the streams."""
    parts: dict[str, list[Part]] = {}
    for key in sorted(await _keys(session, LEASE)):
        holders = holders_of(await session.registry.get(f"{LEASE}{key}"))
        mode, _, stream = key.partition(".")
        for name in set(holders) - {NO_HOLDER}:
            held = [shard for shard, holder in enumerate(holders) if holder == name]
            parts.setdefault(name, []).append(Part(stream, mode, held))
    return parts


async def _read_instance(session: Session, name: str, parts: Sequence[Part]) -> Instance | None:
    """Return an instance by its last heartbeat; None if it has left and holds nothing."""
    value = await session.registry.get(f"{INSTANCE}{name}")
    heartbeat_at = await session.registry.written_at(f"{INSTANCE}{name}")
    if value is None or heartbeat_at is None:
        return Instance(name, None, None, None, parts) if parts else None
    since, serves = parse_rfc3339(str(value.get("since"))), value.get("serves")
    named = sorted(str(one) for one in serves) if isinstance(serves, list) else None
    unable = {key: str(why) for key, why in inner(value.get("unable")).items()}
    return Instance(name, since if isinstance(since, int) else None, heartbeat_at, named, parts, unable)


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


def _document(one: Instance, at: int) -> dict[str, object]:
    return {
        "id": one.name,
        "state": one.state(at),
        "since": None if one.since is None else format_rfc3339(one.since),
        "last_heartbeat": None if one.heartbeat_at is None else format_rfc3339(one.heartbeat_at),
        "age_nanoseconds": None if one.heartbeat_at is None else max(at - one.heartbeat_at, 0),
        "serves": one.serves,
        "unable": [{"stream": key.partition(".")[2], "reason": why} for key, why in sorted(one.unable.items())],
        "holds": [{"stream": part.stream, "mode": part.mode, "shards": part.shards} for part in one.parts],
    }
