"""A cluster breaks under a running sidecar: leaders move, nodes die or stand still, the quorum is lost and returns.

One stream with three replicas lives through all of it; each due time must be stored once, or be collapsed into the
make-up fire of an outage.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.events import FiresMissed
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.harness.account import CLOCK, Running, account_on, in_seconds, sidecar_with
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.flagged import AS_ADOPTED, FlaggedStream, left_out
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

DURABLE = "jetstream { sync_interval: always }\n"
"""Without it a node that is killed forgets what it wrote last, the stream itself included: no fault of ours."""
REPLICATED = {"num_replicas": 3, "storage": "file", **AS_ADOPTED}


async def seen_from(cluster: Cluster) -> list[StoredMessage]:
    """Return the generated messages, as a node that runs has them."""
    for node in cluster.nodes:
        if node.pid is not None:
            try:
                async with account_on(node.url) as account:
                    return await account.messages("S", "S.ticks")
            except SchedulerError:
                continue  # this node has no answer yet; another one may, and else it is asked again
    return []


async def stream_leader(cluster: Cluster) -> EmbeddedServer:
    """Return the node that leads the stream."""

    async def leader() -> EmbeddedServer | None:
        running = next(node for node in cluster.nodes if node.pid is not None)
        try:
            async with account_on(running.url) as account:
                info = await account.api.stream("S")
        except SchedulerError:
            return None
        named = (info.get("cluster") or {}).get("leader")
        return next((node for node in cluster.nodes if node.name == named and node.pid is not None), None)

    return await eventually(leader, describe="a leader of the stream")


async def its_leader_steps_down(cluster: Cluster) -> None:
    """Move the leadership of the stream."""
    async with account_on(cluster.nodes[0].url) as account:
        await account.api.call("STREAM.LEADER.STEPDOWN.S")


async def its_leader_dies(cluster: Cluster) -> None:
    """Kill the node that leads the stream, and bring it back."""
    node = await stream_leader(cluster)
    await cluster.kill(node)
    await cluster.revive(node)


async def our_node_dies(running: Running, cluster: Cluster) -> None:
    """Kill the node that the sidecar is connected to, and bring it back."""
    assert running.sidecar.connection is not None
    name = running.sidecar.connection.server.name
    node = next(node for node in cluster.nodes if node.name == name)
    await cluster.kill(node)
    await eventually(
        lambda: running.sidecar.connection is not None and running.sidecar.connection.server.name != name,
        describe="the sidecar is at another node",
    )
    await cluster.revive(node)


async def the_quorum_is_lost(cluster: Cluster) -> None:
    """Kill two nodes, and bring them back."""
    for node in cluster.nodes[:2]:
        await node.kill()
    for node in cluster.nodes[:2]:
        await node.start()
    await cluster.meta_leader()


async def test_a_replicated_stream_fires_on_through_cluster_faults(tmp_path: Path) -> None:
    async with running_cluster(V2_11, tmp_path, config=DURABLE) as cluster:
        settings = SidecarSettings(connection=ConnectionSettings(servers=tuple(cluster.urls)))
        async with sidecar_with(settings) as running:
            faults: list[Callable[[Cluster], Awaitable[None]]] = [
                its_leader_steps_down,
                its_leader_dies,
                partial(our_node_dies, running),
                the_quorum_is_lost,
            ]
            async with account_on(cluster.nodes[2].url) as account:
                await account.create("S", **REPLICATED)
                await running.ready("S")
                bucket = await account.api.stream("KV_nats_scheduler")
                assert bucket["config"]["num_replicas"] == 3, "the registry outlives a node"
                stream = FlaggedStream(account, "S")
                await stream.schedule_soon("every", "@every 1s", target="ticks")
                await stream.wait_for("ticks", 2)
            for number, fault in enumerate(faults):
                await stream_leader(cluster)
                async with account_on(cluster.nodes[2].url) as account:
                    at = f"@at {in_seconds(1.5)}"
                    await FlaggedStream(account, "S").schedule_soon(f"at.{number}", at, b"%d" % number)
                await fault(cluster)
                healed_at = CLOCK.now()

                async def fired_since(since: int = healed_at) -> StoredMessage | None:
                    return next((one for one in await seen_from(cluster) if one.stored_at > since), None)

                await eventually(fired_since, describe="fires go on")
            async with account_on(cluster.nodes[2].url) as account:
                once = await account.wait_for("S", "S.out", len(faults))
                ticks = await account.messages("S", "S.ticks")
            missed = [event for event in running.of("S", FiresMissed) if event.schedule == "S.every"]
    assert sorted(one.body or b"" for one in once) == [b"%d" % number for number in range(len(faults))]
    assert left_out(ticks, missed) == set()
