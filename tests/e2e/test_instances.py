"""Several sidecars on one account: one owns the stream, and the others take it over.

Every test ends with the same account: each fire that came due is stored, and none twice.
How long a takeover takes is printed: the simulation holds that it is soon enough, on any machine.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from nats_scheduler.control.transport import request_json
from nats_scheduler.engine.events import FiresMissed, FireStored
from nats_scheduler.engine.ownership import owners
from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.engine.ownership.owners import HEARTBEAT_INTERVAL_NS
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.request_watch import SIDECAR_INBOX
from nats_scheduler.jetstream.streams import METADATA_FLAG, METADATA_TTL_FLAG
from nats_scheduler.runtime import discovery, last_requests
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service import instance_questions
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FLAG, FlaggedStream, left_out
from tests.harness.fleet import BUCKET, KEY, SCHEDULES, STREAM, Fleet, values
from tests.harness.permissions import Permission, limited_to, shared_account, url_of, without
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.servers import EMULATED_VERSIONS, V2_10, V2_11, reload_config
from tests.harness.waiting import PATIENCE_SECONDS, eventually, instant_reached


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


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_the_next_one_fires_when_the_owner_dies_freezes_or_leaves(
    start_server: StartServer, tmp_path: Path, version: str
) -> None:
    server = await start_server(version)
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
            assert await fleet.names[await fleet.owner()].terminate() == 0
            await fleet.settled(2)
            await fleet.all_fire()
        finally:
            for process in fleet.processes:
                process.kill()
        await fleet.expect_no_fire_twice()


async def test_one_that_is_killed_is_replaced_because_the_server_says_that_it_is_not_connected(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test does not wait for so long that it would be gone because of a heartbeat that is missing."""
    monkeypatch.setattr(owners, "GONE_AFTER_NS", 600 * SECOND)
    monkeypatch.setattr(instance_questions, "INSTANCE_DEADLINE_SECONDS", PATIENCE_SECONDS)
    server = await start_server(V2_11)
    async with account_on(server.url) as account, fleet_of(account, server.url) as (fleet, [left]):
        try:
            await fleet.add_owner(server.url, tmp_path)
            name = await fleet.owner()

            async def has_answered() -> bool:
                said = await request_json(account.connection, f"$SRV.STATS.nats-scheduler.{name}")
                return any(one["name"] == "health-get" and one["num_requests"] for one in said["endpoints"])

            await eventually(has_answered, describe="it was asked whether it is there")
            await fleet.schedule_all()
            await fleet.all_fire()
        finally:
            for process in fleet.processes:
                process.kill()
        await fleet.settled(1)
        await fleet.all_fire()
        (lost,) = left.told("instance_lost")
        assert (lost["instance"], lost["reason"]) == (name, "it is not connected any more")
        await fleet.expect_no_fire_twice()


# -- the bucket --------------------------------------------------------------------------------------------------------


async def all_settled(account: Account, *streams: str) -> None:
    """Wait until there are checkpoints of these streams."""
    for name in streams:

        async def is_settled(name: str = name) -> bool:
            return f"{name}.emulated" in await values(account, "checkpoint")

        await eventually(is_settled, describe=f"a checkpoint of {name}")


async def test_three_go_on_when_the_bucket_is_deleted_and_write_into_the_next_what_it_has_to_hold(
    start_server: StartServer,
) -> None:
    """Once, and again before the next one has outgrown the last: also of a stream where nothing happens any more."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, fleet_of(account, *[server.url] * 3) as (fleet, sidecars):
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
        assert [bool(one.of(STREAM, FireStored)) for one in sidecars] == [False, False, True]
        assert len(await quiet.messages("out")) == SCHEDULES


# -- configurations ----------------------------------------------------------------------------------------------------


async def is_as_asked(account: Account, name: str) -> None:
    async def is_so() -> bool:
        return bool((await account.api.stream(name))["config"]["max_msgs"] == 3_000)

    await eventually(is_so, describe=f"{name} is as a user asked for")


async def test_two_adopt_a_stream_and_no_update_of_a_user_is_undone(start_server: StartServer) -> None:
    """The update that was asked for last is in force, although others write the configuration meanwhile."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as one, sidecar_on(server.url) as other:
        for round_ in range(5):
            name = f"{STREAM}{round_}"
            created = await account.create(name)
            for limit in (1_000, 2_000, 3_000):
                asked = {**created["config"], "max_msgs": limit, "allow_msg_schedules": True}
                await account.api.call(f"STREAM.UPDATE.{name}", asked)
            await one.ready(name)
            await other.ready(name)
            await is_as_asked(account, name)


