"""Several sidecars on one account, as real processes: they divide the work, and take over from each other.

Every test ends with the same account: each fire that came due is stored, and none twice.
"""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from nats_scheduler.engine.events import FireStored
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.jetstream.connection import frame
from nats_scheduler.jetstream.streams import METADATA_FLAG, METADATA_TTL_FLAG
from nats_scheduler.jetstream.watch import SIDECAR_INBOX
from nats_scheduler.runtime import discovery as last_requests
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.burst import store_herd
from tests.harness.flagged import FlaggedStream
from tests.harness.fleet import BUCKET, SCHEDULES, STREAM, ProcessFleet
from tests.harness.processes import ChildProcess
from tests.harness.servers import EMULATED_VERSIONS, V2_11
from tests.harness.waiting import eventually


@pytest.fixture(params=EMULATED_VERSIONS)
async def fleet(
    request: pytest.FixtureRequest, start_server: StartServer, tmp_path: Path
) -> AsyncIterator[ProcessFleet]:
    """Serve one stream by three sidecars, with schedules that fire each second."""
    server = await start_server(request.param)
    async with account_on(server.url) as account:
        await account.create(STREAM, metadata={"nats-scheduler.allow_msg_schedules": "true"})
        one = ProcessFleet(account, server.url, tmp_path)
        try:
            for _ in range(3):
                await one.add()
            for number in range(SCHEDULES):
                await one.stream.schedule(f"s.{number}", "@every 1s")
            yield one
        finally:
            for process in one.sidecars:
                process.kill()


async def shards_settled(account: Account, stream: str) -> int:
    """Return for how many shards of a stream a checkpoint is written down."""
    if await account.api.stream(BUCKET) is None:
        return 0
    message = await account.api.message(BUCKET, last_by_subj=f"$KV.nats_scheduler.checkpoint.{stream}.emulated")
    value = json.loads((message.body if message else b"") or b"{}")
    return len({shard for entry in value.get("entries", ()) for shard in entry["shards"]})


def kill(process: ChildProcess) -> None:
    """End a holder as a crash does."""
    process.kill()


def freeze(process: ChildProcess) -> None:
    """Pause a holder, with its connection open."""
    process.pause()


async def test_three_share_the_work_and_go_on_when_one_dies_freezes_or_leaves(fleet: ProcessFleet) -> None:
    await fleet.all_fire(CLOCK.now())
    assert min((await fleet.parts()).values()) >= 5

    died, frozen, leaves = fleet.sidecars
    await lose(fleet, kill, died, left=2)
    await fleet.add()
    await lose(fleet, freeze, frozen, left=2)
    await fleet.all_fire(CLOCK.now())
    frozen.resume()
    await frozen.wait_for_line("the process stood still")
    await fleet.divided(3)
    assert await leaves.terminate() == 0
    since = CLOCK.now()
    await fleet.divided(2)
    await fleet.all_fire(since)
    await fleet.expect_no_fire_twice()


async def lose(fleet: ProcessFleet, how: Callable[[ChildProcess], None], process: ChildProcess, *, left: int) -> None:
    """Lose an instance, and see its schedules fire elsewhere."""
    how(process)
    since = CLOCK.now()
    await fleet.divided(left)
    await fleet.all_fire(since)


