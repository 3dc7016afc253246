"""Fires over a bad network: what was not acknowledged is sent again under the same identity, and stored once."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from nats_scheduler.engine.events import FireStored, FireUnknown
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.burst import store_herd
from tests.harness.flagged import Served, fire_time_of
from tests.harness.proxy import Proxy, at_the, proxy_to
from tests.harness.servers import V2_11

HERD = 120


@asynccontextmanager
async def far(server: EmbeddedServer, **settings: Any) -> AsyncIterator[tuple[Served, Proxy]]:
    """Serve a work queue through a proxy; the test itself reaches it directly."""
    async with (
        account_on(server.url) as account,
        proxy_to(server.url) as proxy,
        sidecar_on(proxy.url, **settings) as running,
    ):
        await account.create("S", storage="file", retention="workqueue")
        await running.ready("S")
        yield Served(account, "S", running, server.url, server.version), proxy


def is_acknowledgement(subject: bytes) -> bool:
    """Return whether a message acknowledges a fire, by the inbox that all streams of a connection share."""
    return b".a." in subject


async def test_a_fire_without_acknowledgements_is_stored_once(
    start_server: StartServer,
) -> None:
    """On a work queue stream, where only the acknowledgement shows it, since the fire itself is lost on the way."""
    async with far(await start_server(V2_11), ack_timeout=SECOND // 5) as (here, network):
        network.to_client.loses = lambda subject: is_acknowledgement(subject) or subject.startswith(b"S.out")
        await here.schedule("at", f"@at {in_seconds(0.3)}", target="out.at")
        await here.schedule("every", "@every 1s", target="out.every")
        waits = [event.retry_after for event in await here.reported(FireUnknown, 8)]
        assert len(await here.messages("out.at")) == 1
        assert len(await here.messages("out.every")) == 1, "the next fire waits for this one"
        network.heal()
        every = await here.wait_for("out.every", 4)
        assert len(await here.messages("out.at")) == 1
        repeated = {event.fire.target for event in here.of(FireStored) if event.duplicate}
        assert repeated == {"S.out.at", "S.out.every"}
    times = [fire_time_of(fire) for fire in every]
    assert times == sorted(set(times))
    assert max(waits) <= SECOND


async def test_cut_in_the_middle_of_a_herd_each_is_stored_once(start_server: StartServer) -> None:
    async with far(await start_server(V2_11)) as (here, network):
        network.to_client.loses = at_the(HERD // 3, is_acknowledgement, network.cut)
        network.to_server.loses = at_the(HERD // 5, lambda subject: subject == b"S.out", network.cut)
        await store_herd(here.account, here.name, CLOCK.now() + SECOND // 2, HERD)
        await here.each_fired_once(HERD)
        assert network.links_made >= 3
