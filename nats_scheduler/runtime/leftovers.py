"""Remove from the registry's bucket what instances leave behind there: their own keys, and records without an owner.

What may be left: the key of an instance that was killed while no other one ran; the marker by which an instance
reports that it has left; the record of a mode that its stream is not in any more (after `graduate`, after an
upgrade), or of a stream that is gone. It is harmless if it stays, but `nats-scheduler instances` lists it, an instance
that begins to follow the bucket counts it for a moment, and there would be more of it with each start.

The rule: only what no alive instance uses is removed.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.ownership.owners import NO_RECORD, Owners
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.runtime.this_instance import INSTANCE, OWNER
from nats_scheduler.schedule.instants import SECOND

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
            with suppress(SchedulerError):
                await self._remove_records()
                await self._remove_instances()

    async def remove_own(self) -> None:
        """Remove our own key, at the very end: the others have received by now that we left."""
        with suppress(SchedulerError, TimeoutError):
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
