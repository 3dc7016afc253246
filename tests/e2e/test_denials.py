"""A fire that our user may not publish is reported as what it is, blocks nobody, and goes out once it may."""

from dataclasses import replace

import pytest

from nats_scheduler.engine.events import FireRefused, FireUnknown
from nats_scheduler.engine.inputs import NOT_PERMITTED
from nats_scheduler.jetstream.errors import NotPermittedError
from nats_scheduler.message.headers import header_value
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.connection import ConnectionSettings
from tests.conftest import StartServer
from tests.harness.account import CLOCK, WAIT_SECONDS, account_on, sidecar_on, started_sidecar
from tests.harness.permissions import Permission, accounts, permissions_of, url_of
from tests.harness.servers import EMULATED_VERSIONS, V2_11, reload_config
from tests.harness.waiting import eventually

COUNT = 100


def limited_to(version: str, targets: str) -> list[Permission]:
    """Return the list of a version with other targets."""
    mode = version.rpartition(".")[0]
    kept = [each for each in permissions_of(mode) if (each.act, each.subject) != ("publish", "orders.>")]
    return [*kept, Permission("publish", targets, ())]


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_denied_fires_are_refused_block_nobody_and_go_out_once_they_may(
    start_server: StartServer, version: str
) -> None:
    server = await start_server(version, config=accounts([limited_to(version, "orders.out")]))
    limited = url_of(server.url, "sidecar-0")
    async with account_on(url_of(server.url, "admin-0")) as account, sidecar_on(limited) as running:
        await account.create("ORDERS", subjects=["orders.>"], storage="file")
        await running.ready("ORDERS")
        at = f"@at {format_rfc3339(CLOCK.now() + 2 * SECOND)}"
        for number in range(COUNT):
            for target in (f"orders.denied.{number}", "orders.out"):
                headers = {"Nats-Schedule": at, "Nats-Schedule-Target": target}
                await account.publish(f"orders.s.{target}.{number}", headers)
        assert len(await account.wait_for("ORDERS", "orders.out", COUNT)) == COUNT
        await eventually(
            lambda: len(running.of("ORDERS", FireRefused)) == COUNT,
            within_seconds=WAIT_SECONDS,
            describe=lambda: f"{COUNT} fires are refused: {running.events[-1]}",
        )
        refused: list[FireRefused] = running.of("ORDERS", FireRefused)
        assert {event.fire.target for event in refused} == {f"orders.denied.{number}" for number in range(COUNT)}
        assert {event.code for event in refused} == {NOT_PERMITTED}
        assert running.of("ORDERS", FireUnknown) == []
        await running.told_of("permission_denied", operation="publish", subject="orders.denied.7")
        assert await account.messages("ORDERS", "orders.denied.*") == []

        reload_config(server, accounts([limited_to(version, "orders.>")]))
        fired = await account.wait_for("ORDERS", "orders.denied.*", COUNT)
    assert len({message.subject for message in fired}) == len(fired) == COUNT


async def test_a_denied_request_fails_at_once_and_a_connection_goes_on(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=accounts([limited_to(V2_11, "orders.>")]))
    async with account_on(url_of(server.url, "sidecar-0")) as account:
        with pytest.raises(NotPermittedError, match=r"STREAM\.DELETE\.ORDERS"):
            await account.api.call("STREAM.DELETE.ORDERS")
        assert await account.api.info()


