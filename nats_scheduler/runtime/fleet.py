"""The instances of an account, and what each of them holds, read from the registry's bucket.

The rule: what is read is what the instances themselves use; nothing is written.
Ages are by the server's clock, which also stamps the heartbeats.
Cost: two requests for each instance, one for each stream.
Limit: an instance that serves more streams than fit into its heartbeat, or whose heartbeat is of a newer version,
counts as serving all; what a lease of a newer version says is not known.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from nats_scheduler.engine.sharing.leases import NO_HOLDER, NO_RECORD, Leases
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.registry import Registry, UnknownFormatError
from nats_scheduler.message.foreign_json import Object, inner, server_time
from nats_scheduler.runtime.instances import INSTANCE, LEASE, holders_of, number_in
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.service.port import Fleet, Instance
from nats_scheduler.service.schemas import HoldsDocument


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


async def _parts(registry: Registry) -> dict[str, list[HoldsDocument]]:
    """Return what each instance holds, by the leases of the streams."""
    parts: dict[str, list[HoldsDocument]] = {}
    for key in sorted(await _keys(registry, LEASE)):
        holders = holders_of(await _value(registry, f"{LEASE}{key}"))
        mode, _, stream = key.partition(".")
        for name in set(holders) - {NO_HOLDER}:
            held = [shard for shard, holder in enumerate(holders) if holder == name]
            parts.setdefault(name, []).append({"stream": stream, "mode": mode, "shards": held})
    return parts


async def _read_instance(registry: Registry, name: str, parts: Sequence[HoldsDocument]) -> Instance | None:
    """Return an instance by its last heartbeat; None if it has left and holds nothing."""
    value = await _value(registry, f"{INSTANCE}{name}", {})
    heartbeat_at = await registry.written_at(f"{INSTANCE}{name}")
    if value is None or heartbeat_at is None:
        return Instance(name, None, None, None, parts) if parts else None
    since, serves = parse_rfc3339(str(value.get("since"))), value.get("serves")
    named = sorted(str(one) for one in serves) if isinstance(serves, list) else None
    unable = {key: str(why) for key, why in inner(value.get("unable")).items()}
    started = since if isinstance(since, int) else None
    return Instance(name, started, heartbeat_at, named, parts, unable, number_in(value, "room"))


async def _value(registry: Registry, key: str, unknown: Object | None = None) -> Object | None:
    """Return a value; `unknown` if a newer version wrote it."""
    try:
        return await registry.get(key)
    except UnknownFormatError as error:
        registry.broken(key, str(error))
        return unknown


# Remove from the registry's bucket what instances leave behind there: their own keys, and leases without a holder.
#
# What may be left: the key of an instance that was killed while no other one ran; the marker by which an instance
# reports that it has left; the lease of a mode that its stream is not in any more (after `graduate`, after an
# upgrade), or of a stream that is gone. The rule: only what no alive instance uses is removed. It is harmless if it
# stays, but `nats-scheduler instances` lists it, an instance that begins to follow the bucket counts it for a moment,
# and there would be more of it with each start. Cost: one request every `LEFTOVERS_CHECK_INTERVAL_SECONDS`, and one
# for each thing that is removed.

LEFTOVERS_CHECK_INTERVAL_SECONDS = 10.0
"""The interval at which the bucket is searched for what was left."""

ABANDONED_AFTER_NS = 30 * SECOND
"""A heartbeat of this age (ns) belongs to an instance that is gone: it is written twice a second."""

OWN_KEY_REMOVAL_LIMIT_SECONDS = 1.0
"""Longest wait at the end for our own key to be removed."""


class Leftovers:
    """Removes what is left in the bucket, on one connection."""

    def __init__(
        self,
        leases: Leases,
        registry: Registry,
        api: JetStreamApi,
        clock: ServerClock,
        services: Mapping[str, StreamService],
    ) -> None:
        self._leases = leases
        self._registry = registry
        self._api = api
        self._clock = clock
        self._services = services

    async def keep_removing(self) -> None:
        """Search for what was left until cancelled; a bucket that does not answer is searched later."""
        while True:
            await asyncio.sleep(LEFTOVERS_CHECK_INTERVAL_SECONDS)
            with suppress(JetStreamError):
                await self._remove_leases()
                await self._remove_instances()

    async def remove_own(self) -> None:
        """Remove our own key, at the very end: the others have received by now that we left."""
        with suppress(JetStreamError, TimeoutError):
            async with asyncio.timeout(OWN_KEY_REMOVAL_LIMIT_SECONDS):
                await self._registry.purge(f"{INSTANCE}{self._leases.me}")

    async def _remove_instances(self) -> None:
        living = {self._leases.me, *self._leases.others}
        for name in await self._registry.keys(INSTANCE.removesuffix(".")):
            written_at = None if name in living else await self._registry.written_at(f"{INSTANCE}{name}")
            if written_at is not None and self._clock.now() - written_at >= ABANDONED_AFTER_NS:
                await self._registry.purge(f"{INSTANCE}{name}")

    async def _remove_leases(self) -> None:
        if not self._leases.is_receiving(self._clock.monotonic()):
            return  # instances that seem gone may be alive
        served = {service.key for service in self._services.values()}
        for key in self._leases.on_record():
            if key in served or self._leases.living(key):
                continue
            stream = key.partition(".")[2]
            if stream in self._services or await self._api.stream(stream) is None:
                await self._registry.purge(f"{LEASE}{key}")
                self._leases.looked_up(key, NO_RECORD)
