"""A sidecar with known schedules, and the status page beside it."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.servers import V2_11, server_binary
from tests.web.browsing import Browsing, browsing

HOURS = (5, 3, 9, 1, 7)
"""The hours after which the schedules `O.s.<hours>` fire."""


@dataclass
class Scene:
    """A sidecar that serves the stream `O`, and the page."""

    url: str
    account: Account
    running: Running
    page: Browsing


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def scene(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Scene]:
    """Five schedules of one fire, one by cron, one message that is rejected and one that is misnamed.

    All tests of a module share it: what one adds has a subject that no other test looks for.
    """
    server = EmbeddedServer(server_binary(V2_11), tmp_path_factory.mktemp("scene"))
    await server.start()
    try:
        async with sidecar_on(server.url) as running, account_on(server.url) as account, browsing(server.url) as page:
            await account.create("O", allow_msg_ttl=True)
            for hours in HOURS:
                at = in_seconds(3600 * hours)
                await account.publish(f"O.s.{hours}", {"Nats-Schedule": f"@at {at}", "Nats-Schedule-Target": "O.out"})
            cron = {"Nats-Schedule": "0 30 9 * * mon-fri", "Nats-Schedule-Time-Zone": "Europe/Berlin"}
            await account.publish("O.cron", {**cron, "Nats-Schedule-Target": "O.morning"})
            await account.publish("O.invalid", {"Nats-Schedule": "@every soon", "Nats-Schedule-Target": "O.out"})
            await account.publish("O.misnamed", {"Nats-Schedul": "@every 1s"})
            await running.ready("O")
            await page.shows("/", "6 schedules in 1 stream", "fired by 1 instance")
            yield Scene(server.url, account, running, page)
    finally:
        await server.stop()
