"""A fire that our user may not publish is reported as what it is, blocks nobody, and goes out once it may."""

from dataclasses import replace

import pytest

from nats_scheduler.control.errors import ForbiddenError
from nats_scheduler.engine.events import FireRefused, FireUnknown
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.rejection import NOT_PERMITTED
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, sidecar_on
from tests.harness.flagged import FLAG, at
from tests.harness.permissions import Permission, accounts, limited_to, permissions_of, url_of, without
from tests.harness.servers import V2_11, reload_config

COUNT = 30


async def test_denied_fires_block_nobody_and_go_out_once_they_may(start_server: StartServer) -> None:
    """And a denied request fails at once, and its connection goes on."""
    server = await start_server(V2_11, config=accounts([limited_to(V2_11, "orders.out")]))
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
        reload_config(server, accounts([limited_to(V2_11, "orders.>")]))
        fired = await account.wait_for("ORDERS", "orders.denied.*", COUNT)
    assert len({message.subject for message in fired}) == len(fired) == COUNT


def held_to(permissions: list[Permission], subject: str, *streams: str) -> list[Permission]:
    """Return permissions where the one for `<subject>.*` is for these streams only."""
    everywhere = f"{subject}.*"
    one = Permission("publish", everywhere, ())
    return [*without(permissions, everywhere), *(replace(one, subject=f"{subject}.{name}") for name in streams)]


async def test_a_user_held_to_single_streams_serves_them(start_server: StartServer) -> None:
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
