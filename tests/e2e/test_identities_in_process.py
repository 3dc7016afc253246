"""The identities that a stream with replicas keeps in process: what that proves, and what becomes of the fires."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nats_scheduler.engine.fire import AwaitProposals
from nats_scheduler.engine.inputs import ProposalsApplied, PublishConcluded, Stored, Unknown
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.contract.sides import PortSide, server_side
from tests.e2e.test_clusters import REPLICATED, stream_leader
from tests.harness.account import account_on, sidecar_with
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.flagged import FlaggedStream, at
from tests.harness.leads import in_time
from tests.harness.servers import EMULATED_VERSIONS
from tests.harness.waiting import eventually

WORK_QUEUE = {**REPLICATED, "retention": "workqueue"}
REFUSED_ANYWHERE = {"Nats-Expected-Last-Msg-Id": "of no message"}
"""A condition that every version refuses after it has recorded the identity."""

each_version = pytest.mark.parametrize("version", EMULATED_VERSIONS)


@asynccontextmanager
async def contact_with(cluster: Cluster) -> AsyncIterator[tuple[PortSide, list[EmbeddedServer]]]:
    """Make contact with a stream through its leader; gives the contact and the other nodes."""
    async with account_on(cluster.nodes[0].url) as account:
        await account.create("S", **WORK_QUEUE)
    leader = await stream_leader(cluster)
    async with account_on(leader.url) as account:
        config = (await account.api.stream("S"))["config"]
    async with server_side(leader.url, "S", config) as side:
        yield side, [node for node in cluster.nodes if node is not leader]


def send(signal_number: signal.Signals, nodes: Sequence[EmbeddedServer]) -> None:
    """Send a signal to nodes."""
    for node in nodes:
        assert node.pid is not None
        os.kill(node.pid, signal_number)


async def pause(nodes: Sequence[EmbeddedServer]) -> None:
    """Stop nodes, and wait until all their threads are stopped."""
    send(signal.SIGSTOP, nodes)

    def stand_still() -> bool:
        threads = [task for node in nodes for task in Path(f"/proc/{node.pid}/task").iterdir()]
        return all(") T " in (task / "stat").read_text() for task in threads)

    await eventually(stand_still, describe="nodes that stand still")


@each_version
async def test_what_was_accepted_before_is_applied_before(version: str, tmp_path: Path) -> None:
    async with running_cluster(version, tmp_path) as cluster, contact_with(cluster) as (side, others):
        fire = side.fire()
        try:
            await pause(others)
            side.contact.publish([fire, fire])  # the second one is answered while the replicas cannot agree
            [in_process] = await side.hears(PublishConcluded)
            assert isinstance(in_process.outcome, Unknown)
            assert in_process.outcome.in_process
            side.contact.ask(AwaitProposals(fire))
            again = await side.outcome(fire)
            assert isinstance(again, Unknown)
            assert side.received(ProposalsApplied) == []
        finally:
            send(signal.SIGCONT, others)
        await side.hears(ProposalsApplied)
        side.contact.publish([fire])
        concluded = await side.hears(PublishConcluded, 4)
        outcomes = [one.outcome for one in concluded[2:]]  # a server does not keep their order
        assert sorted(outcomes, key=str) == sorted([Stored(1), Stored(1, duplicate=True)], key=str)


@each_version
async def test_a_blocked_identity_of_a_fire_only_delays_it(version: str, tmp_path: Path) -> None:
    async with running_cluster(version, tmp_path) as cluster, account_on(cluster.nodes[0].url) as account:
        await account.create("S", **WORK_QUEUE)
        settings = SidecarSettings(connection=ConnectionSettings(servers=tuple(cluster.urls)))
        async with sidecar_with(settings) as running:
            await running.ready("S")
            stream = FlaggedStream(account, "S")

            async def block_identity(due: int) -> str:
                sequence = await stream.schedule(f"s.{due}", at(due), target=f"out.{due}")
                blocked = fire_identity(stream.subject(f"s.{due}"), sequence, due)
                with pytest.raises(AssertionError, match="wrong last msg ID"):
                    await stream.publish("elsewhere", {"Nats-Msg-Id": blocked, **REFUSED_ANYWHERE})
                return blocked

            due, blocked = await in_time(block_identity, 3.0)
            [fire] = await stream.wait_for(f"out.{due}")
            assert fire.stored_at >= due
            assert blocked.encode() not in fire.block
