"""An application that creates its stream at each start is not refused.

The sidecar leaves the configuration as it was asked for.
"""

import json
from pathlib import Path
from typing import Any

import nats
import pytest
from nats.js.api import StreamConfig

from nats_scheduler.control.fires import fire
from nats_scheduler.engine.events import FireStored
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.control.test_connection_store import store_of
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.blocks import block_to_send
from tests.harness.nats_cli import NatsCli
from tests.harness.servers import EMULATED_VERSIONS, V2_10, V2_11
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually
from tests.harness.watched import SOON_SECONDS, Watched

ROLL_UP = {"Nats-Schedule-Rollup": "sub"}


def put(folder: Path, name: str) -> None:
    """Write a stream file that says what `Account.create` says."""
    config = {"name": name, "subjects": [f"{name}.>"], "allow_msg_schedules": True, "storage": "memory"}
    (folder / "s.json").write_text(json.dumps({**config, "retention": "limits", "num_replicas": 1}))


async def remembered(account: Account) -> None:
    """Wait until the registry says that the stream S carries the flag."""
    where = {"last_by_subj": "$KV.nats_scheduler.stream.S"}
    await eventually(lambda: account.api.message("KV_nats_scheduler", **where), within_seconds=SOON_SECONDS)


async def rolls_up(watched: Watched, rest: str = "r") -> None:
    """Store a schedule that is due now and rolls up its target, and wait for its fire."""
    target = f"{watched.name}.{rest}-out"
    headers = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": target, **ROLL_UP}
    await watched.account.publish(f"{watched.name}.{rest}", headers)
    assert await watched.account.wait_for(watched.name, target)


@pytest.mark.parametrize("config", [{}, {"allow_msg_ttl": True}, {"allow_rollup_hdrs": True}, {"metadata": {"a": "b"}}])
async def test_a_creation_is_accepted_again_byte_for_byte(watched: Watched, config: dict[str, Any]) -> None:
    made = await watched.create(**config)
    await watched.fires()
    again = await watched.create(**config)
    assert again["config"] == made["config"]
    await watched.update(description="edited by a tool")
    await watched.fires("after", f"{watched.name}.after-out")


async def test_the_cli_may_add_its_stream_again(watched: Watched, nats_cli: NatsCli) -> None:
    cli = nats_cli.at(watched.url)
    put(cli.home, watched.name)
    await cli.run("stream", "add", "--config", "s.json")
    await watched.fires()
    await cli.run("stream", "add", "--config", "s.json")


async def test_nats_py_may_add_its_stream_again(watched: Watched) -> None:
    """Its class knows the field from 2.12 on, and sends it."""
    client = await nats.connect(watched.url)
    config = StreamConfig(name=watched.name, subjects=[f"{watched.name}.>"], allow_msg_schedules=True)
    await client.jetstream().add_stream(config)
    await watched.fires()
    await client.jetstream().add_stream(config)
    await client.close()


async def test_a_file_of_the_sidecar_and_the_application_that_creates_it_get_on(
    emulated_server: EmbeddedServer, account: Account, swept: str, said: list[dict[str, Any]], tmp_path: Path
) -> None:
    folder = tmp_path / "streams"
    folder.mkdir()
    put(folder, swept)
    for _start in range(2):
        async with sidecar_on(emulated_server.url, streams_folder=folder) as running:
            watched = Watched(account, running, swept, emulated_server.url, said)
            await watched.line("stream_configured")
            await watched.create()
            said.clear()


# -- what a schedule cannot do without -------------------------------------------------------------------------------


async def is_rolled_up(account: Account, target: str) -> None:
    """Wait until one message is left on a target."""
    stream = target.split(".")[0]

    async def found() -> bool:
        return len(await account.messages(stream, target)) == 1

    await eventually(found, within_seconds=SOON_SECONDS)


@pytest.mark.clause("generated-rollup")
@pytest.mark.parametrize("config", [{}, {"metadata": {"team": "shop"}}])
async def test_a_creation_is_accepted_again_after_a_fire_has_rolled_up_its_target(
    watched: Watched, config: dict[str, Any]
) -> None:
    """The stream refuses `Nats-Rollup`, so the fire does not have it, and is followed by a purge."""
    made = await watched.create(**config)
    target = f"{watched.name}.r-out"
    for body in (b"older", b"old"):
        await watched.account.publish(target, body=body)
    await rolls_up(watched)
    await is_rolled_up(watched.account, target)
    [stored] = await watched.account.messages(watched.name, target)
    assert b"Nats-Rollup" not in (stored.block or b"")
    assert (await watched.create(**config))["config"] == made["config"]