async def test_a_user_held_to_single_streams_serves_them_and_tells_once_of_others(
    start_server: StartServer,
) -> None:
    named = {"INFO", "UPDATE", "PURGE", "MSG.GET", "MSG.DELETE"}
    held: list[Permission] = []
    for each in permissions_of("2.11"):
        kind = each.subject.removeprefix("$JS.API.STREAM.").removesuffix(".*")
        streams = ("ORDERS", "KV_nats_scheduler") if each.act == "publish" and kind in named else ("*",)
        held += [replace(each, subject=f"{each.subject.removesuffix('.*')}.{name}") for name in streams if name != "*"]
        held += [each] if streams == ("*",) else []
    server = await start_server(V2_11, config=accounts([held]))
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create("OTHER")
        async with sidecar_on(url_of(server.url, "sidecar-0")) as running:
            await account.create("ORDERS", subjects=["orders.>"])
            await running.ready("ORDERS")
            at = f"@at {format_rfc3339(CLOCK.now() + 5 * SECOND // 2)}"
            await account.publish("orders.s", {"Nats-Schedule": at, "Nats-Schedule-Target": "orders.out"})
            await account.wait_for("ORDERS", "orders.out")
            assert [told["stream"] for told in running.told("stream_read_failed")] == ["OTHER"]


@pytest.mark.parametrize("kind", ["CONSUMER.CREATE", "CONSUMER.MSG.NEXT"])
async def test_what_lacks_for_consumers_is_told_once_however_often_one_is_tried(
    start_server: StartServer, kind: str
) -> None:
    granted = [each for each in permissions_of("2.11") if f".{kind}." not in each.subject]
    server = await start_server(V2_11, config=accounts([granted]))
    async with account_on(url_of(server.url, "admin-0")) as account:
        limited = ConnectionSettings(servers=(url_of(server.url, "sidecar-0"),))
        async with started_sidecar(limited) as running:
            lacking = {f"$JS.API.{kind}.KV_nats_scheduler.*", f"$JS.API.{kind}.ORDERS.*"}
            await running.told_of("permission_denied", operation="publish")
            await account.create("ORDERS", subjects=["orders.>"])
            for subject in lacking:
                await running.told_of("permission_denied", operation="publish", subject=subject)
            if kind == "CONSUMER.MSG.NEXT":  # a consumer is made, and nothing is received from it
                await eventually(
                    lambda: len(running.told("heartbeats_not_received")) >= 2,
                    within_seconds=WAIT_SECONDS,
                    describe="it tries on",
                )
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
    may_not = [each for each in may if each.subject != "$JS.API.STREAM.MSG.GET.*"]
    named = [
        replace(each, subject=f"$JS.API.STREAM.MSG.GET.{name}")
        for name in ("ORDERS", "KV_nats_scheduler")
        for each in may
        if each.subject == "$JS.API.STREAM.MSG.GET.*"
    ]
    server = await start_server(V2_11, config=accounts([[*may_not, *named]]))
    limited = url_of(server.url, "sidecar-0")
    async with account_on(url_of(server.url, "admin-0")) as account:
        await account.create("ORDERS", subjects=["orders.>"], metadata={"nats-scheduler.allow_msg_schedules": "true"})
        await account.create("WORK", subjects=["work.>"], allow_msg_schedules=False)
        at = {"X-Nats-Schedule": "@at 2026-01-01T00:00:00Z", "X-Nats-Schedule-X-Target": "work.run"}
        await account.publish("orders.s", at)
        async with sidecar_on(limited, allowed_targets_elsewhere=("ORDERS=work.>",)) as running:
            await eventually(
                lambda: bool(running.of("ORDERS", FireRefused)),
                within_seconds=WAIT_SECONDS,
                describe="the fire is refused",
            )
            [refused] = running.of("ORDERS", FireRefused)
            assert refused.code == NOT_PERMITTED
            assert "STREAM.MSG.GET.WORK" in refused.description
            await account.publish(
                "orders.soon", {**at, "X-Nats-Schedule": f"@at {format_rfc3339(CLOCK.now() + SECOND)}"}
            )
            await account.wait_for("WORK", "work.run")
            reload_config(server, accounts([may]))
            stored = await account.wait_for("WORK", "work.run", 2)
    assert {header_value(message.block, b"X-Nats-Scheduler") for message in stored} == {b"orders.s", b"orders.soon"}
