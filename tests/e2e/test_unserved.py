"""A stream that was created before a sidecar listened has no flag: that is reported, or mended by `adopt_streams`."""

import pytest

from nats_scheduler.message.stream_rules import FLAG
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, sidecar_on
from tests.harness.servers import V2_11, V2_15
from tests.harness.waiting import eventually


async def with_schedule(account: Account, name: str, prefix: str = "", **config: object) -> None:
    """Create a stream whose server drops or never got the flag, and store a schedule there."""
    await account.create(name, **{FLAG: False, **config})
    headers = {f"{prefix}Nats-Schedule": "@every 1s", f"{prefix}Nats-Schedule-Target": f"{name}.out"}
    await account.publish(f"{name}.s", headers)


@pytest.mark.parametrize("version", [V2_11, V2_15])
async def test_schedules_in_a_stream_without_the_flag_are_reported(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    prefix = "" if version == V2_11 else "X-"
    async with account_on(server.url) as account:
        await with_schedule(account, "EARLY", prefix)
        await with_schedule(account, "QUEUE", prefix, retention="workqueue")
        await account.create("PLAIN", **{FLAG: False})
        await account.publish("PLAIN.one")
        async with sidecar_on(server.url) as running:
            for name in ("EARLY", "QUEUE"):
                report = await running.told_of("schedules_unserved", stream=name)
                command = f"nats-scheduler stream add FILE, where FILE is {name} with allow_msg_schedules: true"
                assert report == {"stream": name, "schedule": f"{name}.s", "command": command}
            assert running.sidecar.not_ready() == []
            said = "has schedule headers that are not fired"
            assert [note.partition("; nats-scheduler")[0] for note in running.sidecar.notes()] == [
                f"{name}.s {said}: {name} carries no flag" for name in ("EARLY", "QUEUE")
            ]
            assert running.metrics.registry.get_sample_value("nats_scheduler_streams_unserved") == 2


async def test_what_is_served_or_gone_is_not_reported_any_more(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nats_scheduler.runtime.discovery.LIST_INTERVAL_SECONDS", 0.2)
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        for name in ("FLAGGED", "DELETED", "PURGED", "REPLACED"):
            await with_schedule(account, name)
        async with sidecar_on(server.url) as running:
            await eventually(lambda: len(running.sidecar.notes()) == 4)
            await account.api.call("STREAM.UPDATE.FLAGGED", await flagged(account, "FLAGGED"))
            await account.api.call("STREAM.DELETE.DELETED")
            await account.api.call("STREAM.PURGE.PURGED")
            await account.publish("REPLACED.s")
            await eventually(lambda: running.sidecar.notes() == [])
            await account.wait_for("FLAGGED", "FLAGGED.out")
            assert running.metrics.registry.get_sample_value("nats_scheduler_streams_unserved") == 0


async def flagged(account: Account, name: str) -> dict[str, object]:
    """Return the configuration of a stream with the flag."""
    return {**(await account.api.stream(name))["config"], FLAG: True}


async def test_a_stream_that_the_settings_adopt_is_served(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        await with_schedule(account, "BEFORE")
        await with_schedule(account, "OTHER")
        await account.create("COPY", subjects=[], mirror={"name": "BEFORE"}, **{FLAG: False})
        async with sidecar_on(server.url, adopt_streams=("*OR*", "AFTER.>", "COPY")) as running:
            await running.ready("BEFORE")
            await with_schedule(account, "AFTER")
            await running.ready("AFTER")
            for name in ("BEFORE", "AFTER"):
                await account.wait_for(name, f"{name}.out")
            await running.told_of("schedules_unserved", stream="OTHER")
            assert "COPY" not in running.sidecar.served
        async with sidecar_on(server.url) as running:  # the flag stays, without the setting
            await running.ready("BEFORE")
