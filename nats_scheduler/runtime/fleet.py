"""The instances of an account, and what each of them owns or stands by for, read from the registry's bucket.

The rule: what is read is what the instances themselves use; nothing is written.
Ages are by the server's clock, which also stamps the heartbeats.
Cost: two requests for each instance, one for each stream.
Limit: an instance that serves more streams than fit into its heartbeat, or whose heartbeat is of a newer version,
counts as serving all; what a record of a newer version says is not known.
"""

from collections.abc import Callable, Mapping, Sequence

from nats_scheduler.engine.ownership.owners import NO_OWNER, Record
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.registry import Delivered, Registry
from nats_scheduler.jetstream.value_formats import UnknownFormatError
from nats_scheduler.message.foreign_json import inner, server_time
from nats_scheduler.runtime.this_instance import INSTANCE, OWNER, is_instance_name, number_in, record_of
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.service.schemas import OwnsDocument, StandsByDocument
from nats_scheduler.service.sidecar_port import Fleet, Instance


async def read_fleet(registry: Registry, api: JetStreamApi, now: Callable[[], int]) -> Fleet:
    """Read the instances of the account, and what each of them owns or stands by for; raises `SchedulerError`.

    `now` returns the time (ns) of this machine, for a server that does not say its own.
    """
    info = await api.stream(registry.stream)
    if info is None:
        return Fleet(now(), [])
    records = {key: await _record(registry, key) for key in sorted(await _keys(registry, OWNER))}
    names = [name for name in sorted(await _keys(registry, INSTANCE)) if is_instance_name(name)]
    known = [one for name in names if (one := await _read_instance(registry, name, records)) is not None]
    found = {one.name for one in known}
    gone = sorted({record.owner for record in records.values()} - {NO_OWNER} - found)
    silent = [Instance(name, None, None, None, _owned(name, records), []) for name in gone]
    # Read last, so that no heartbeat is later than this time.
    at = server_time(await api.stream(registry.stream)) or now()
    return Fleet(at, [*known, *silent])


async def is_instance(registry: Registry, name: str) -> bool:
    """Return whether an instance has a heartbeat in this registry; raises `SchedulerError`."""
    return await registry.written_at(f"{INSTANCE}{name}") is not None


async def _keys(registry: Registry, kind: str) -> list[str]:
    return await registry.keys(kind.removesuffix("."))


async def _record(registry: Registry, key: str) -> Record:
    value = await _value(registry, f"{OWNER}{key}")
    return record_of(value, 0)


def _owned(name: str, records: Mapping[str, Record]) -> list[OwnsDocument]:
    """Return the streams that an instance owns, by their records."""
    owned: list[OwnsDocument] = []
    for key, record in records.items():
        if record.owner == name:
            mode, _, stream = key.partition(".")
            since = format_rfc3339(record.since) if record.since else None
            about: OwnsDocument = {
                "stream": stream,
                "mode": mode,
                "since": since,
                "before": record.before,
                "reason": str(record.reason),
            }
            owned.append(about)
    return owned


def _stood_by(name: str, serves: Sequence[str], records: Mapping[str, Record]) -> list[StandsByDocument]:
    """Return the streams that an instance has read and does not own."""
    keys = [key for key in serves if key not in records or records[key].owner != name]
    return [{"stream": stream, "mode": mode} for mode, _, stream in (key.partition(".") for key in keys)]


async def _read_instance(registry: Registry, name: str, records: Mapping[str, Record]) -> Instance | None:
    """Return an instance by its last heartbeat; None if it has none."""
    value = await _value(registry, f"{INSTANCE}{name}")
    heartbeat_at = await registry.written_at(f"{INSTANCE}{name}")
    if value is None or heartbeat_at is None:
        return None
    given = {} if isinstance(value, UnknownFormatError) else value
    since, serves = parse_rfc3339(str(given.get("since"))), given.get("serves")
    named = sorted(str(one) for one in serves) if isinstance(serves, list) else None
    unable = {key: str(why) for key, why in inner(given.get("unable")).items()}
    started = since if isinstance(since, int) else None
    owns, stands_by = _owned(name, records), _stood_by(name, named or [], records)
    return Instance(name, started, heartbeat_at, named, owns, stands_by, unable, number_in(given, "standbys"))


async def _value(registry: Registry, key: str) -> Delivered:
    """Return a value, or why this version cannot read it."""
    try:
        return await registry.get(key)
    except UnknownFormatError as error:
        registry.broken(key, str(error))
        return error
