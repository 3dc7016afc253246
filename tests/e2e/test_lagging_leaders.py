"""A leader that does not know yet what a replica has delivered: nothing is taken for removed on its word."""

import json
from collections import Counter

import pytest

from nats_scheduler.engine.events import Ending, ScheduleAccepted, ScheduleEnded, StreamReady
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.conftest import SharedServer
from tests.harness.account import WAIT_SECONDS, in_seconds, sidecar_with
from tests.harness.account import account_on as account_at
from tests.harness.flagged import FlaggedStream
from tests.harness.lagging import PREFIX, lagging_leader
from tests.harness.servers import V2_10, V2_11
from tests.harness.waiting import eventually

AS_ADOPTED = {"metadata": {METADATA_FLAG: "true"}, "allow_rollup_hdrs": True}
"""With this the sidecar has nothing to update."""


@pytest.mark.parametrize("version", [V2_10, V2_11])
@pytest.mark.parametrize("schedules", [20, 200])
async def test_schedules_fire_once_although_the_leader_knew_them_later_than_the_follower(
    version: str, schedules: int, shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(version)
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,), js_api_prefix=PREFIX))
    async with account_at(server.url) as account, lagging_leader(server.url, stream_name) as leader:
        await account.create(stream_name, **AS_ADOPTED)
        async with sidecar_with(settings) as running:
            await running.ready(stream_name)
            stream = FlaggedStream(account, stream_name)
            leader.applied = await stream.publish("something")
            for number in range(schedules):  # those of more than 64 are read together, past the leader
                await stream.schedule(f"at.{number}", f"@at {in_seconds(-1)}", b"%d" % number)
            await eventually(
                lambda: leader.not_found >= 20, within_seconds=WAIT_SECONDS, describe="the leader is asked"
            )
            leader.applied = None
            fires = await stream.wait_for("out", schedules)
            await stream.canary(0.2)
        ended = Counter(event.ending for event in running.of(stream_name, ScheduleEnded))
    assert Counter(fire.body for fire in fires) == Counter(b"%d" % number for number in range(schedules))
    assert ended == {Ending.FIRED: schedules + 1}


async def test_a_schedule_that_was_removed_ends_where_the_leader_has_come_past_it(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,), js_api_prefix=PREFIX))
    async with account_at(server.url) as account, lagging_leader(server.url, stream_name):
        await account.create(stream_name, **AS_ADOPTED)
        async with sidecar_with(settings) as running:
            await running.ready(stream_name)
            stream = FlaggedStream(account, stream_name)
            sequence = await stream.schedule("at", f"@at {in_seconds(2)}")
            await eventually(
                lambda: running.of(stream_name, ScheduleAccepted), within_seconds=WAIT_SECONDS, describe="it is held"
            )
            await account.api.delete_message(stream_name, sequence)
            await eventually(
                lambda: running.of(stream_name, ScheduleEnded), within_seconds=WAIT_SECONDS, describe="its end"
            )
    assert [event.ending for event in running.of(stream_name, ScheduleEnded)] == [Ending.REMOVED]


NOTICED_SECONDS = 15.0
"""Half of the time after which all streams are looked at anyway."""


async def test_a_stream_that_a_node_did_not_know_for_a_moment_is_served_again_at_once(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,), js_api_prefix=PREFIX))
    async with account_at(server.url) as account, lagging_leader(server.url, stream_name) as leader:
        info = await account.create(stream_name, **AS_ADOPTED)
        async with sidecar_with(settings) as running:
            await running.ready(stream_name)
            leader.knows_the_stream = False
            account.connection.publish(f"{PREFIX}.STREAM.UPDATE.{stream_name}", json.dumps(info["config"]).encode())
            await eventually(
                lambda: stream_name not in running.sidecar.served,
                within_seconds=WAIT_SECONDS,
                describe="it is taken for gone",
            )
            leader.knows_the_stream = True
            await running.ready(stream_name, times=2, within_seconds=NOTICED_SECONDS)
            assert len(running.of(stream_name, StreamReady)) == 2


async def test_a_stream_is_not_ready_before_what_its_leader_has_is_read(
    shared_server: SharedServer, stream_name: str
) -> None:
    """A consumer may sit on a node that has just restarted: what it does not know yet may say what has fired."""
    server = await shared_server(V2_11)
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,), js_api_prefix=PREFIX))
    async with account_at(server.url) as account, lagging_leader(server.url, stream_name) as leader:
        await account.create(stream_name, **AS_ADOPTED)
        leader.ahead = 1
        async with sidecar_with(settings) as running:
            await eventually(
                lambda: leader.told_of_more >= 2, within_seconds=WAIT_SECONDS, describe="the leader is asked"
            )
            assert running.of(stream_name, StreamReady) == []
            leader.ahead = 0
            await running.ready(stream_name)


async def test_a_stream_whose_last_messages_were_deleted_is_ready(
    shared_server: SharedServer, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,), js_api_prefix=PREFIX))
    async with account_at(server.url) as account, lagging_leader(server.url, stream_name):
        await account.create(stream_name, **AS_ADOPTED)
        stream = FlaggedStream(account, stream_name)
        await stream.schedule("at", f"@at {in_seconds(1)}")
        await account.api.delete_message(stream_name, await stream.publish("last"))
        async with sidecar_with(settings) as running:
            await running.ready(stream_name)
            await stream.wait_for("out")
