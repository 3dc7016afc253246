"""Being alive is not being able: who may not fire, or does not, keeps no shards while somebody else can."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.e2e.test_denials import limited_to
from tests.harness.account import CLOCK, account_on, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.fleet import SCHEDULES, STREAM, ProcessFleet
from tests.harness.ghost import GHOST, ghost_of
from tests.harness.permissions import Permission, shared_account, url_of
from tests.harness.servers import EMULATED_VERSIONS, V2_11, reload_config
from tests.harness.waiting import eventually

PERIOD_SECONDS = 1
RESUME_SECONDS = 3
"""*Live* promises it."""


def without(version: str, subject: str) -> list[Permission]:
    """Return the list of a version for our stream, without one subject to publish to."""
    return [each for each in limited_to(version, f"{STREAM}.>") if (each.act, each.subject) != ("publish", subject)]


@asynccontextmanager
async def two_of(server: EmbeddedServer, folder: Path) -> AsyncIterator[ProcessFleet]:
    """Have two sidecars, of different users, divide a stream on which nothing is scheduled yet."""
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create(STREAM, metadata={"nats-scheduler.allow_msg_schedules": "true"})
        fleet = ProcessFleet(account, server.url, folder)
        try:
            for number in range(2):
                await fleet.add(url_of(server.url, f"sidecar-{number}"))
            yield fleet
        finally:
            for process in fleet.sidecars:
                process.kill()


async def schedule_all(fleet: ProcessFleet) -> int:
    """Store schedules that fire each second; return the instant of the last one."""
    for number in range(SCHEDULES):
        await fleet.stream.schedule(f"s.{number}", f"@every {PERIOD_SECONDS}s")
    return CLOCK.now()


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
@pytest.mark.parametrize("lacks", [f"{STREAM}.>", "$JS.API.STREAM.MSG.GET.*"])
async def test_who_may_not_fire_gives_up_the_stream_and_takes_it_back_when_it_may(
    start_server: StartServer, tmp_path: Path, version: str, lacks: str
) -> None:
    able = without(version, "nothing")
    unable = without(version, lacks)
    if lacks.startswith("$JS"):  # what it reads of the bucket is another thing
        unable.append(Permission("publish", "$JS.API.STREAM.MSG.GET.KV_nats_scheduler", ()))
    server = await start_server(version, config=shared_account([able, unable]))
    async with two_of(server, tmp_path) as fleet:
        since = await schedule_all(fleet)
        await fleet.divided(1)
        await fleet.all_fire(since + (PERIOD_SECONDS + RESUME_SECONDS) * SECOND)
        assert await fleet.longest_silence(since) < PERIOD_SECONDS + RESUME_SECONDS
        told = await fleet.sidecars[1].wait_for_line("cannot_serve")
        assert STREAM in told
        reload_config(server, shared_account([able, able]))
        await fleet.divided(2)
        await fleet.expect_no_fire_twice()


async def test_heartbeats_of_an_instance_that_does_not_exist_stop_no_fires_for_long(
    start_server: StartServer, tmp_path: Path
) -> None:
    """It is given a part, fires nothing, and is relieved, with a warning and an advisory."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        advisories = HeardAdvisories(account.connection)
        await account.create(STREAM)
        await running.ready(STREAM)
        fleet = ProcessFleet(account, server.url, tmp_path)
        await fleet.divided(1)
        async with ghost_of(account):
            await fleet.divided(2)
            await schedule_all(fleet)
            await fleet.divided(1)
            await fleet.all_fire(CLOCK.now())
            assert GHOST not in await fleet.holders()
            assert (await advisories.first("instance_not_firing"))["instance"] == GHOST
        await fleet.expect_no_fire_twice()


async def test_a_record_that_keeps_naming_a_ghost_stops_no_fires(start_server: StartServer, tmp_path: Path) -> None:
    """A client that can write heartbeats can write the record as well, again and again."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create(STREAM)
        await running.ready(STREAM)
        fleet = ProcessFleet(account, server.url, tmp_path)
        await fleet.divided(1)
        async with ghost_of(account):
            await schedule_all(fleet)
            value = json.dumps({"holders": {GHOST: sorted(ALL_SHARDS)}}).encode()

            async def relieved() -> bool:
                account.connection.publish(f"$KV.nats_scheduler.lease.emulated.{STREAM}", value)
                return len(await fleet.fires_since(CLOCK.now() - SECOND)) == SCHEDULES

            await eventually(relieved, within_seconds=45, describe="everything fires although the record denies it")
