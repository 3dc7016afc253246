"""The bucket of the registry: values of a newer version are kept and not believed, and leftovers are removed.

Its rule: nobody fires by a checkpoint or a record that is not understood, until the operator, or a newer sidecar, ends
that.
It tests `runtime/leftovers.py` too.
"""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.control.transport import request_json
from nats_scheduler.jetstream.value_formats import ENTRY_FORMATS, FORMAT
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.runtime import leftovers
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FLAG, FlaggedStream, Served, at, served_on
from tests.harness.fleet import BUCKET
from tests.harness.servers import V2_11, V2_14
from tests.harness.waiting import eventually

PREFIX = "$KV.nats_scheduler."
INSTANCE, OWNER = f"{PREFIX}instance.", f"{PREFIX}owner."
NEWER = json.dumps({FORMAT: 2, "what": "a later version knows"}).encode()
DELETED = {"KV-Operation": "DEL"}
"""The header by which `nats kv del` deletes a key."""


async def value(account: Account, key: str) -> bytes | None:
    """Return what is stored under a key."""
    message = await account.api.message(BUCKET, last_by_subj=f"{PREFIX}{key}")
    return None if message is None else message.body


async def keys(account: Account, under: str = PREFIX) -> list[str]:
    """Return the subjects that are stored in the bucket under a prefix."""
    info = await account.api.call(f"STREAM.INFO.{BUCKET}", {"subjects_filter": f"{under}>"})
    return sorted(info["state"].get("subjects") or {})


# -- values of a newer version -----------------------------------------------------------------------------------------


@asynccontextmanager
async def served_before(start_server: StartServer) -> AsyncIterator[tuple[str, FlaggedStream]]:
    """Have a sidecar serve a flagged stream and end; give the address of its server, and the stream."""
    server = await start_server(V2_11)
    async with served_on(server.url) as served:
        await served.schedule("s.before", f"@at {in_seconds(0.2)}", target="t")
        await served.wait_for("t")
    async with account_on(server.url) as account:
        yield server.url, FlaggedStream(account, "S")


async def fires_only_once_it_is_deleted(stream: FlaggedStream, heard: HeardAdvisories, key: str) -> None:
    """Show that a schedule does not fire beside a value, and fires once that is deleted."""
    said = await heard.first("cannot_serve")
    assert said["stream"] == "S"
    assert key in said["reason"]
    assert "format 2" in said["reason"]
    due = CLOCK.now() + SECOND
    await stream.schedule("s.late", at(due), target="late")
    await eventually(lambda: CLOCK.now() > due, describe="the schedule is due")
    assert await value(stream.account, key) == NEWER
    await stream.account.publish(f"{PREFIX}{key}", DELETED, b"")
    deleted_at = (await stream.account.messages(BUCKET, f"{PREFIX}{key}"))[-1].stored_at
    (fire,) = await stream.wait_for("late")
    assert fire.stored_at > deleted_at
    assert len(await stream.messages("t")) == 1, "what had fired before does not fire again"


async def test_a_checkpoint_that_cannot_be_read_is_kept_and_its_stream_is_not_served(start_server: StartServer) -> None:
    async with served_before(start_server) as (url, stream):
        heard = HeardAdvisories(stream.account.connection)
        await stream.account.publish(f"{PREFIX}checkpoint.S.emulated", body=NEWER)
        async with sidecar_on(url):
            await fires_only_once_it_is_deleted(stream, heard, "checkpoint.S.emulated")


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_record_that_cannot_be_read_is_kept_and_nothing_is_claimed(
    start_server: StartServer, is_running: bool
) -> None:
    async with served_before(start_server) as (url, stream):
        heard = HeardAdvisories(stream.account.connection)
        if not is_running:
            await stream.account.publish(f"{OWNER}emulated.S", body=NEWER)
        async with sidecar_on(url) as running:
            if is_running:
                await running.shows("stream_owner", 1, stream="S")
                await stream.account.publish(f"{OWNER}emulated.S", body=NEWER)
            await fires_only_once_it_is_deleted(stream, heard, "owner.emulated.S")


async def test_an_instance_whose_heartbeat_cannot_be_read_is_alive_and_gets_nothing(start_server: StartServer) -> None:
    async with served_on((await start_server(V2_11)).url) as served:
        for _ in range(3):
            await served.account.publish(f"{INSTANCE}newer", body=NEWER)
        said = await served.sidecar.told_of("registry_value_ignored", key="instance.newer")
        assert "format 2" in said["reason"]
        await served.sidecar.shows("instances_alive", 2, 2)
        await served.canary(0.3)
        assert served.sidecar.sidecar.served["S"].is_owner
        assert len(served.sidecar.told("registry_value_ignored")) == 1


async def test_a_flag_that_cannot_be_read_is_kept_and_its_stream_is_not_served(start_server: StartServer) -> None:
    async with served_before(start_server) as (url, stream):
        await stream.account.publish(f"{PREFIX}stream.S", body=NEWER)
        async with sidecar_on(url) as running:
            said = await running.told_of("stream_adopt_failed", stream="S")
            assert "stream.S has a format 2" in said["reason"]
            told = len(running.told("stream_adopt_failed"))
            await stream.account.create("S")
            await eventually(lambda: len(running.told("stream_adopt_failed")) > told, describe="again")
            assert await value(stream.account, "stream.S") == NEWER
            assert "S" not in running.sidecar.served


