"""Remove from the registry's bucket what instances leave behind there: their own keys, and leases that are nobody's.

What is left: the key of an instance that was killed while nobody else ran; the marker by which one says that it has
left; the lease of a mode that its stream is not in any more (after `graduate`, after an upgrade), or of a stream that
is gone.
The rule: only what no living instance goes by is removed. It is harmless where it stays, but it is listed by
`nats-scheduler instances`, counted for a moment by whoever listens anew, and there would be more of it with each start.
Cost: one request every `LEFTOVERS_CHECK_INTERVAL_SECONDS`, and one for each thing that is removed.
"""

import asyncio
from contextlib import suppress

from nats_scheduler.engine.leases import Leases, Record
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.runtime.instances import INSTANCE, LEASE
from nats_scheduler.runtime.server_clock import ServerClock
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import SECOND

LEFTOVERS_CHECK_INTERVAL_SECONDS = 10.0
"""How often it is looked for what was left."""

ABANDONED_AFTER_NS = 30 * SECOND
"""What an instance told so long ago (ns) it does not stand by any more: it tells twice a second."""

OWN_KEY_REMOVAL_LIMIT_SECONDS = 1.0
"""Longest wait at the end for our own key to be removed."""


class Leftovers:
    """What is left in the bucket, on one connection."""

    def __init__(
        self,
        leases: Leases,
        registry: Registry,
        api: JetStreamApi,
        clock: ServerClock,
        services: dict[str, StreamService],
    ) -> None:
        self._leases = leases
        self._registry = registry
        self._api = api
        self._clock = clock
        self._services = services

    async def keep_removing(self) -> None:
        """Look for what was left until cancelled; a bucket that does not answer is looked at later."""
        while True:
            await asyncio.sleep(LEFTOVERS_CHECK_INTERVAL_SECONDS)
            with suppress(JetStreamError):
                await self._remove_leases()
                await self._remove_instances()

    async def remove_own(self) -> None:
        """Remove what is stored of ourselves, at the very end: the others have read by now that we left."""
        with suppress(JetStreamError, TimeoutError):
            async with asyncio.timeout(OWN_KEY_REMOVAL_LIMIT_SECONDS):
                await self._registry.purge(f"{INSTANCE}{self._leases.me}")

    async def _remove_instances(self) -> None:
        living = {self._leases.me, *self._leases.others}
        for name in await self._registry.keys(INSTANCE.removesuffix(".")):
            told_at = None if name in living else await self._registry.written_at(f"{INSTANCE}{name}")
            if told_at is not None and self._clock.now() - told_at >= ABANDONED_AFTER_NS:
                await self._registry.purge(f"{INSTANCE}{name}")

    async def _remove_leases(self) -> None:
        if not self._leases.is_receiving(self._clock.monotonic()):
            return  # who seems to be dead may live
        served = {f"{service.mode}.{name}" for name, service in self._services.items()}
        for key in self._leases.on_record():
            if key in served or self._leases.living(key):
                continue
            stream = key.partition(".")[2]
            if stream in self._services or await self._api.stream(stream) is None:
                await self._registry.purge(f"{LEASE}{key}")
                self._leases.looked_up(key, Record())
