"""A stream that goes back to an earlier state while it is served: what is published then is served all the same."""

import shutil
from pathlib import Path

import pytest

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.flagged import AS_ADOPTED, FlaggedStream, served_on
from tests.harness.nats_cli import NatsCli
from tests.harness.proxy import Proxy, proxy_to
from tests.harness.servers import EMULATED_VERSIONS, V2_11
from tests.harness.upgrades import Machine, machine_in
from tests.harness.waiting import eventually

STORED = {"storage": "file", **AS_ADOPTED}
BEFORE = 20
"""The number of messages before it goes back, and of sequences that are given a second time."""


async def last_sequence(account: Account) -> int:
    """Return the stream's last sequence, a high one where nobody answers."""
    try:
        info = await account.api.stream("S")
    except SchedulerError:
        info = None
    return 1 << 60 if info is None else int(info["state"]["last_seq"])


async def home_of_a_new_stream(cluster: Cluster) -> EmbeddedServer:
    """Create the stream on one node of a cluster, and return that node."""
    async with account_on(cluster.nodes[0].url) as account:

        async def leader() -> str | None:
            try:
                info = await account.create("S", num_replicas=1, **AS_ADOPTED)
            except SchedulerError:
                return None
            return (info.get("cluster") or {}).get("leader")

        name = await eventually(leader, describe="the stream has a node")
    return next(node for node in cluster.nodes if node.name == name)


async def goes_on(stream: FlaggedStream) -> None:
    """Publish what is not there any more once the stream has gone back."""
    for number in range(BEFORE):
        await stream.publish("before", body=b"%d" % number)
    await stream.schedule("at", f"@at {in_seconds(3600)}", b"gone", target="anew")
    await stream.schedule("every", "@every 1s", b"gone", target="ticks")
    await stream.wait_for("ticks")


async def expect_fires(stream: FlaggedStream) -> None:
    """Show that what is published now fires, on subjects that had schedules before, and how soon."""
    begun = CLOCK.now()
    await stream.schedule_soon("at", f"@at {in_seconds(0.1)}", b"anew", target="anew")
    await stream.schedule_soon("every", "@every 1s", b"anew", target="ticks.anew")
    fires = await stream.wait_for("anew")
    await stream.wait_for("ticks.anew", 3)
    print(f"the first fire {(fires[0].stored_at - begun) / 1e9:.2f} s after it was published")
    assert [fire.body for fire in fires] == [b"anew"]
    assert len(await stream.messages("anew")) == 1


async def test_a_stream_in_memory_whose_node_restarts_is_served_anew(tmp_path: Path) -> None:
    async with running_cluster(V2_11, tmp_path) as cluster:
        home = await home_of_a_new_stream(cluster)
        other = next(node for node in cluster.nodes if node is not home)
        async with served_on(other.url) as served:
            await goes_on(served)
            await cluster.kill(home)
            await cluster.revive(home)

            async def has_gone_back() -> bool:
                return await last_sequence(served.account) < BEFORE

            await eventually(has_gone_back, describe="the stream is empty")
            await expect_fires(served)
            told = await served.sidecar.told_of("stream_rolled_back", stream="S")
    assert "was read before" in told["reason"]


async def test_a_stream_that_is_restored_from_an_older_copy_is_served_anew(
    start_server: StartServer, nats_cli: NatsCli, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    cli = nats_cli.at(server.url)
    async with account_on(server.url) as account:
        await account.create("S", **STORED)
    await cli.run("stream", "backup", "S", str(tmp_path / "backup"))
    async with served_on(server.url) as served:
        await goes_on(served)
        await served.call("STREAM.DELETE")
        await cli.run("stream", "restore", str(tmp_path / "backup"))
        await expect_fires(served)


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_stream_that_went_back_and_was_written_to_beyond_what_was_read_is_served_anew(
    tmp_path: Path, version: str
) -> None:
    """Its last sequence is no lower then; what shows it is another message under the sequence of the last one read."""
    store, copy = tmp_path / "store", tmp_path / "copy"
    async with machine_in(store) as machine, proxy_to(await machine.install(version)) as proxy:
        async with account_on(machine.url) as account:
            await account.create("S", **STORED)
        async with sidecar_on(proxy.url) as running:
            await running.ready("S")
            await out_of_contact(proxy, machine)
            shutil.copytree(store, copy)
            await machine.install(version)
            proxy.accept()
            await running.ready("S", times=2)
            async with account_on(machine.url) as account:
                await goes_on(FlaggedStream(account, "S"))
            await out_of_contact(proxy, machine)
            read = running.sidecar.served["S"].engine.last_read
            shutil.rmtree(store)
            shutil.copytree(copy, store)
            await machine.install(version)
            async with account_on(machine.url) as account:
                stream = FlaggedStream(account, "S")
                await stream.schedule("unread", f"@at {in_seconds(0.1)}", b"anew", target="unread.anew")
                while await last_sequence(account) < read + BEFORE:
                    await stream.publish("after")
                there = await account.api.message("S", seq=read)
                assert there is not None
                assert there.subject == "S.after"
                proxy.accept()
                told = await running.told_of("stream_rolled_back", stream="S")
                await stream.wait_for("unread.anew")
                await expect_fires(stream)
                assert await stream.messages("ticks") == []
    assert f"another message than the one that was read has sequence {read}" in told["reason"]


async def out_of_contact(proxy: Proxy, machine: Machine) -> None:
    """Stop the server, and let the sidecar find none before the proxy accepts."""
    proxy.refuse()
    proxy.cut()
    await machine.stop()