@pytest.mark.parametrize("version", [V2_11, V2_14])
async def test_all_that_a_sidecar_writes_into_the_bucket_has_a_format(start_server: StartServer, version: str) -> None:
    async with served_on((await start_server(version)).url, config={"max_msg_size": 400}) as served:
        prefix = "X-" if version == V2_14 else ""
        headers = {f"{prefix}{name}": text for name, text in served.headers(f"@at {in_seconds(0.2)}").items()}
        await served.publish("s", headers, b"x" * 250)  # its fire has more headers than there is room for
        kinds = {"checkpoint", "instance", "owner", *ENTRY_FORMATS} | ({"stream"} if version == V2_11 else set())

        async def all_written() -> dict[str, bytes] | None:
            names = [subject.removeprefix(PREFIX) for subject in await keys(served.account)]
            found = {key: await value(served.account, key) or b"" for key in names}
            return found if {key.partition(".")[0] for key in names} >= kinds else None

        written = await eventually(all_written, describe=f"values of the kinds {kinds}")
    for key, body in written.items():
        document = read_object(body)
        assert document, (key, body)
        entries = document.values() if key in ENTRY_FORMATS else [document]
        assert all(entry[FORMAT] == 1 for entry in entries), (key, body)


# -- what instances left -----------------------------------------------------------------------------------------------


async def has_only(account: Account, under: str, wanted: Iterable[str]) -> None:
    expected = sorted(f"{under}{key}" for key in wanted)

    async def is_so() -> bool:
        return await keys(account, under) == expected

    await eventually(is_so, describe=f"{expected} and nothing else under {under}")


async def instances_of(served: Served) -> list[str]:
    """Return the names of the instances that are alive."""
    listed = await request_json(served.account.connection, "nats_scheduler.v1.instances.list", {})
    return [one["id"] for one in listed["instances"]]


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have leftovers looked for at once, and take for old what a test can wait for."""
    monkeypatch.setattr(leftovers, "LEFTOVERS_CHECK_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(leftovers, "ABANDONED_AFTER_NS", 3 * SECOND)


@pytest.mark.usefixtures("often")
async def test_what_the_dead_and_the_departed_left_is_removed(start_server: StartServer) -> None:
    """Who leaves leaves nothing behind, and says that it left."""
    server = await start_server(V2_11)
    async with served_on(server.url) as served:
        account = served.account
        async with sidecar_on(server.url) as leaves:
            await leaves.ready("S")
            await served.sidecar.shows("instances_alive", 2, 2)
        await served.sidecar.shows("instances_alive", 1, 1)
        [alive] = await instances_of(served)
        await has_only(account, INSTANCE, [alive])
        assert not served.sidecar.told("instance_lost"), "it said that it left"
        await account.publish(f"{INSTANCE}departed", DELETED, b"")
        await account.publish(f"{INSTANCE}dead", body=b'{"serves": [], "since": "2026-01-01T00:00:00Z"}')
        for key in ("emulated.GONE", "forged", "forged.as.no.stream"):
            await account.publish(f"{OWNER}{key}", body=b'{"owner": "dead"}')
        await has_only(account, OWNER, ["emulated.S"])
        await has_only(account, INSTANCE, [alive])
    async with account_on(server.url) as account:
        await has_only(account, INSTANCE, [])


@pytest.mark.usefixtures("often")
async def test_the_record_of_a_mode_that_is_over_is_removed_and_that_of_others_stays(start_server: StartServer) -> None:
    """As `graduate` leaves it: the stream was dormant, and is native now."""
    server = await start_server(V2_14)
    async with account_on(server.url) as account:
        await account.create("S", allow_msg_schedules=False, **FLAG)
        async with sidecar_on(server.url) as running:
            await has_only(account, OWNER, ["dormant.S"])
            await account.publish(f"{OWNER}emulated.S", body=b'{"owner": "dead"}')
            await has_only(account, OWNER, ["dormant.S"])
            config = (await account.api.stream("S"))["config"]
            await account.api.update_stream({**config, "allow_msg_schedules": True, "allow_rollup_hdrs": True})
            await has_only(account, OWNER, ["native.S"])
            await running.shows("stream_owner", 1, stream="S")


async def test_one_sidecar_is_counted_once_whatever_lies_in_the_bucket(
    start_server: StartServer, said: list[dict[str, Any]]
) -> None:
    """Also when it listens anew after a restart of the server, which is when all that is stored is read again."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, sidecar_on(server.url):
        for number in range(3):  # as after three crashes, each while nobody else ran
            await account.publish(f"{INSTANCE}dead{number}", body=b'{"serves": null, "since": "soon"}')
        stored_at = (await account.messages(BUCKET, f"{INSTANCE}dead2"))[0].stored_at
    await eventually(lambda: CLOCK.now() > stored_at + 5 * SECOND)
    said.clear()
    async with sidecar_on(server.url) as running:
        await running.shows("instances_alive", 1)
        await server.kill()
        await running.told_of("connect_failed")
        await server.restart()
        await running.shows("connections_total", 2)
        async with account_on(server.url) as account:
            await account.create("S")
            await running.ready("S")
            await running.healthy()
    assert {line["count"] for line in said if line["event"] == "instances_alive"} == {1}
    assert not [line for line in said if line["event"] == "instance_lost"]
