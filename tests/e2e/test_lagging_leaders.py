"""A leader that does not know yet what a replica has delivered: nothing is taken for removed on its word."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nats_scheduler.engine.events import Ending, StreamReady
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on, in_seconds, sidecar_with
from tests.harness.flagged import AS_ADOPTED, FlaggedStream, Served
from tests.harness.lagging import PREFIX, LaggingLeader, lagging_leader
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

SCHEDULES = 20


@asynccontextmanager
async def led(server: EmbeddedServer, name: str) -> AsyncIterator[tuple[FlaggedStream, LaggingLeader]]:
    """Create a stream with such a leader."""
    async with account_on(server.url) as account, lagging_leader(server.url, name) as leader:
        await account.create(name, **AS_ADOPTED)
        yield FlaggedStream(account, name), leader
        await account.api.call(f"STREAM.DELETE.{name}")


@asynccontextmanager
async def served_by(account: Account, name: str) -> AsyncIterator[Served]:
    """Serve it through the leader; it may not be ready yet."""
    url = account.connection.url
    settings = SidecarSettings(connection=ConnectionSettings(servers=(url,), js_api_prefix=PREFIX))
    async with sidecar_with(settings) as running:
        yield Served(account, name, running, url)


async def test_schedules_fire_once_although_the_leader_is_behind(shared_server: SharedServer, stream_name: str) -> None:
    async with (
        led(await shared_server(V2_11), stream_name) as (stream, leader),
        served_by(stream.account, stream.name) as served,
    ):
        await served.sidecar.ready(stream.name)
        leader.applied = await stream.publish("something")
        for number in range(SCHEDULES):
            await stream.schedule(f"at.{number}", f"@at {in_seconds(-1)}", b"%d" % number)
        await eventually(lambda: leader.not_found >= 20, describe="the leader is asked")
        leader.applied = None
        fires = await stream.wait_for("out", SCHEDULES)
        await stream.gone("at.*")
        endings = Counter([await served.ended(f"at.{number}") for number in range(SCHEDULES)])
    assert Counter(fire.body for fire in fires) == Counter(b"%d" % number for number in range(SCHEDULES))
    assert endings == {Ending.FIRED: SCHEDULES}


async def test_a_stream_is_not_ready_before_what_its_leader_has_is_read(
    shared_server: SharedServer, stream_name: str
) -> None:
    """A consumer may sit on a node that has just restarted: what it does not know yet may say what has fired."""
    async with led(await shared_server(V2_11), stream_name) as (stream, leader):
        leader.ahead = 1
        async with served_by(stream.account, stream.name) as served:
            await eventually(lambda: leader.told_of_more >= 2, describe="the leader is asked")
            assert served.of(StreamReady) == []
            leader.ahead = 0
            await served.sidecar.ready(stream.name)