async def test_a_fire_that_was_requested_rolls_up_its_target_too(watched: Watched) -> None:
    await watched.create()
    target, subject = f"{watched.name}.out", f"{watched.name}.s"
    await watched.account.publish(target, body=b"old")
    await watched.account.publish(
        subject, {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": target, **ROLL_UP}, b"new"
    )
    await watched.sidecar.ready(watched.name)
    await fire(await store_of(watched.account), watched.name, subject)
    await is_rolled_up(watched.account, target)
    assert [one.body for one in await watched.account.messages(watched.name, target)] == [b"new"]


async def test_a_roll_up_that_a_crash_prevented_is_done_at_the_next_start(
    emulated_server: EmbeddedServer, account: Account, swept: str
) -> None:
    await account.create(swept)
    subject, target, at = f"{swept}.s", f"{swept}.out", CLOCK.now() // SECOND * SECOND
    await account.publish(target, body=b"old")
    headers = {"Nats-Schedule": f"@at {format_rfc3339(at)}", "Nats-Schedule-Target": target, **ROLL_UP}
    sequence = await account.publish(subject, headers)
    identity = fire_identity(subject, sequence, at)
    generated = {"Nats-Scheduler": subject, "Nats-Schedule-Next": "purge", "Nats-Msg-Id": identity}
    await account.publish(target, generated)  # by a sidecar that was killed before it could do more
    async with sidecar_on(emulated_server.url):
        await account.create(swept)
        await is_rolled_up(account, target)


@pytest.mark.clause("stream-implied")
async def test_who_rolls_up_by_hand_names_roll_ups_in_the_configuration(watched: Watched) -> None:
    """Here the flag does not bring them along, as it does natively."""
    await watched.create()
    await watched.sidecar.ready(watched.name)
    subject, block = f"{watched.name}.x", block_to_send({"Nats-Rollup": "sub"})
    refused = json.loads((await watched.account.connection.request(subject, b"", block)).body)
    assert refused["error"]["err_code"] == 10111
    await watched.update(allow_rollup_hdrs=True)
    await watched.account.publish_block(subject, block, b"")


async def test_a_stream_that_allows_roll_ups_has_them_done_by_the_server(watched: Watched) -> None:
    await watched.create(allow_rollup_hdrs=True)
    await rolls_up(watched)
    [stored] = await watched.account.messages(watched.name, f"{watched.name}.r-out")
    assert b"Nats-Rollup: sub" in (stored.block or b"")
    await watched.create(allow_rollup_hdrs=True)


async def test_ttls_that_we_kept_for_2_10_are_handed_to_a_server_that_keeps_them(tmp_path: Path) -> None:
    async with machine_in(tmp_path) as machine:
        url = await machine.install(V2_10)
        async with sidecar_on(url), account_on(url) as account:
            await account.create("S", storage="file", allow_msg_ttl=True)
            await remembered(account)
        await machine.install(V2_11)
        async with sidecar_on(url) as running, account_on(url) as account:
            told = await running.told_of("stream_updated", stream="S")
            assert told["switched_on"] == "allow_msg_ttl"
            await account.create("S", storage="file", allow_msg_ttl=True)


# -- the same stream, whatever the server says of its creation --------------------------------------------------------


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_flag_survives_that_the_server_tells_another_creation_time(
    start_server: StartServer, version: str
) -> None:
    """A server up to 2.11 that restarts, updates a stream and restarts again gives the time of its first restart."""
    server = await start_server(version)
    async with sidecar_on(server.url), account_on(server.url) as account:
        made = await account.create("S", storage="file")
        await remembered(account)
    await server.stop()
    await server.start()
    async with account_on(server.url) as account:
        await account.api.update_stream({**made["config"], "description": "new"})
    await server.stop()
    await server.start()
    async with sidecar_on(server.url) as running, account_on(server.url) as account:
        assert (await account.api.stream("S"))["created"] != made["created"], "the server has been mended"
        await running.ready("S")
        await running.told_of("flag_kept", stream="S")
        at = {"Nats-Schedule": f"@at {in_seconds(0)}", "Nats-Schedule-Target": "S.out"}
        await account.publish("S.s", at)
        await account.wait_for("S", "S.out")
        assert running.of("S", FireStored)


async def test_a_stream_that_was_deleted_in_sight_takes_its_flag_along(watched: Watched) -> None:
    await watched.create()
    await watched.remembered()
    await watched.delete()

    async def is_noted() -> bool:
        return (await watched.entry(watched.name) or {}).get("deleted") is True

    await eventually(is_noted, within_seconds=SOON_SECONDS)
    await watched.create(allow_msg_schedules=False)
    await watched.does_not_fire()


async def test_an_entry_that_somebody_removed_is_written_again(watched: Watched) -> None:
    await watched.create(allow_msg_ttl=True)
    entry = await watched.remembered()
    await watched.sidecar.ready(watched.name)
    await watched.account.api.call(
        "STREAM.PURGE.KV_nats_scheduler", {"filter": f"$KV.nats_scheduler.stream.{watched.name}"}
    )
    await watched.update(description="a look at it")
    assert (await watched.remembered()).items() >= entry.items()
    await watched.fires()
