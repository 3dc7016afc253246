"""A sidecar tests itself by a schedule of its own, on every server, and disturbs nobody with it."""

import asyncio
from typing import Any

import pytest
from click.testing import CliRunner

from nats_scheduler.cli.main import main
from nats_scheduler.control.transport import request_json
from nats_scheduler.runtime.canary import CANARY_STREAM, CANARY_SUBJECTS
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FLAG, served_on
from tests.harness.permissions import accounts, permissions_of, url_of, without
from tests.harness.servers import V2_11, V2_15, reload_config
from tests.harness.waiting import eventually


async def exists(account: Account) -> bool:
    return await account.api.stream(CANARY_STREAM) is not None


async def fires_again(running: Running, times: int = 2) -> None:
    """Wait until the canary has fired so many times more, and the sidecar is ready."""
    before = running.gauge("canary_fires_total") or 0
    await running.shows("canary_fires_total", before + times)
    await running.healthy()


@pytest.mark.parametrize("version", [V2_11, V2_15])
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
async def test_an_instance_whose_canary_cannot_fire_is_not_ready(
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


async def test_the_last_instance_removes_the_stream_of_the_canaries(start_server: StartServer) -> None:
    """A canary of another is rejected: an instance that cannot fire must not look as if it could."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        heard: list[str] = []
        account.connection.subscribe(CANARY_SUBJECTS, lambda subject, _r, _h, _b: heard.append(subject.decode()))
        await account.create("S", **FLAG)
        async with sidecar_on(server.url, canary_interval=SECOND) as one:
            async with sidecar_on(server.url, canary_interval=SECOND) as two:
                for running in (one, two):
                    await running.shows("instances_alive", 2, 2)
                    await fires_again(running)
                await eventually(
                    lambda: len({subject.rpartition(".")[2] for subject in heard}) == 2, describe="two canaries"
                )
            assert await exists(account)
            foreign = "nats_scheduler.canary.fired.x"
            headers = {"X-Nats-Schedule": f"@at {in_seconds(0)}", "X-Nats-Schedule-Target": foreign}
            await account.publish("nats_scheduler.canary.due.x", headers)
            await one.shows("instances_alive", 1, 1)
            await fires_again(one)
            assert await account.messages(CANARY_STREAM, foreign) == []
        assert not await exists(account)


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
