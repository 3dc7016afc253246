"""A server says otherwise when a stream was created, once it was updated and the server was started again.

Seen on 2.10.26, 2.11.11 and 2.12.8: then it is the time of the start before the update.
What had fired is not fired again for that, and a stream that was made anew under the same name begins anew.
"""

from pathlib import Path

import pytest

from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.message.headers import header_value
from tests.conftest import SharedServer
from tests.harness.account import account_on, in_seconds, sidecar_on
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import EMULATED_VERSIONS
from tests.harness.upgrades import Machine, machine_in

FLAGGED = {"metadata": {METADATA_FLAG: "true"}, "allow_rollup_hdrs": True}


async def created(machine: Machine) -> str:
    """Return when the server says that the stream was created."""
    async with account_on(machine.url) as account:
        return str((await account.api.stream("S"))["created"])


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_fire_that_was_consumed_is_not_fired_again(tmp_path: Path, version: str) -> None:
    async with machine_in(tmp_path) as machine:
        await machine.install(version)
        async with account_on(machine.url) as account:
            await account.create("S", storage="file", retention="workqueue", **FLAGGED)
        at_first = await created(machine)
        await machine.install(version)
        async with account_on(machine.url) as account:
            stream = FlaggedStream(account, "S")
            await stream.add_consumer("worker", "out")
            async with sidecar_on(machine.url) as running:
                await running.ready("S")
                await stream.schedule("s", "@every 10s")
                [fire] = await stream.take("worker")
                await stream.acknowledge(fire)
            config = (await account.api.stream("S"))["config"]
            await account.api.call("STREAM.UPDATE.S", {**config, "description": "updated"})
        await machine.install(version)
        assert await created(machine) != at_first, "what this test is about does not happen"
        async with account_on(machine.url) as account, sidecar_on(machine.url) as running:
            await running.ready("S")
            [after] = await FlaggedStream(account, "S").take("worker")
        assert header_value(after.block, b"Nats-Msg-Id") != header_value(fire.block, b"Nats-Msg-Id")


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_stream_that_was_made_anew_begins_anew(
    shared_server: SharedServer, stream_name: str, version: str
) -> None:
    name, server = stream_name, await shared_server(version)
    async with account_on(server.url) as account:
        stream = FlaggedStream(account, name)
        await account.create(name, retention="workqueue", **FLAGGED)
        for number in range(5):
            await stream.publish(f"passed.{number}")
        async with sidecar_on(server.url) as running:
            await running.ready(name)
            due = in_seconds(0.2)
            await stream.schedule("s", f"@at {due}", b"before")
            await stream.wait_for("out")
        await stream.call("STREAM.DELETE")
        await account.create(name, retention="workqueue", **FLAGGED)
        # Due before the checkpoint of the stream before was written, and stored under a lower sequence.
        await stream.schedule("s", f"@at {due}", b"anew")
        async with sidecar_on(server.url) as running:
            await running.ready(name)
            assert [fire.body for fire in await stream.wait_for("out")] == [b"anew"]
