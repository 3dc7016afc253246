"""The instances of an account, and what each of them holds, read from the registry's bucket.

The rule: what is read is what the instances themselves use; nothing is written.
Ages are by the server's clock, which also stamps the heartbeats.
Cost: two requests for each instance, one for each stream.
Limit: an instance that serves more streams than fit into its heartbeat, or whose heartbeat is of a newer version,
counts as serving all; what a lease of a newer version says is not known.
"""

from collections.abc import Callable, Sequence

from nats_scheduler.engine.leases import NO_HOLDER
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.foreign_json import Object, inner
from nats_scheduler.jetstream.formats import UnknownFormatError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.server_time import server_time
from nats_scheduler.runtime.instances import INSTANCE, LEASE
from nats_scheduler.runtime.lease_records import holders_of
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.service.port import Fleet, Instance, Part


async def read_fleet(registry: Registry, api: JetStreamApi, now: Callable[[], int]) -> Fleet:
    """Read the instances of the account, and what each of them holds; raises `JetStreamError`.

    `now` returns the time (ns) of this machine, for a server that does not say its own.
    """
    info = await api.stream(registry.stream)
    if info is None:
        return Fleet(now(), [])
    parts = await _parts(registry)
    known = [
        await _read_instance(registry, name, parts.pop(name, [])) for name in sorted(await _keys(registry, INSTANCE))
    ]
    silent = [Instance(name, None, None, None, held) for name, held in sorted(parts.items())]
    # Read last, so that no heartbeat is later than this time.
    at = server_time(await api.stream(registry.stream)) or now()
    return Fleet(at, [*(one for one in known if one is not None), *silent])


async def is_instance(registry: Registry, name: str) -> bool:
    """Return whether an instance has a heartbeat in this registry; raises `JetStreamError`."""
    return await registry.written_at(f"{INSTANCE}{name}") is not None


async def _keys(registry: Registry, kind: str) -> list[str]:
    return await registry.keys(kind.removesuffix("."))


async def _parts(registry: Registry) -> dict[str, list[Part]]:
    """Return what each instance holds, by the leases of the streams."""
    parts: dict[str, list[Part]] = {}
    for key in sorted(await _keys(registry, LEASE)):
        holders = holders_of(await _value(registry, f"{LEASE}{key}"))
        mode, _, stream = key.partition(".")
        for name in set(holders) - {NO_HOLDER}:
            held = [shard for shard, holder in enumerate(holders) if holder == name]
            parts.setdefault(name, []).append(Part(stream, mode, held))
    return parts


async def _read_instance(registry: Registry, name: str, parts: Sequence[Part]) -> Instance | None:
    """Return an instance by its last heartbeat; None if it has left and holds nothing."""
    value = await _value(registry, f"{INSTANCE}{name}", {})
    heartbeat_at = await registry.written_at(f"{INSTANCE}{name}")
    if value is None or heartbeat_at is None:
        return Instance(name, None, None, None, parts) if parts else None
    since, serves = parse_rfc3339(str(value.get("since"))), value.get("serves")
    named = sorted(str(one) for one in serves) if isinstance(serves, list) else None
    unable = {key: str(why) for key, why in inner(value.get("unable")).items()}
    return Instance(name, since if isinstance(since, int) else None, heartbeat_at, named, parts, unable)


async def _value(registry: Registry, key: str, unknown: Object | None = None) -> Object | None:
    """Return a value; `unknown` if a newer version wrote it."""
    try:
        return await registry.get(key)
    except UnknownFormatError as error:
        registry.broken(key, str(error))
        return unknown
