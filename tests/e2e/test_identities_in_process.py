"""The identities that a stream with replicas keeps in process: what that proves, and what becomes of the fires."""

import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nats_scheduler.engine.fire import AwaitProposals, Fire, LookForFire
from nats_scheduler.engine.inputs import FireLookedFor, ProposalsApplied, PublishConcluded, Refused, Stored, Unknown
from nats_scheduler.message.headers import EMPTY_BLOCK, MSG_ID, header_value, with_header
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.contract.sides import PortSide, server_side
from tests.e2e.test_clusters import REPLICATED, stream_leader
from tests.harness.account import CLOCK, account_on, sidecar_with
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
async def test_a_refused_message_keeps_its_identity_in_process(version: str, tmp_path: Path) -> None:
    async with running_cluster(version, tmp_path) as cluster, contact_with(cluster) as (side, _others):
        block = EMPTY_BLOCK
        for name, value in REFUSED_ANYWHERE.items():
            block = with_header(block, name.encode(), value.encode())
        fire = side.fire(block)
        assert isinstance(await side.outcome(fire), Refused)
        for number in range(1, 3):
            outcome = await side.outcome(fire)
            assert isinstance(outcome, Unknown)
            assert outcome.in_process
            side.contact.ask(AwaitProposals(fire))
            await side.hears(ProposalsApplied, number)
        assert await side.stored() == []


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
async def test_what_another_stream_has_accepted_is_found_although_it_is_not_applied(
    version: str, tmp_path: Path
) -> None:
    async with running_cluster(version, tmp_path) as cluster, contact_with(cluster) as (side, others):
        sent = side.fire(with_header(EMPTY_BLOCK, b"Nats-Scheduler", side.subject("schedule").encode()))
        identity = fire_identity(sent.schedule, 1, 1).encode()
        block = with_header(sent.block.replace(header_value(sent.block, MSG_ID) or b"", identity), b"X-Of", b"a test")
        fire = Fire(sent.schedule, 1, 1, None, sent.target, block, b"", is_to_other_stream=True)
        look = LookForFire(fire, CLOCK.now(), 1, was_sent=True)
        side.contact.ask(look)  # from now on it is known which stream has the target
        await side.hears(FireLookedFor)
        try:
            await pause(others)
            side.contact.publish([fire])
            side.contact.ask(look)
            for _ in range(3):
                assert await side.stored() == []  # requests and their answers: time enough for a look
        finally:
            send(signal.SIGCONT, others)
        [_before, found] = await side.hears(FireLookedFor, 2)
        assert [message.sequence for message in found.found] == [1]


@each_version
async def test_a_client_that_blocks_the_identity_of_a_fire_delays_it_by_about_a_second(
    version: str, tmp_path: Path
) -> None:
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
            assert due <= fire.stored_at < due + 60 * SECOND  # half of the duplicate window; the truth is printed
            print(f"{version}: stored {(fire.stored_at - due) / SECOND:.3f} s after its time")
            assert blocked.encode() not in fire.block
