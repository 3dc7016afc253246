"""A sidecar tests itself by a schedule of its own, on every server, and disturbs nobody with it."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from nats_scheduler.cli.main import main
from nats_scheduler.control.transport import request_json
from nats_scheduler.observe.canary_record import GRACE_NS
from nats_scheduler.runtime.canary import CANARY_STREAM, CANARY_SUBJECTS
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection_settings import ConnectionSettings
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on, sidecar_with
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.flagged import FLAG, served_on
from tests.harness.permissions import accounts, permissions_of, url_of, without
from tests.harness.processes import sidecar
from tests.harness.servers import ALL_VERSIONS, V2_11, V2_15, reload_config
from tests.harness.waiting import eventually

RESUME_SECONDS = 3
"""*Live* promises it."""


async def exists(account: Account) -> bool:
    return await account.api.stream(CANARY_STREAM) is not None


async def fires_again(running: Running, times: int = 2) -> None:
    """Wait until the canary has fired so many times more, and the sidecar is ready."""
    before = running.gauge("canary_fires_total") or 0
    await running.shows("canary_fires_total", before + times)
    await running.healthy()


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_it_fires_and_is_seen_nowhere_but_in_its_own_metrics(
    start_server: StartServer, version: str, said: list[dict[str, Any]]
) -> None:
    """And without the setting there is none."""
    server = await start_server(version)
    async with served_on(server.url, config=FLAG) as served:
        account, running = served.account, served.sidecar
        assert not await exists(account)
    async with account_on(server.url) as account, sidecar_on(server.url, canary_interval=SECOND) as running:
        await fires_again(running, 3)
        assert running.gauge("canary_lateness_seconds_count") == running.gauge("canary_fires_total")
        assert running.gauge("canary_missed_total") == 0
        assert (running.gauge("canary_lateness_seconds_sum") or 0) < 60
        samples = [sample for family in running.metrics.registry.collect() for sample in family.samples]
        assert {sample.labels.get("stream") for sample in samples} == {None, "S"}
        listed = await request_json(account.connection, "nats_scheduler.v1.streams.list", {})
        assert [one["stream"] for one in listed["streams"]] == ["S"]
        instances = await request_json(account.connection, "nats_scheduler.v1.instances.list", {})
        assert CANARY_STREAM not in str(instances)
        for command in ("ls", "doctor", "instances", "failures"):
            words = [command, "-s", server.url, "--no-context"]
            asked = await asyncio.to_thread(CliRunner().invoke, main, words)
            assert asked.output
            assert "canary" not in asked.output
        kept = await account.api.stream("nats_scheduler_failures")
        assert kept["state"]["messages"] == 0
    async with account_on(server.url) as account:
        assert not await exists(account)
    assert "canary" not in str([line for line in said if line["log_level"] != "debug"])


@pytest.mark.parametrize(("version", "mode"), [(V2_11, "2.11"), (V2_15, "native")])
async def test_a_canary_that_cannot_fire_makes_the_instance_not_ready_until_it_can(
    start_server: StartServer, version: str, mode: str
) -> None:
    able = permissions_of(mode)
    unable = without(able, CANARY_SUBJECTS)
    server = await start_server(version, config=accounts([unable]))
    async with sidecar_on(url_of(server.url, "sidecar-0"), canary_interval=SECOND) as running:
        await running.not_healthy("the canary has not fired yet: ")
        assert any("nats_scheduler.canary.due" in reason for reason in running.sidecar.not_ready())
        await running.told_of("canary_failed")
        reload_config(server, accounts([able]))
        await fires_again(running)
        reload_config(server, accounts([unable]))
        await running.not_healthy("s ago for the last time, and is due every 1s: ")
        await running.shows("canary_missed_total", 2)
        assert running.gauge("connected") == 1
        reload_config(server, accounts([able]))
        await fires_again(running)
        assert (running.gauge("canary_missed_total") or 0) >= 2


async def test_it_fires_again_after_its_stream_is_deleted_or_the_server_was_away(start_server: StartServer) -> None:
    """While the server stands still it is missed; the stream is in memory, and so is gone after a restart."""
    server = await start_server(V2_11)
    async with sidecar_on(server.url, canary_interval=SECOND) as running:
        async with account_on(server.url) as account:
            await fires_again(running, 1)
            await account.api.call(f"STREAM.DELETE.{CANARY_STREAM}")
            await fires_again(running)
        await server.restart()
        await running.shows("connections_total", 2)
        await fires_again(running)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            missed = running.gauge("canary_missed_total") or 0
            await running.shows("canary_missed_total", missed + 2)
            assert running.sidecar.not_ready()
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await fires_again(running)


async def test_an_account_without_memory_has_its_canary_on_disk(start_server: StartServer) -> None:
    limits = "jetstream: { max_mem: 0, max_file: 100M }"
    server = await start_server(V2_11, config=f"accounts {{ A {{ {limits}, users: [{{ user: a, password: a }}] }} }}")
    url = server.url.replace("//", "//a:a@")
    async with account_on(url) as account, sidecar_on(url, canary_interval=SECOND) as running:
        await fires_again(running)
        assert (await account.api.stream(CANARY_STREAM))["config"]["storage"] == "file"


async def test_each_instance_tests_itself_and_the_last_one_removes_the_stream(
    start_server: StartServer, tmp_path: Path
) -> None:
    """A canary of another is rejected: an instance that cannot fire must not look as if it could."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        heard: list[str] = []
        account.connection.subscribe(CANARY_SUBJECTS, lambda subject, _r, _h, _b: heard.append(subject.decode()))
        await account.create("S", **FLAG)
        async with sidecar_on(server.url, canary_interval=SECOND) as one:
            async with sidecar_on(server.url, canary_interval=SECOND) as two:
                with sidecar("run", "-s", server.url, "--canary-interval", "1s", folder=tmp_path) as three:
                    for running in (one, two):
                        await running.shows("instances_alive", 3, 3)
                        await fires_again(running)
                    await eventually(
                        lambda: len({subject.rpartition(".")[2] for subject in heard}) == 3, describe="three canaries"
                    )
                    three.kill()
                for running in (one, two):
                    await running.shows("instances_alive", 2, 2)
                    await fires_again(running)
                    assert running.gauge("canary_missed_total") == 0
            assert await exists(account)
            foreign = "nats_scheduler.canary.fired.x"
            headers = {"X-Nats-Schedule": f"@at {in_seconds(0)}", "X-Nats-Schedule-Target": foreign}
            await account.publish("nats_scheduler.canary.due.x", headers)
            await one.shows("instances_alive", 1, 1)
            await fires_again(one)
            assert await account.messages(CANARY_STREAM, foreign) == []
        assert not await exists(account)


