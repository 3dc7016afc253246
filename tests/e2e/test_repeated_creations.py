"""An application that creates its stream at each start is not refused.

The sidecar leaves the configuration as it was asked for, so that a fire rolls up its target by a purge.
"""

import json
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig

from nats_scheduler.control.fire_requests import fire
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from tests.control.test_connection_store import store_of
from tests.harness.account import CLOCK, Account, account_on, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.flagged import AS_ADOPTED, FlaggedStream, at, served_on
from tests.harness.servers import EMULATED_VERSIONS, V2_10, V2_11
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually
from tests.harness.watched import Watched

ROLL_UP = {"Rollup": "sub"}
PAST = "@at 2020-01-01T00:00:00Z"
CONFIGS: tuple[dict[str, Any], ...] = (
    {},
    {"allow_msg_ttl": True},
    {"allow_rollup_hdrs": True},
    {"metadata": {"a": "b"}},
)


async def is_rolled_up(stream: FlaggedStream, rest: str) -> str:
    """Wait until one message is left on a target, and return its headers."""

    async def is_one() -> bool:
        return len(await stream.messages(rest)) == 1

    await eventually(is_one, describe=f"{rest} is rolled up")
    return (await stream.messages(rest))[0].block.decode()


@pytest.mark.clause("generated-rollup")
async def test_a_creation_is_accepted_again_byte_for_byte(watched: Watched) -> None:
    """Also after a fire has rolled up its target: where the stream refuses `Nats-Rollup`, a purge follows the fire."""
    for number, config in enumerate(CONFIGS):
        one = Watched(watched.account, f"{watched.name}-{number}", watched.sidecar, said=watched.said)
        made = await one.served(**config)
        for body in (b"older", b"old"):
            await one.publish("r-out", body=body)
        await one.schedule("r", PAST, target="r-out", more=ROLL_UP)
        await one.wait_for("r-out")
        rolled_up_by = await is_rolled_up(one, "r-out")
        assert ("Nats-Rollup: sub" in rolled_up_by) is ("allow_rollup_hdrs" in config)
        assert (await one.create(**config))["config"] == made["config"], config
        await one.update(description="edited by a tool")
        await one.fires("after")


async def test_nats_py_may_add_its_stream_again(watched: Watched) -> None:
    """Its class knows the field from 2.12 on, and sends it."""
    client = await nats.connect(watched.url)
    config = StreamConfig(name=watched.name, subjects=[f"{watched.name}.>"], allow_msg_schedules=True)
    await client.jetstream().add_stream(config)
    await watched.fires()
    await client.jetstream().add_stream(config)
    await client.close()


# -- what a schedule cannot do without -------------------------------------------------------------------------------


@pytest.mark.clause("stream-implied")
async def test_who_rolls_up_by_hand_names_roll_ups_in_the_configuration(watched: Watched) -> None:
    """Here the flag does not bring them along, as it does natively; a fire on request rolls up all the same."""
    await watched.served()
    await watched.publish("out", body=b"old")
    await watched.schedule("s", "@every 1h", b"new", more=ROLL_UP)
    await fire(await store_of(watched.account), watched.name, watched.subject("s"))
    await watched.left("out", [b"new"])
    block = block_to_send({"Nats-Rollup": "sub"})
    refused = json.loads((await watched.account.connection.request(watched.subject("x"), b"", block)).body)
    assert refused["error"]["err_code"] == 10111
    await watched.update(allow_rollup_hdrs=True)
    await watched.account.publish_block(watched.subject("x"), block, b"")


async def test_a_roll_up_that_a_crash_prevented_is_done_at_the_next_start(
    emulated_server: EmbeddedServer, account: Account, swept: str
) -> None:
    await account.create(swept)
    stream, due = FlaggedStream(account, swept), CLOCK.now() // SECOND * SECOND
    await stream.publish("out", body=b"old")
    sequence = await stream.schedule("s", at(due), more=ROLL_UP)
    identity = fire_identity(stream.subject("s"), sequence, due)
    generated = {"Nats-Scheduler": stream.subject("s"), "Nats-Schedule-Next": "purge", "Nats-Msg-Id": identity}
    await stream.publish("out", generated)  # by a sidecar that was killed before it could do more
    async with sidecar_on(emulated_server.url):
        await account.create(swept)
        await is_rolled_up(stream, "out")


async def test_ttls_that_we_kept_for_2_10_are_handed_to_a_server_that_keeps_them(tmp_path: Path) -> None:
    config = {"storage": "file", "allow_msg_ttl": True}
    async with machine_in(tmp_path) as machine:
        url = await machine.install(V2_10)
        async with served_on(url, config=config) as served:
            await Watched(served.account, "S", served.sidecar).remembered()
        await machine.install(V2_11)
        async with sidecar_on(url) as running, account_on(url) as account:
            told = await running.told_of("stream_updated", stream="S")
            assert told["switched_on"] == "allow_msg_ttl"
            await account.create("S", **config)


# -- the same stream, whatever the server says of its creation --------------------------------------------------------


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_stream_of_which_the_server_tells_another_creation_time_is_the_same(
    tmp_path: Path, version: str
) -> None:
    """Its flag is kept, and a fire that was consumed is not fired again.

    A server up to 2.12 that restarts, updates a stream and restarts again gives the time of its first restart.
    """
    async with machine_in(tmp_path) as machine:
        url = await machine.install(version)
        async with account_on(url) as account:
            made = await account.create("S", storage="file", retention="workqueue", **AS_ADOPTED)
        await machine.install(version)
        async with served_on(url) as served:
            await served.add_consumer("worker", "out")
            await served.schedule("s", "@every 10s")
            [fired] = await served.take("worker")
            await served.acknowledge(fired)
            await Watched(served.account, "S", served.sidecar).update(description="updated", metadata={})
        await machine.install(version)
        async with served_on(url) as served:
            created = (await served.account.api.stream("S"))["created"]
            assert created != made["created"], "what this test is about does not happen"
            await served.sidecar.told_of("flag_kept", stream="S")
            [after] = await served.take("worker")
        assert header_value(after.block, MSG_ID) != header_value(fired.block, MSG_ID)
