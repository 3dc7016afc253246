"""The instances of an account, and what each of them owns or stands by for, read from the registry's bucket.

The rule: what is read is what the instances themselves use; nothing is written.
Ages are by the server's clock, which also stamps the heartbeats.
Cost: two requests for each instance, one for each stream.
Limit: an instance that serves more streams than fit into its heartbeat, or whose heartbeat is of a newer version,
counts as serving all; what a record of a newer version says is not known.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from nats_scheduler.engine.ownership.owners import NO_OWNER, NO_RECORD, Owners, Record
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.registry import Delivered, Registry, UnknownFormatError
from nats_scheduler.message.foreign_json import inner, server_time
from nats_scheduler.runtime.instances import INSTANCE, OWNER, is_instance_name, number_in, record_of
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.service.port import Fleet, Instance
from nats_scheduler.service.schemas import OwnsDocument, StandsByDocument


async def read_fleet(registry: Registry, api: JetStreamApi, now: Callable[[], int]) -> Fleet:
    """Read the instances of the account, and what each of them owns or stands by for; raises `JetStreamError`.

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
    """Return whether an instance has a heartbeat in this registry; raises `JetStreamError`."""
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


# Remove from the registry's bucket what instances leave behind there: their own keys, and records without an owner.
#
# What may be left: the key of an instance that was killed while no other one ran; the marker by which an instance
# reports that it has left; the record of a mode that its stream is not in any more (after `graduate`, after an
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
        owners: Owners,
        registry: Registry,
        api: JetStreamApi,
        clock: ServerClock,
        services: Mapping[str, StreamService],
    ) -> None:
        self._owners = owners
        self._registry = registry
        self._api = api
        self._clock = clock
        self._services = services

    async def keep_removing(self) -> None:
        """Search for what was left until cancelled; a bucket that does not answer is searched later."""
        while True:
            await asyncio.sleep(LEFTOVERS_CHECK_INTERVAL_SECONDS)
            with suppress(JetStreamError):
                await self._remove_records()
                await self._remove_instances()

    async def remove_own(self) -> None:
        """Remove our own key, at the very end: the others have received by now that we left."""
        with suppress(JetStreamError, TimeoutError):
            async with asyncio.timeout(OWN_KEY_REMOVAL_LIMIT_SECONDS):
                await self._registry.purge(f"{INSTANCE}{self._owners.me}")

    async def _remove_instances(self) -> None:
        living = {self._owners.me, *self._owners.others}
        for name in await self._registry.keys(INSTANCE.removesuffix(".")):
            written_at = None if name in living else await self._registry.written_at(f"{INSTANCE}{name}")
            if written_at is not None and self._clock.now() - written_at >= ABANDONED_AFTER_NS:
                await self._registry.purge(f"{INSTANCE}{name}")

    async def _remove_records(self) -> None:
        if not self._owners.is_receiving(self._clock.monotonic()):
            return  # instances that seem gone may be alive
        served = {service.key for service in self._services.values()}
        for key in self._owners.on_record():
            if key in served or self._owners.living(key):
                continue
            stream = key.partition(".")[2]
            is_name = bool(stream) and "." not in stream
            if not is_name or stream in self._services or await self._api.stream(stream) is None:
                await self._registry.purge(f"{OWNER}{key}")
                self._owners.looked_up(key, NO_RECORD)
