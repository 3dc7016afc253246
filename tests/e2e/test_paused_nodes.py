"""Nodes of a real cluster that are paused for a moment, while schedules are due soon after they are stored.

Which node gets ahead of the leader cannot be forced: `tests/e2e/test_lagging_leaders.py` shows what is done then.
"""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.e2e.test_clusters import AS_ADOPTED, DURABLE, stream_leader
from tests.harness.account import account_on, in_seconds, sidecar_with
from tests.harness.cluster import running_cluster
from tests.harness.flagged import FlaggedStream
from tests.harness.servers import V2_11
from tests.harness.waiting import time_reached

SCHEDULES = 200
PAUSED_SECONDS = 1.2
EVERY_SECONDS = 0.02
"""The time between the storage of two schedules; each is due later than the one before by that much."""


async def pause(node: EmbeddedServer) -> None:
    """Stop a node for a moment."""
    assert node.pid is not None
    os.kill(node.pid, signal.SIGSTOP)
    try:
        await time_reached(asyncio.get_running_loop().time() + PAUSED_SECONDS)
    finally:
        os.kill(node.pid, signal.SIGCONT)


async def test_what_is_due_at_once_fires_once_while_nodes_of_its_cluster_stand_still(tmp_path: Path) -> None:
    async with running_cluster(V2_11, tmp_path, config=DURABLE) as cluster:
        async with account_on(cluster.nodes[0].url) as account:
            await account.create("S", num_replicas=3, storage="file", **AS_ADOPTED)
        leader = await stream_leader(cluster)
        followers = [node for node in cluster.nodes if node is not leader]
        settings = SidecarSettings(connection=ConnectionSettings(servers=(leader.url,)))
        async with sidecar_with(settings) as running, account_on(leader.url) as account:
            await running.ready("S")
            stream = FlaggedStream(account, "S")

            async def publish(number: int) -> None:
                await time_reached(begun + number * EVERY_SECONDS)
                await stream.schedule_soon(f"at.{number}", f"@at {in_seconds(EVERY_SECONDS)}", b"%d" % number)

            begun = asyncio.get_running_loop().time()
            publishing = [asyncio.create_task(publish(number)) for number in range(SCHEDULES)]
            for node in followers:
                await pause(node)
            await asyncio.gather(*map(pause, followers))
            await asyncio.gather(*publishing)
            fires = await stream.wait_for("out", SCHEDULES)
            await stream.canary(0.5)
            fires = await stream.messages("out")
    assert Counter(fire.body for fire in fires) == Counter(b"%d" % number for number in range(SCHEDULES))
