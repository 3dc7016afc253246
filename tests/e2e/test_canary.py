"""A sidecar tests itself by a schedule of its own, on every server, and disturbs nobody with it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from nats_scheduler.observe.canary import GRACE_NS
from nats_scheduler.runtime.canary import CANARY_STREAM, CANARY_SUBJECTS
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Account, Running, account_on, in_seconds, sidecar_on, sidecar_with
from tests.harness.cluster import Cluster, running_cluster
from tests.harness.permissions import accounts, permissions_of, url_of
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import ALL_VERSIONS, V2_11, V2_15, reload_config
from tests.harness.waiting import eventually
from tests.observe.scrapes import address_of, answers, scrape, shows

FLAG = {"metadata": {"nats-scheduler.allow_msg_schedules": "true"}}
RESUME_SECONDS = 3
"""*Live* promises it."""


@asynccontextmanager
async def self_tested(url: str, folder: Path, name: str = "sidecar") -> AsyncIterator[tuple[str, ChildProcess]]:
    """Run a sidecar that tests itself each second, and yield the address of its pages."""
    flags = ("--metrics-port", "0", "--canary-interval", "1s")
    with sidecar("run", "-s", url, *flags, folder=folder, name=name) as process:
        yield await address_of(process), process


async def exists(account: Account) -> bool:
    return await account.api.stream(CANARY_STREAM) is not None


@pytest.mark.parametrize("version", ALL_VERSIONS)
async def test_it_fires_and_is_seen_nowhere_but_in_its_own_metrics(
    start_server: StartServer, tmp_path: Path, version: str
) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        await account.create("S", **FLAG)
        async with self_tested(server.url, tmp_path) as (url, process):
            found = await shows(url, "canary_fires_total", 3)
            await answers(url, 200, "ok")
            assert found.value("canary_lateness_seconds_count") == found.value("canary_fires_total")
            assert found.value("canary_missed_total") == 0
            assert (found.value("canary_lateness_seconds_sum") or 0) < 60
            named = {dict(labels).get("stream") for series in found.samples.values() for labels in series}
            assert named == {None, "S"}
            listed = await account.connection.request_json("nats_scheduler.v1.streams.list", {})
            assert [one["stream"] for one in listed["streams"]] == ["S"]
            instances = await account.connection.request_json("nats_scheduler.v1.instances.list", {})
            assert CANARY_STREAM not in str(instances)
            for command in ("ls", "doctor", "instances", "failures"):
                with sidecar(command, "-s", server.url, folder=tmp_path, name=command) as asked:
                    await asked.wait_for_exit()
                assert "canary" not in asked.stdout, asked.stdout
            kept = await account.api.stream("nats_scheduler_failures")
            assert kept["state"]["messages"] == 0
            assert "canary" not in process.stderr
            assert await process.terminate() == 0
        assert not await exists(account)
        assert "canary" not in process.stderr


async def test_without_the_setting_there_is_none(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S")
        await running.ready("S")
        await eventually(lambda: running.sidecar.not_ready() == [], within_seconds=WAIT_SECONDS, describe="it is ready")
        assert not await exists(account)


@pytest.mark.parametrize(("version", "mode"), [(V2_11, "2.11"), (V2_15, "native")])
async def test_a_canary_that_cannot_fire_makes_the_instance_not_ready_until_it_can(
    start_server: StartServer, tmp_path: Path, version: str, mode: str
) -> None:
    able = permissions_of(mode)
    unable = [one for one in able if one.subject != CANARY_SUBJECTS]
    server = await start_server(version, config=accounts([unable]))
    async with self_tested(url_of(server.url, "sidecar-0"), tmp_path) as (url, process):
        said = await answers(url, 503, "the canary has not fired yet: ")
        assert "nats_scheduler.canary.due" in said
        await process.wait_for_line("canary_failed")
        reload_config(server, accounts([able]))
        await answers(url, 200)
        await shows(url, "canary_fires_total", 2)
        reload_config(server, accounts([unable]))
        await answers(url, 503, "s ago for the last time, and is due every 1s: ")
        found = await shows(url, "canary_missed_total", 2)
        assert found.value("connected") == 1
        reload_config(server, accounts([able]))
        await answers(url, 200)
        missed = (await scrape(url)).value("canary_missed_total") or 0
        assert missed >= 2


async def test_a_server_that_stands_still_makes_it_missed_and_it_fires_again_after_that(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with self_tested(server.url, tmp_path) as (url, _process):
        await shows(url, "canary_fires_total", 1)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            await answers(url, 503)
            before = await shows(url, "canary_missed_total", 1)
            await shows(url, "canary_missed_total", (before.value("canary_missed_total") or 0) + 2)
        finally:
            os.kill(server.pid, signal.SIGCONT)
        await answers(url, 200)
        await shows(url, "canary_fires_total", (before.value("canary_fires_total") or 0) + 2)


async def test_a_stream_that_was_deleted_is_created_again(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, self_tested(server.url, tmp_path) as (url, _process):
        found = await shows(url, "canary_fires_total", 1)
        await account.api.call(f"STREAM.DELETE.{CANARY_STREAM}")
        await shows(url, "canary_fires_total", (found.value("canary_fires_total") or 0) + 2)
        await answers(url, 200)
        await server.restart()  # the stream is in memory
        found = await shows(url, "connections_total", 2)
        await shows(url, "canary_fires_total", (found.value("canary_fires_total") or 0) + 2)
        await answers(url, 200)


async def test_an_account_without_memory_has_its_canary_on_disk(start_server: StartServer) -> None:
    limits = "jetstream: { max_mem: 0, max_file: 100M }"
    server = await start_server(V2_11, config=f"accounts {{ A {{ {limits}, users: [{{ user: a, password: a }}] }} }}")
    url = server.url.replace("//", "//a:a@")
    async with account_on(url) as account, sidecar_on(url, canary_interval=SECOND) as running:
        await fired(running, 2)
        assert (await account.api.stream(CANARY_STREAM))["config"]["storage"] == "file"


async def fired(running: Running, least: int) -> None:
    """Wait until the canary has fired so often."""
    value = running.metrics.registry.get_sample_value
    await eventually(
        lambda: (value("nats_scheduler_canary_fires_total") or 0) >= least,
        within_seconds=WAIT_SECONDS,
        describe=lambda: f"{least} fires of the canary: {value('nats_scheduler_canary_fires_total')}",
    )


async def test_each_instance_tests_itself_and_the_last_one_removes_the_stream(
    start_server: StartServer, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        heard: list[str] = []
        account.connection.subscribe(CANARY_SUBJECTS, lambda subject, _r, _h, _b: heard.append(subject.decode()))
        await account.create("S", **FLAG)
        async with (
            self_tested(server.url, tmp_path, "one") as (first, one),
            self_tested(server.url, tmp_path, "two") as (second, two),
            self_tested(server.url, tmp_path, "three") as (third, three),
        ):
            for url in (first, second, third):
                await shows(url, "instances_alive", 3, 3)
                await shows(url, "canary_fires_total", 3)
            due = {subject.rpartition(".")[2] for subject in heard}
            assert len(due) == 3
            three.kill()
            for url in (first, second):
                await shows(url, "instances_alive", 2, 2)
                found = await shows(url, "canary_fires_total", 4)
                assert found.value("canary_missed_total") == 0
            assert await two.terminate() == 0
            assert await exists(account)
            found = await shows(first, "instances_alive", 1, 1)
            await shows(first, "canary_fires_total", (found.value("canary_fires_total") or 0) + 2)
            await answers(first, 200)
            assert await one.terminate() == 0
        assert not await exists(account)


async def test_another_instance_does_not_fire_a_canary(start_server: StartServer) -> None:
    """It is rejected there: an instance that cannot fire must not look as if it could."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url, canary_interval=SECOND) as running:
        await fired(running, 1)
        header = {"X-Nats-Schedule": f"@at {in_seconds(0)}", "X-Nats-Schedule-Target": "nats_scheduler.canary.fired.x"}
        await account.publish("nats_scheduler.canary.due.x", header)
        value = running.metrics.registry.get_sample_value
        await fired(running, int(value("nats_scheduler_canary_fires_total") or 0) + 2)
        assert await account.messages(CANARY_STREAM, "nats_scheduler.canary.fired.x") == []


