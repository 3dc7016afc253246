"""Values of a newer version in the registry: a sidecar says that it cannot read them, and destroys nothing.

Its rule: nobody fires by a checkpoint or a lease that is not understood, until the operator, or a newer sidecar, ends
that.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.jetstream.registry import ENTRY_FORMATS, FORMAT
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from tests.conftest import StartServer
from tests.harness.account import CLOCK, WAIT_SECONDS, Account, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.fleet import BUCKET
from tests.harness.servers import V2_11, V2_14
from tests.harness.waiting import eventually

PREFIX = "$KV.nats_scheduler."
NEWER = json.dumps({FORMAT: 2, "what": "a later version knows"}).encode()
DELETED = {"KV-Operation": "DEL"}
"""The header by which `nats kv del` deletes a key."""


async def value(account: Account, key: str) -> bytes | None:
    """Return what is stored under a key."""
    message = await account.api.message(BUCKET, last_by_subj=f"{PREFIX}{key}")
    return None if message is None else message.body


@asynccontextmanager
async def served_before(url: str) -> AsyncIterator[Account]:
    """Have a sidecar serve a flagged stream and end."""
    async with account_on(url) as account:
        async with sidecar_on(url) as running:
            await account.create("S")
            await running.ready("S")
            await account.publish(
                "S.s.before", {"Nats-Schedule": f"@at {in_seconds(0.2)}", "Nats-Schedule-Target": "S.t"}
            )
            await account.wait_for("S", "S.t")
        yield account


async def fires_only_once_it_is_deleted(account: Account, heard: HeardAdvisories, key: str) -> None:
    """Show that a schedule does not fire beside a value, and fires once that is deleted."""
    said = await heard.first("cannot_serve")
    assert said["stream"] == "S"
    assert key in said["reason"]
    assert "format 2" in said["reason"]
    due = in_seconds(1.0)
    await account.publish("S.s.late", {"Nats-Schedule": f"@at {due}", "Nats-Schedule-Target": "S.late"})
    after = int(parse_rfc3339(due))  # type: ignore[arg-type]
    await eventually(lambda: CLOCK.now() > after, within_seconds=WAIT_SECONDS, describe="the schedule is due")
    assert await value(account, key) == NEWER
    await account.publish(f"{PREFIX}{key}", DELETED, b"")
    deleted_at = (await account.messages(BUCKET, f"{PREFIX}{key}"))[-1].stored_at
    (fire,) = await account.wait_for("S", "S.late")
    assert fire.stored_at > deleted_at
    assert len(await account.messages("S", "S.t")) == 1, "what had fired before does not fire again"


async def test_a_checkpoint_that_cannot_be_read_is_kept_and_its_stream_is_not_served(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_before(server.url) as account:
        heard = HeardAdvisories(account.connection)
        await account.publish(f"{PREFIX}checkpoint.S.emulated", body=NEWER)
        async with sidecar_on(server.url):
            await fires_only_once_it_is_deleted(account, heard, "checkpoint.S.emulated")


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_lease_that_cannot_be_read_is_kept_and_nothing_is_claimed(
    start_server: StartServer, is_running: bool
) -> None:
    server = await start_server(V2_11)
    async with served_before(server.url) as account:
        heard = HeardAdvisories(account.connection)
        if not is_running:
            await account.publish(f"{PREFIX}lease.emulated.S", body=NEWER)
        async with sidecar_on(server.url) as running:
            if is_running:
                await running.ready("S")
                await eventually(
                    lambda: len(running.sidecar.served["S"].shards) == SHARDS,
                    within_seconds=WAIT_SECONDS,
                    describe="all",
                )
                await account.publish(f"{PREFIX}lease.emulated.S", body=NEWER)
            await fires_only_once_it_is_deleted(account, heard, "lease.emulated.S")


async def test_an_instance_whose_heartbeat_cannot_be_read_is_alive_and_gets_nothing(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S")
        await running.ready("S")
        for _ in range(3):
            await account.publish(f"{PREFIX}instance.newer", body=NEWER)
        said = await running.told_of("registry_value_ignored", key="instance.newer")
        assert "format 2" in said["reason"]
        await account.publish("S.s", {"Nats-Schedule": f"@at {in_seconds(0.3)}", "Nats-Schedule-Target": "S.t"})
        await account.wait_for("S", "S.t")
        assert len(running.sidecar.served["S"].shards) == SHARDS
        assert "newer" in running.sidecar._leases.others
        assert len(running.told("registry_value_ignored")) == 1


async def test_a_flag_that_cannot_be_read_is_kept_and_its_stream_is_not_served(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_before(server.url) as account:
        await account.publish(f"{PREFIX}stream.S", body=NEWER)
        async with sidecar_on(server.url) as running:
            said = await running.told_of("stream_adopt_failed", stream="S")
            assert "stream.S has a format 2" in said["reason"]
            told = len(running.told("stream_adopt_failed"))
            await account.create("S")
            await eventually(
                lambda: len(running.told("stream_adopt_failed")) > told, within_seconds=WAIT_SECONDS, describe="again"
            )
            assert await value(account, "stream.S") == NEWER
            assert "S" not in running.sidecar.served


@pytest.mark.parametrize("version", [V2_11, V2_14])
async def test_all_that_a_sidecar_writes_into_the_bucket_has_a_format(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("S", max_msg_size=400)
        await running.ready("S")
        portable = "X-" if version == V2_14 else ""
        headers = {f"{portable}Nats-Schedule": f"@at {in_seconds(0.2)}", f"{portable}Nats-Schedule-Target": "S.t"}
        await account.publish("S.s", headers, b"x" * 250)  # its fire has more headers than there is room for
        kinds = {"checkpoint", "instance", "lease", *ENTRY_FORMATS} | ({"stream"} if version == V2_11 else set())

        async def all_written() -> dict[str, bytes] | None:
            info = await account.api.call(f"STREAM.INFO.{BUCKET}", {"subjects_filter": f"{PREFIX}>"})
            keys = [subject.removeprefix(PREFIX) for subject in info["state"].get("subjects") or {}]
            found = {key: await value(account, key) or b"" for key in keys}
            return found if {key.partition(".")[0] for key in keys} >= kinds else None

        written = await eventually(all_written, within_seconds=WAIT_SECONDS, describe=f"values of the kinds {kinds}")
    for key, body in written.items():
        document = read_object(body)
        assert document, (key, body)
        entries = document.values() if key in ENTRY_FORMATS else [document]
        assert all(entry[FORMAT] == 1 for entry in entries), (key, body)
