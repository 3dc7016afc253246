"""Several sidecars on one account: one owns the stream, and the others take it over.

Every test ends with the same account: each fire that came due is stored, and none twice.
That a takeover is soon enough is held by the simulation, on any machine.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from nats_scheduler.engine.events import FiresMissed
from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.engine.ownership.owners import HEARTBEAT_INTERVAL_NS
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FLAG, FlaggedStream, left_out
from tests.harness.fleet import BUCKET, KEY, SCHEDULES, STREAM, Fleet, values
from tests.harness.permissions import limited_to, shared_account, url_of, without
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.rewriting import rewritten
from tests.harness.servers import V2_11, reload_config
from tests.harness.waiting import eventually, instant_reached

CONSUMER_DELETED, HEARTBEAT = b"NATS/1.0 409 Consumer Deleted", b"NATS/1.0 100 Idle Heartbeat  "


@asynccontextmanager
async def fleet_of(account: Account, *urls: str) -> AsyncIterator[tuple[Fleet, list[Running]]]:
    """Have sidecars in this process, each at its address, serve a stream on which nothing is scheduled yet.

    All of them read it, and the last one owns it.
    """
    await account.create(STREAM, **FLAG)
    fleet = Fleet(account)
    async with AsyncExitStack() as stack:
        sidecars = [await stack.enter_async_context(sidecar_on(url, standbys=1_000)) for url in urls[:-1]]
        others = [one.sidecar.instance for one in sidecars]
        while True:
            last = AsyncExitStack()
            one = await last.enter_async_context(sidecar_on(urls[-1], standbys=1_000))
            if order_of(KEY, [*others, one.sidecar.instance])[0] == one.sidecar.instance:
                break
            await last.aclose()
        await stack.enter_async_context(last)
        await fleet.settled(len(urls))
        yield fleet, [*sidecars, one]


async def test_the_next_one_fires_when_the_owner_dies_or_freezes(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create(STREAM, **FLAG)
        fleet = Fleet(account)
        try:
            for _ in range(3):
                await fleet.add(server.url, tmp_path)
            await fleet.schedule_all()
            await fleet.all_fire()
            fleet.names[await fleet.owner()].kill()
            await fleet.settled(2)
            await fleet.all_fire()
            await fleet.add(server.url, tmp_path)
            frozen = fleet.names[await fleet.owner()]
            frozen.pause()
            await fleet.settled(2)
            await fleet.all_fire()
            frozen.resume()
            await frozen.wait_for_line("the process stood still")
            await fleet.settled(3)
            await fleet.all_fire()
        finally:
            for process in fleet.processes:
                process.kill()
        await fleet.expect_no_fire_twice()


# -- the bucket --------------------------------------------------------------------------------------------------------


async def all_settled(account: Account, *streams: str) -> None:
    """Wait until there are checkpoints of these streams."""
    for name in streams:

        async def is_settled(name: str = name) -> bool:
            return f"{name}.emulated" in await values(account, "checkpoint")

        await eventually(is_settled, describe=f"a checkpoint of {name}")


async def test_three_go_on_when_the_bucket_is_deleted(start_server: StartServer) -> None:
    """Once, and again before the next one has outgrown the last: also of a stream where nothing happens any more.

    The owner is not told that its consumer of the bucket is gone: 2.11 leaves one out now and then.
    """
    server = await start_server(V2_11)
    async with (
        account_on(server.url) as account,
        rewritten(server.port, lambda line: line.replace(CONSUMER_DELETED, HEARTBEAT)) as relayed,
        fleet_of(account, server.url, server.url, relayed) as (fleet, sidecars),
    ):
        quiet = FlaggedStream(account, "QUIET")
        await account.create("QUIET", **FLAG)
        for number in range(SCHEDULES):
            await quiet.schedule(f"s.{number}", f"@at {in_seconds(0.5)}")
        await quiet.wait_for("out", SCHEDULES)
        await fleet.schedule_all()
        for _ in range(2):
            await all_settled(account, "QUIET", STREAM)
            await account.api.call(f"STREAM.DELETE.{BUCKET}")
            await fleet.all_fire()
            await fleet.settled(3)
            for name in ("QUIET", STREAM):
                found = await account.api.message(BUCKET, last_by_subj=f"$KV.nats_scheduler.stream.{name}")
                assert found is not None, f"it is written down that {name} is flagged"
        await all_settled(account, "QUIET", STREAM)
        missed = [event for one in sidecars for event in one.of(STREAM, FiresMissed)]
        for schedule, fires in (await fleet.fires_since(0)).items():
            assert left_out(fires, [one for one in missed if one.schedule == schedule]) == set()
        reasons = [told["reason"] for told in sidecars[2].told("heartbeats_not_received")]
        assert "the bucket was deleted" in reasons
        assert len(await quiet.messages("out")) == SCHEDULES


# -- being alive is not being able -------------------------------------------------------------------------------------


async def test_an_instance_that_may_not_fire_gives_up_the_stream(
    start_server: StartServer,
) -> None:
    able = limited_to(V2_11, f"{STREAM}.>")
    unable = without(able, f"{STREAM}.>")
    server = await start_server(V2_11, config=shared_account([able, unable]))
    users = [url_of(server.url, f"sidecar-{number}") for number in range(2)]
    async with (
        account_on(url_of(server.url, "admin-0")) as account,
        fleet_of(account, *users) as (fleet, [standby, _unable]),
    ):
        advisories = await HeardAdvisories.of(account.connection)
        await fleet.schedule_all()
        await fleet.settled(2, owner=standby.sidecar.instance)
        await fleet.all_fire()
        assert (await advisories.first("cannot_serve"))["stream"] == STREAM
        reload_config(server, shared_account([able, able]))
        await fleet.settled(2)
        await fleet.expect_no_fire_twice()


@asynccontextmanager
async def ghost_of(account: Account, name: str) -> AsyncIterator[None]:
    """Write heartbeats of an instance that does not exist, as somebody can who may write into the bucket."""
    beat = {"serves": [KEY], "since": "2026-01-01T00:00:00Z", "last_received": None}
    timers: list[asyncio.TimerHandle] = []

    def write() -> None:
        account.connection.publish(f"$KV.nats_scheduler.instance.{name}", json.dumps(beat).encode())
        timers[:] = [asyncio.get_running_loop().call_later(HEARTBEAT_INTERVAL_NS / SECOND, write)]

    write()
    try:
        yield
    finally:
        timers[0].cancel()


async def test_heartbeats_of_nobody_stop_no_fires_for_long(start_server: StartServer) -> None:
    """It becomes the owner, fires nothing, and is passed over, with a warning and an advisory.

    A client that can write heartbeats can write the record as well, again and again.
    """
    server = await start_server(V2_11)
    async with account_on(server.url) as account, fleet_of(account, server.url) as (fleet, [one]):
        me = one.sidecar.instance
        ghost = next(name for name in map("ghost{:07}".format, range(1_000)) if order_of(KEY, [name, me])[0] == name)
        advisories = await HeardAdvisories.of(account.connection)
        async with ghost_of(account, ghost):
            await fleet.settled(2, owner=ghost)
            await fleet.schedule_all()
            await fleet.settled(2, owner=me)
            await fleet.all_fire()
            assert (await advisories.first("instance_not_firing"))["instance"] == ghost

            async def all_fire_although_the_record_denies_it() -> bool:
                forge(account, ghost)
                return len(await fleet.fires_since(CLOCK.now() - 2 * SECOND)) == SCHEDULES

            await eventually(all_fire_although_the_record_denies_it)
        await fleet.expect_no_fire_twice()


def forge(account: Account, owner: object) -> None:
    """Write into the record of the stream that somebody owns it."""
    record = {"owner": owner, "since": "2026-01-01T00:00:00Z", "before": owner, "reason": "order"}
    account.connection.publish(f"$KV.nats_scheduler.owner.{KEY}", json.dumps(record).encode())


# -- one is cut off from the server ------------------------------------------------------------------------------------

FAR_SECONDS = 4.0
"""The delay at which no answer comes before the connection is given up, while all that was sent still arrives."""
LATE_SECONDS = 8
"""The time after which everything that was sent before the connection was given up has arrived."""


def nothing_is_heard(proxy: Proxy) -> None:
    """Hold what the server sends: what the one that is cut off sends still arrives, and it fires without an answer."""
    proxy.to_client.hold()


def all_is_late(proxy: Proxy) -> None:
    """Delay everything, so that what was sent arrives after others have taken over."""
    proxy.to_client.delay = proxy.to_server.delay = FAR_SECONDS


@pytest.mark.parametrize("fault", [nothing_is_heard, pytest.param(all_is_late, marks=pytest.mark.deep)])
async def test_what_is_cut_off_fires_elsewhere_and_does_no_harm_later(
    start_server: StartServer, fault: Callable[[Proxy], None]
) -> None:
    server = await start_server(V2_11)
    async with (
        account_on(server.url) as account,
        proxy_to(server.url) as proxy,
        fleet_of(account, server.url, server.url, proxy.url) as (fleet, sidecars),
    ):
        await fleet.schedule_all()
        await fleet.all_fire()
        cut_at = CLOCK.now()
        fault(proxy)
        await fleet.settled(2)
        await fleet.all_fire()
        await sidecars[2].told_of("connection_lost")
        if proxy.to_server.delay:
            await instant_reached(cut_at + LATE_SECONDS * SECOND, CLOCK.now)
        proxy.heal()
        await fleet.settled(3)
        await fleet.all_fire()
        await fleet.expect_no_fire_twice()