async def test_a_herd_shared_by_three_fires_once_each_while_one_is_killed(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await account.create(STREAM, metadata={"nats-scheduler.allow_msg_schedules": "true"})
        fleet = ProcessFleet(account, server.url, tmp_path)
        try:
            for _ in range(3):
                await fleet.add()
            await store_herd(account, STREAM, CLOCK.now() + 3 * SECOND, 1_000)
            await fleet.stream.wait_for("out", 1)
            fleet.sidecars[0].kill()

            async def all_purged() -> bool:
                info = await account.api.call(f"STREAM.INFO.{STREAM}", {"subjects_filter": f"{STREAM}.s.*"})
                return not info["state"].get("subjects")

            await eventually(all_purged, within_seconds=30, describe="every schedule has fired and is purged")
            bodies = sorted(int(message.body or b"-1") for message in await fleet.stream.messages("out"))
            assert bodies == list(range(1_000))
        finally:
            for process in fleet.sidecars:
                process.kill()


async def test_the_bucket_is_made_anew_and_nothing_is_lost(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as one, sidecar_on(server.url) as other:
        stream = FlaggedStream(account, STREAM)
        await account.create(STREAM)
        await one.ready(STREAM)
        await other.ready(STREAM)
        fleet = ProcessFleet(account, server.url, Path())
        await fleet.divided(2)
        await account.api.call("STREAM.DELETE.KV_nats_scheduler")
        for number in range(SCHEDULES):
            await stream.schedule(f"s.{number}", f"@at {in_seconds(0.5)}", str(number).encode())
        fired = await stream.wait_for("out", SCHEDULES)
        assert sorted(int(message.body or b"-1") for message in fired) == list(range(SCHEDULES))
        await fleet.divided(2)
        assert await account.api.message(BUCKET, last_by_subj=f"$KV.nats_scheduler.stream.{STREAM}")
        assert one.of(STREAM, FireStored)
        assert other.of(STREAM, FireStored)


@pytest.mark.parametrize("fleet", [V2_11], indirect=True)
async def test_three_go_on_when_the_bucket_is_deleted_and_write_into_the_next_what_it_has_to_hold(
    fleet: ProcessFleet,
) -> None:
    """Once, and again before the next one has outgrown the last: also of a stream where nothing happens any more."""
    account = fleet.account
    await account.create("QUIET", metadata={METADATA_FLAG: "true"})
    quiet = FlaggedStream(account, "QUIET")
    for number in range(SCHEDULES):
        await quiet.schedule(f"s.{number}", f"@at {in_seconds(0.5)}")
    await quiet.wait_for("out", SCHEDULES)
    since = CLOCK.now()
    for _ in range(3):
        await all_settled(account, "QUIET", STREAM)
        await account.api.call(f"STREAM.DELETE.{BUCKET}")
        await fleet.all_fire(CLOCK.now())
        await fleet.divided(3)
        for name in ("QUIET", STREAM):
            found = await account.api.message(BUCKET, last_by_subj=f"$KV.nats_scheduler.stream.{name}")
            assert found is not None, f"it is written down that {name} is flagged"
    await all_settled(account, "QUIET", STREAM)
    await fleet.expect_no_fire_twice()
    await fleet.expect_no_fire_missed(since)
    assert len(await quiet.messages("out")) == SCHEDULES


async def all_settled(account: Account, *streams: str) -> None:
    """Wait until checkpoints speak for all shards of these streams."""
    for name in streams:

        async def is_settled(name: str = name) -> bool:
            return await shards_settled(account, name) == SHARDS

        await eventually(is_settled, within_seconds=30, describe=f"checkpoints of all shards of {name}")


async def test_two_adopt_a_stream_and_no_update_of_a_user_is_undone(start_server: StartServer) -> None:
    """The update that was asked for last is in force, although others write the configuration meanwhile."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as one, sidecar_on(server.url) as other:
        for round_ in range(10):
            name = f"{STREAM}{round_}"
            created = await account.create(name)
            for limit in (1_000, 2_000, 3_000):
                asked = {**created["config"], "max_msgs": limit, "allow_msg_schedules": True}
                await account.api.call(f"STREAM.UPDATE.{name}", asked)
            await one.ready(name)
            await other.ready(name)

            async def is_as_asked(name: str = name) -> bool:
                config = (await account.api.stream(name))["config"]
                return bool(config["max_msgs"] == 3_000)

            await eventually(is_as_asked, within_seconds=30, describe=f"{name} is as it was last asked for")


async def test_another_sidecars_update_is_not_taken_for_the_last_wish_of_a_user(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It undoes what a user asked for at the same moment: were it a wish, the user's would count as overtaken."""
    monkeypatch.setattr(last_requests, "MAX_REQUEST_OVERLAP_SECONDS", 60.0)  # however busy the machine is
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

            async def is_as_asked(name: str = name) -> bool:
                return bool((await account.api.stream(name))["config"]["max_msgs"] == 3_000)

            await eventually(is_as_asked, within_seconds=30, describe=f"{name} is as a user asked for")


async def test_two_share_the_work_where_the_account_has_no_place_for_a_consumer(start_server: StartServer) -> None:
    limited = "accounts { A { users [{user: a, password: a}], jetstream { max_consumers: 1 } } }\nno_auth_user: a\n"
    server = await start_server(V2_11, config=limited)
    async with account_on(server.url) as account:
        stream, fleet = FlaggedStream(account, STREAM), ProcessFleet(account, server.url, Path())
        await account.create(STREAM, metadata={"nats-scheduler.allow_msg_schedules": "true"})
        await account.api.create_consumer(STREAM, "the-only-one", {"ack_policy": "explicit"})
        async with sidecar_on(server.url) as one:
            async with sidecar_on(server.url) as other:
                await one.ready(STREAM)
                await other.ready(STREAM)
                await fleet.divided(2)
                for number in range(SCHEDULES):
                    await stream.schedule(f"s.{number}", f"@at {in_seconds(0.3)}")
                await stream.wait_for("out", SCHEDULES)
                assert one.of(STREAM, FireStored)
                assert other.of(STREAM, FireStored)
            await fleet.divided(1)
        await fleet.expect_no_fire_twice()
