"""The bucket of the registry: values of a newer version are kept and not believed, and leftovers are removed.

Its rule: nobody fires by a checkpoint or a record that is not understood, until the operator, or a newer sidecar, ends
that.
It tests `runtime/leftovers.py` too.
"""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

import pytest

from nats_scheduler.jetstream.value_formats import ENTRY_FORMATS, FORMAT
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.runtime import leftovers
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.advisories import HeardAdvisories
from tests.harness.flagged import FlaggedStream, at, served_on
from tests.harness.fleet import BUCKET
from tests.harness.servers import V2_11
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


async def test_the_stream_of_an_unreadable_checkpoint_is_not_served(start_server: StartServer) -> None:
    async with served_before(start_server) as (url, stream):
        heard = await HeardAdvisories.of(stream.account.connection)
        await stream.account.publish(f"{PREFIX}checkpoint.S.emulated", body=NEWER)
        async with sidecar_on(url):
            await fires_only_once_it_is_deleted(stream, heard, "checkpoint.S.emulated")


async def test_an_unreadable_record_is_kept_and_nothing_is_claimed(start_server: StartServer) -> None:
    async with served_before(start_server) as (url, stream):
        heard = await HeardAdvisories.of(stream.account.connection)
        async with sidecar_on(url) as running:
            await running.shows("stream_owner", 1, stream="S")
            await stream.account.publish(f"{OWNER}emulated.S", body=NEWER)
            await fires_only_once_it_is_deleted(stream, heard, "owner.emulated.S")


async def test_all_that_a_sidecar_writes_into_the_bucket_has_a_format(start_server: StartServer) -> None:
    async with served_on((await start_server(V2_11)).url, config={"max_msg_size": 400}) as served:
        # Its fire has more headers than there is room for.
        await served.schedule("s", f"@at {in_seconds(0.2)}", b"x" * 250)
        kinds = {"checkpoint", "instance", "owner", "stream", *ENTRY_FORMATS}

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


async def test_what_the_dead_and_the_departed_left_is_removed(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who leaves leaves nothing behind, and says that it left."""
    monkeypatch.setattr(leftovers, "LEFTOVERS_CHECK_INTERVAL_SECONDS", 0.2)
    monkeypatch.setattr(leftovers, "ABANDONED_AFTER_NS", 3 * SECOND)
    server = await start_server(V2_11)
    async with served_on(server.url) as served:
        account = served.account
        async with sidecar_on(server.url) as leaves:
            await leaves.ready("S")
            await served.sidecar.shows("instances_alive", 2, 2)
        await served.sidecar.shows("instances_alive", 1, 1)
        alive = served.sidecar.sidecar.instance
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