async def test_a_node_that_dies_gives_no_false_alarm(tmp_path: Path) -> None:
    """It may be not ready for no longer than *Live* and an interval allow."""
    async with running_cluster(V2_11, tmp_path) as cluster:
        connection = ConnectionSettings(servers=tuple(cluster.urls))
        async with sidecar_with(SidecarSettings(connection=connection, canary_interval=SECOND)) as running:
            await fired(running, 2)
            for which in ("leader", "connected"):
                longest = await longest_alarm(cluster, running, which)
                assert longest <= RESUME_SECONDS + 1, which


async def longest_alarm(cluster: Cluster, running: Running, which: str) -> float:
    """Kill a node until it is revived; return how long (s) the canary's absence made the sidecar not ready."""
    loop = asyncio.get_running_loop()
    value = running.metrics.registry.get_sample_value
    before = value("nats_scheduler_canary_fires_total") or 0
    connection = running.sidecar.connection
    assert connection is not None
    async with account_on(cluster.nodes[0].url) as account:
        info = await account.api.stream(CANARY_STREAM)
    assert info["config"]["num_replicas"] == 3
    name = info["cluster"]["leader"] if which == "leader" else connection.server.name
    node = next(node for node in cluster.nodes if node.name == name)
    alarms: list[float] = []

    def has_fired() -> bool:
        if any("canary fired" in reason for reason in running.sidecar.not_ready()):
            alarms.append(loop.time())
        return (value("nats_scheduler_canary_fires_total") or 0) >= before + 4

    await node.kill()
    await eventually(has_fired, within_seconds=WAIT_SECONDS, describe="the canary fires again")
    await cluster.revive(node)
    assert GRACE_NS > RESUME_SECONDS * SECOND
    return max(alarms) - min(alarms) if alarms else 0.0