async def test_another_sidecars_update_is_not_taken_for_the_last_wish_of_a_user(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It undoes what a user asked for at the same moment: were it a wish, the user's would count as overtaken."""
    # However busy the machine is, the first look at the stream follows both updates, and an update of ours both.
    monkeypatch.setattr(last_requests, "MAX_REQUEST_OVERLAP_SECONDS", 60.0)
    monkeypatch.setattr(discovery, "CHANGE_CHECK_WAITS_SECONDS", (2.0, 0.1, 0.1, 0.1, 0.1, 0.1))
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        for round_ in range(3):
            name = f"{STREAM}{round_}"
            await account.create(name, metadata={METADATA_TTL_FLAG: "true"})  # as if it came from 2.10
            await running.told_of("stream_updated", stream=name)
            adopted = (await account.api.stream(name))["config"]
            asked = {**adopted, "max_msgs": 3_000}
            # In one breath, so that nobody reads the stream in between.
            another = f"_INBOX.{SIDECAR_INBOX}{round_}.r.1"
            for config, reply in ((asked, account.connection.inbox("user")), (adopted, another)):
                body = json.dumps(config).encode()
                account.connection.write(frame(f"$JS.API.STREAM.UPDATE.{name}", reply, b"", body))
            await is_as_asked(account, name)


async def test_one_takes_over_where_the_account_has_no_place_for_a_consumer(start_server: StartServer) -> None:
    limited = "accounts { A { users [{user: a, password: a}], jetstream { max_consumers: 1 } } }\nno_auth_user: a\n"
    server = await start_server(V2_11, config=limited)
    async with account_on(server.url) as account:
        await account.create(STREAM, metadata={METADATA_FLAG: "true"})
        await account.api.create_consumer(STREAM, "the-only-one", {"ack_policy": "explicit"})
        fleet = Fleet(account)
        async with sidecar_on(server.url), sidecar_on(server.url):
            await fleet.settled(2)
            for number in range(SCHEDULES):
                await fleet.stream.schedule(f"s.{number}", f"@at {in_seconds(0.3)}")
            await fleet.stream.wait_for("out", SCHEDULES)
        await fleet.expect_no_fire_twice()


# -- being alive is not being able -------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
@pytest.mark.parametrize("lacks", [f"{STREAM}.>", "$JS.API.STREAM.MSG.GET.*"])
async def test_one_that_may_not_fire_gives_up_the_stream_and_owns_it_again_when_it_may(
    start_server: StartServer, version: str, lacks: str
) -> None:
    able = limited_to(version, f"{STREAM}.>")
    unable = without(able, lacks)
    if lacks.startswith("$JS"):  # what it reads of the bucket is another thing
        unable.append(Permission("publish", "$JS.API.STREAM.MSG.GET.KV_nats_scheduler", ()))
    server = await start_server(version, config=shared_account([able, unable]))
    users = [url_of(server.url, f"sidecar-{number}") for number in range(2)]
    async with (
        account_on(url_of(server.url, "admin-0")) as account,
        fleet_of(account, *users) as (fleet, [standby, _unable]),
    ):
        advisories = HeardAdvisories(account.connection)
        since = await fleet.schedule_all()
        await fleet.settled(2, owner=standby.sidecar.instance)
        await fleet.all_fire()
        print(f"no schedule was silent for longer than {await fleet.longest_silence(since):.2f} s")
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


async def test_heartbeats_of_an_instance_that_does_not_exist_stop_no_fires_for_long(start_server: StartServer) -> None:
    """It becomes the owner, fires nothing, and is passed over, with a warning and an advisory.

    A client that can write heartbeats can write the record as well, again and again.
    """
    server = await start_server(V2_11)
    async with account_on(server.url) as account, fleet_of(account, server.url) as (fleet, [one]):
        me = one.sidecar.instance
        ghost = next(name for name in map("ghost{:07}".format, range(1_000)) if order_of(KEY, [name, me])[0] == name)
        advisories = HeardAdvisories(account.connection)
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


@pytest.mark.parametrize("name", ["nobody", "x" * 50_000, ["nobody"]], ids=["gone", "long", "no-name"])
async def test_records_that_name_nobody_stop_no_fires_however_often_they_are_written(
    start_server: StartServer, name: object
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, fleet_of(account, server.url, server.url) as (fleet, [_, owner]):
        await fleet.schedule_all()
        await fleet.all_fire()
        forge(account, name)
        await fleet.settled(2)
        begun = CLOCK.now()
        for _ in range(3):
            since = CLOCK.now()

            async def all_fire_although_nobody_owns_it(since: int = since) -> bool:
                forge(account, name)
                return len(await fleet.fires_since(since)) == SCHEDULES

            await eventually(all_fire_although_nobody_owns_it)
        print(f"no schedule was silent for longer than {await fleet.longest_silence(begun):.2f} s")
        await fleet.settled(2)
        assert not owner.told("instance_not_firing")
        await fleet.expect_no_fire_twice()


# -- one is cut off from the server ------------------------------------------------------------------------------------

FAR_SECONDS = 4.0
"""The delay at which no answer comes before the connection is given up, while all that was sent still arrives."""
LATE_SECONDS = 8
"""The time after which everything that was sent before the connection was given up has arrived."""


def nothing_passes(proxy: Proxy) -> None:
    """Hold everything, in both directions; what was sent arrives when it heals."""
    proxy.freeze()


def nothing_is_heard(proxy: Proxy) -> None:
    """Hold what the server sends: what the one that is cut off sends still arrives, and it fires without an answer."""
    proxy.to_client.hold()


def all_is_late(proxy: Proxy) -> None:
    """Delay everything, so that what was sent arrives after others have taken over."""
    proxy.to_client.delay = proxy.to_server.delay = FAR_SECONDS


@pytest.mark.parametrize(
    ("version", "fault"),
    [
        (V2_10, nothing_passes),
        (V2_11, nothing_is_heard),
        pytest.param(V2_11, all_is_late, marks=pytest.mark.deep),
    ],
)
async def test_what_is_cut_off_fires_elsewhere_and_does_no_harm_when_it_is_back(
    start_server: StartServer, version: str, fault: Callable[[Proxy], None]
) -> None:
    server = await start_server(version)
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
        silence = await fleet.longest_silence(cut_at)
        print(f"{fault.__name__}: no schedule was silent for longer than {silence:.2f} s")
        proxy.heal()
        await fleet.settled(3)
        await fleet.all_fire()
        await fleet.expect_no_fire_twice()
