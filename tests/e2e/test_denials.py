"""A fire that our user may not publish is reported as what it is, blocks nobody, and goes out once it may."""

from dataclasses import replace

import pytest

from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.engine.events import FireRefused, FireUnknown
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.rejection import NOT_PERMITTED
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.connection_settings import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, sidecar_on, started_sidecar
from tests.harness.flagged import FLAG, at
from tests.harness.permissions import Permission, accounts, limited_to, permissions_of, url_of, without
from tests.harness.servers import EMULATED_VERSIONS, V2_11, reload_config
from tests.harness.waiting import eventually

COUNT = 30


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_denied_fires_are_refused_block_nobody_and_go_out_once_they_may(
    start_server: StartServer, version: str
) -> None:
    """And a denied request fails at once, and its connection goes on."""
    server = await start_server(version, config=accounts([limited_to(version, "orders.out")]))
    limited = url_of(server.url, "sidecar-0")
    async with account_on(limited) as user:
        with pytest.raises(ForbiddenError, match=r"STREAM\.DELETE\.ORDERS"):
            await user.api.call("STREAM.DELETE.ORDERS")
        assert await user.api.info()
    async with account_on(url_of(server.url, "admin-0")) as account, sidecar_on(limited) as running:
        await account.create("ORDERS", subjects=["orders.>"], storage="file")
        await running.ready("ORDERS")
        due = CLOCK.now() + SECOND
        for number in range(COUNT):
            for target in (f"orders.denied.{number}", "orders.out"):
                headers = {"Nats-Schedule": at(due), "Nats-Schedule-Target": target}
                await account.publish(f"orders.s.{target}.{number}", headers)
        assert len(await account.wait_for("ORDERS", "orders.out", COUNT)) == COUNT
        refused = await running.reported("ORDERS", FireRefused, COUNT)
        expected = {(f"orders.denied.{number}", NOT_PERMITTED) for number in range(COUNT)}
        assert {(event.fire.target, event.code) for event in refused} == expected
        assert len(refused) == COUNT
        assert running.of("ORDERS", FireUnknown) == []
        await running.told_of("permission_denied", operation="publish", subject="orders.denied.7")
        assert await account.messages("ORDERS", "orders.denied.*") == []
        reload_config(server, accounts([limited_to(version, "orders.>")]))
        fired = await account.wait_for("ORDERS", "orders.denied.*", COUNT)
    assert len({message.subject for message in fired}) == len(fired) == COUNT


def held_to(permissions: list[Permission], subject: str, *streams: str) -> list[Permission]:
    """Return permissions where the one for `<subject>.*` is for these streams only."""
    everywhere = f"{subject}.*"
    one = Permission("publish", everywhere, ())
    return [*without(permissions, everywhere), *(replace(one, subject=f"{subject}.{name}") for name in streams)]


async def test_a_user_held_to_single_streams_serves_them_and_tells_once_of_others(start_server: StartServer) -> None:
    held = permissions_of("2.11")
    for kind in ("INFO", "UPDATE", "PURGE", "MSG.GET", "MSG.DELETE"):
        held = held_to(held, f"$JS.API.STREAM.{kind}", "ORDERS", "KV_nats_scheduler")
    server = await start_server(V2_11, config=accounts([held]))
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create("OTHER")
        async with sidecar_on(url_of(server.url, "sidecar-0")) as running:
            await account.create("ORDERS", subjects=["orders.>"])
            await running.ready("ORDERS")
            due = at(CLOCK.now() + 5 * SECOND // 2)
            await account.publish("orders.s", {"Nats-Schedule": due, "Nats-Schedule-Target": "orders.out"})
            await account.wait_for("ORDERS", "orders.out")
            assert [told["stream"] for told in running.told("stream_read_failed")] == ["OTHER"]


async def test_a_stream_is_read_although_no_heartbeat_can_be_written(start_server: StartServer) -> None:
    """Others are waited for only for a moment: without heartbeats nobody knows who they are."""
    held = without(permissions_of("portable"), "$KV.nats_scheduler.>")
    server = await start_server(V2_11, config=accounts([held]))
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create("ORDERS", subjects=["orders.>"], allow_msg_schedules=False)
        async with sidecar_on(url_of(server.url, "sidecar-0"), portable_streams=("ORDERS",)) as running:
            await running.ready("ORDERS")
            await running.not_healthy("no instance owns stream ORDERS")


@pytest.mark.parametrize("kind", ["CONSUMER.CREATE", "CONSUMER.MSG.NEXT"])
async def test_what_lacks_for_consumers_is_told_once_however_often_one_is_tried(
    start_server: StartServer, kind: str
) -> None:
    granted = [each for each in permissions_of("2.11") if f".{kind}." not in each.subject]
    server = await start_server(V2_11, config=accounts([granted]))
    limited = ConnectionSettings(servers=(url_of(server.url, "sidecar-0"),))
    async with account_on(url_of(server.url, "admin-0")) as account, started_sidecar(limited) as running:
        lacking = {f"$JS.API.{kind}.KV_nats_scheduler.*", f"$JS.API.{kind}.ORDERS.*"}
        await running.told_of("permission_denied", operation="publish")
        await account.create("ORDERS", subjects=["orders.>"])
        for subject in lacking:
            await running.told_of("permission_denied", operation="publish", subject=subject)
        if kind == "CONSUMER.MSG.NEXT":  # a consumer is made, and nothing is received from it
            await eventually(lambda: len(running.told("heartbeats_not_received")) >= 2, describe="it tries on")
        else:
            await running.told_of("contact_lost", stream="ORDERS")
        told = [fields["subject"] for fields in running.told("permission_denied")]
        assert sorted(told) == sorted(lacking)
        reload_config(server, accounts([permissions_of("2.11")]))
        await running.ready("ORDERS")
    assert running.told("heartbeats_not_received") == [] or kind != "CONSUMER.CREATE"
    lost = [told for told in running.told("contact_lost") if "stood still" not in told["reason"]]  # as machines do
    assert len(lost) == (kind == "CONSUMER.CREATE")


async def test_a_fire_that_may_not_be_looked_for_is_refused_until_it_may(start_server: StartServer) -> None:
    """It was due before the sidecar began, so that another one may have stored it."""
    may = [*limited_to(V2_11, "orders.out"), Permission("publish", "work.>", ())]
    may_not = held_to(may, "$JS.API.STREAM.MSG.GET", "ORDERS", "KV_nats_scheduler")
    server = await start_server(V2_11, config=accounts([may_not]))
    limited = url_of(server.url, "sidecar-0")
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create("ORDERS", subjects=["orders.>"], **FLAG)
        await account.create("WORK", subjects=["work.>"], allow_msg_schedules=False)
        into_work = {"X-Nats-Schedule-X-Target": "work.run"}
        await account.publish("orders.s", {"X-Nats-Schedule": "@at 2026-01-01T00:00:00Z", **into_work})
        async with sidecar_on(limited, allowed_targets_elsewhere=("ORDERS=work.>",)) as running:
            [refused] = await running.reported("ORDERS", FireRefused)
            assert refused.code == NOT_PERMITTED
            assert "STREAM.MSG.GET.WORK" in refused.description
            await account.publish("orders.soon", {"X-Nats-Schedule": at(CLOCK.now() + SECOND), **into_work})
            await account.wait_for("WORK", "work.run")
            reload_config(server, accounts([may]))
            stored = await account.wait_for("WORK", "work.run", 2)
    assert {header_value(message.block, b"X-Nats-Scheduler") for message in stored} == {b"orders.s", b"orders.soon"}
