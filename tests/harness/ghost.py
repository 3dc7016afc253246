"""An instance that does not exist: somebody who may write into the bucket of the registry reports that it is alive."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nats_scheduler.runtime.instances import HEARTBEAT_INTERVAL_NS
from nats_scheduler.schedule.instants import SECOND
from tests.harness.account import Account
from tests.harness.fleet import STREAM

GHOST = "ghost0000000"


@asynccontextmanager
async def ghost_of(account: Account) -> AsyncIterator[None]:
    """Write heartbeats of an instance that does not exist."""
    body = json.dumps(
        {"serves": [f"emulated.{STREAM}"], "since": "2026-01-01T00:00:00Z", "last_received": None}
    ).encode()
    timers: list[asyncio.TimerHandle] = []

    def beat() -> None:
        account.connection.publish(f"$KV.nats_scheduler.instance.{GHOST}", body)
        timers[:] = [asyncio.get_running_loop().call_later(HEARTBEAT_INTERVAL_NS / SECOND, beat)]

    beat()
    try:
        yield
    finally:
        timers[0].cancel()
