"""A cluster breaks under a running sidecar: leaders move, nodes die, the quorum is lost and returns.

One stream with three replicas lives through all of it; each due time must be stored once, or be collapsed into the
make-up fire of an outage.
"""

from collections.abc import Awaitable, Callable
from pathlib import Path

from nats_scheduler.engine.events import FiresMissed
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.harness.account import CLOCK, Running, account_on, in_seconds, sidecar_with
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.flagged import FlaggedStream, fire_time_of
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

RESUMES_SECONDS = 90.0
"""Longest wait for the next fire after a fault: an election takes seconds on a busy machine; the truth is printed."""

DURABLE = "jetstream { sync_interval: always }\n"
"""Without it a node that is killed forgets what it wrote last, the stream itself included: no fault of ours."""

AS_ADOPTED = {"metadata": {METADATA_FLAG: "true"}, "allow_rollup_hdrs": True}
"""With this the sidecar has nothing to update.

A node of a server before 2.12 that restarts after a stream was created and updated, and before its next snapshot of
the assignments, has forgotten the stream; should it come to lead, the whole cluster removes it.
"""

Fault = Callable[[Cluster, Running], Awaitable[None]]


async def seen_from(cluster: Cluster) -> list[StoredMessage]:
    """Return the generated messages, as a node that runs has them."""
    for node in cluster.nodes:
        if node.pid is not None:
            try:
                async with account_on(node.url) as account:
                    return await account.messages("S", "S.ticks")
            except JetStreamError:
                continue  # this node has no answer yet; another one may, and else it is asked again
    return []


async def stream_leader(cluster: Cluster) -> EmbeddedServer:
    """Return the node that leads the stream."""

    async def leader() -> EmbeddedServer | None:
        running = next(node for node in cluster.nodes if node.pid is not None)
        try:
            async with account_on(running.url) as account:
                info = await account.api.stream("S")
        except JetStreamError:
            return None
        named = (info.get("cluster") or {}).get("leader")
        return next((node for node in cluster.nodes if node.name == named and node.pid is not None), None)

    return await eventually(leader, within_seconds=RESUMES_SECONDS, describe="a leader of the stream")


async def its_leader_steps_down(cluster: Cluster, _sidecar: Running) -> None:
    """Move the leadership of the stream."""
    async with account_on(cluster.nodes[0].url) as account:
        await account.api.call("STREAM.LEADER.STEPDOWN.S")


async def its_leader_dies(cluster: Cluster, _sidecar: Running) -> None:
    """Kill the node that leads the stream, and bring it back."""
    node = await stream_leader(cluster)
    await cluster.kill(node)
    await cluster.revive(node)


async def our_node_dies(cluster: Cluster, sidecar: Running) -> None:
    """Kill the node that the sidecar is connected to, and bring it back."""
    assert sidecar.sidecar.connection is not None
    name = sidecar.sidecar.connection.server.name
    node = next(node for node in cluster.nodes if node.name == name)
    await cluster.kill(node)
    await eventually(
        lambda: sidecar.sidecar.connection is not None and sidecar.sidecar.connection.server.name != name,
        within_seconds=RESUMES_SECONDS,
        describe="the sidecar is at another node",
    )
    await cluster.revive(node)


async def the_quorum_is_lost(cluster: Cluster, _sidecar: Running) -> None:
    """Kill two nodes, and bring them back."""
    for node in cluster.nodes[:2]:
        await node.kill()
    for node in cluster.nodes[:2]:
        await node.start()
    await cluster.meta_leader()


FAULTS: tuple[Fault, ...] = (its_leader_steps_down, its_leader_dies, our_node_dies, the_quorum_is_lost)


async def test_a_replicated_stream_fires_on_through_the_faults_of_its_cluster(tmp_path: Path) -> None:
    async with running_cluster(V2_11, tmp_path, config=DURABLE) as cluster:
        settings = SidecarSettings(connection=ConnectionSettings(servers=tuple(cluster.urls)))
        async with sidecar_with(settings) as running:
            async with account_on(cluster.nodes[2].url) as account:
                await account.create("S", num_replicas=3, storage="file", **AS_ADOPTED)
                await running.ready("S")
                bucket = await account.api.stream("KV_nats_scheduler")
                assert bucket["config"]["num_replicas"] == 3, "the registry outlives a node"
                stream = FlaggedStream(account, "S")
                await stream.schedule_soon("every", "@every 1s", target="ticks")
                await stream.wait_for("ticks", 2)
            for number, fault in enumerate(FAULTS):
                await stream_leader(cluster)
                async with account_on(cluster.nodes[2].url) as account:
                    at = f"@at {in_seconds(1.5)}"
                    await FlaggedStream(account, "S").schedule_soon(f"at.{number}", at, b"%d" % number)
                await fault(cluster, running)
                healed_at = CLOCK.now()

                async def fired_since(since: int = healed_at) -> StoredMessage | None:
                    return next((one for one in await seen_from(cluster) if one.stored_at > since), None)

                first = await eventually(fired_since, within_seconds=RESUMES_SECONDS, describe="fires go on")
                after = (first.stored_at - healed_at) / SECOND
                print(f"{fault.__name__}: the next fire {after:.2f} s after the cluster had healed")
            async with account_on(cluster.nodes[2].url) as account:
                once = await account.wait_for("S", "S.out", len(FAULTS))
                ticks = [fire_time_of(one) // SECOND for one in await account.messages("S", "S.ticks")]
            missed = [(m.first // SECOND, m.made_up // SECOND) for m in running.of("S", FiresMissed)]
    assert sorted(one.body or b"" for one in once) == [b"%d" % number for number in range(len(FAULTS))]
    assert len(set(ticks)) == len(ticks), ticks
    collapsed = {second for first, latest in missed for second in range(first, latest)}
    assert set(range(ticks[0], ticks[-1] + 1)) - set(ticks) <= collapsed, (ticks, missed)