@pytest.mark.deep
async def test_while_a_node_is_dead_the_canary_fires_and_the_instance_is_ready(tmp_path: Path) -> None:
    """Its absence is reported later than *Live* lets it last."""
    assert GRACE_NS > RESUME_SECONDS * SECOND
    async with running_cluster(V2_11, tmp_path) as cluster:
        connection = ConnectionSettings(servers=tuple(cluster.urls))
        async with sidecar_with(SidecarSettings(connection=connection, canary_interval=SECOND)) as running:
            await fires_again(running)
            for which in ("leader", "connected"):
                before = running.gauge("canary_fires_total") or 0
                node = await node_of(cluster, running, which)
                await node.kill()
                await running.shows("canary_fires_total", before + 4)
                await running.healthy()
                await cluster.revive(node)


async def node_of(cluster: Cluster, running: Running, which: str) -> EmbeddedServer:
    """Return the leader of the canary's stream, or the node to which the sidecar is connected."""
    connection = running.sidecar.connection
    assert connection is not None
    async with account_on(cluster.nodes[0].url) as account:
        info = await account.api.stream(CANARY_STREAM)
    assert info["config"]["num_replicas"] == 3
    name = info["cluster"]["leader"] if which == "leader" else connection.server.name
    return next(node for node in cluster.nodes if node.name == name)


async def test_a_canary_that_only_a_stranger_acknowledges_is_none(start_server: StartServer) -> None:
    """Somebody answers each canary before its stream, which has no room for it."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url, canary_interval=SECOND) as running:
        await fires_again(running)

        def answer(_subject: bytes, reply: bytes, _block: bytes, _body: bytes) -> None:
            account.connection.publish(reply.decode(), b"thanks")

        account.connection.subscribe("nats_scheduler.canary.due.>", answer)
        await fires_again(running)
        assert running.told("canary_failed") == [], "the answer of the stream comes too"
        config = (await account.api.stream(CANARY_STREAM))["config"]
        await account.api.update_stream({**config, "max_msg_size": 10})
        await running.not_healthy("canary")
        told = await eventually(lambda: running.told("canary_failed"), describe="why it does not fire")
        assert "maximum allowed" in told[0]["reason"]
