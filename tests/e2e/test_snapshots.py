"""A sidecar that begins with a snapshot serves as one that read everything, and one that does not fit is not used.

What a snapshot holds of policies is tested with engines, in `tests/engine/`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import FireStored
from nats_scheduler.engine.views.view import ListedSchedule
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.registry import Registry, SnapshotsBucket, snapshots_bucket_of
from nats_scheduler.runtime import continuity
from nats_scheduler.runtime import snapshots as snapshot_values
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.snapshots import snapshot_key
from nats_scheduler.schedule import zones
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.zones import package_folder
from tests.conftest import StartServer
from tests.harness.account import Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FLAG, FlaggedStream, served_on
from tests.harness.permissions import accounts, limited_to, url_of
from tests.harness.servers import EMULATED_VERSIONS, V2_11
from tests.harness.waiting import eventually

FAR = 90
MESSAGES_AFTER = 5
STORED = {"storage": "file"}


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have snapshots of small streams written at once."""
    monkeypatch.setattr(snapshot_values, "MIN_MESSAGES_AFTER", MESSAGES_AFTER)
    monkeypatch.setattr(snapshot_values, "FIRST_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(snapshot_values, "SNAPSHOT_CHECK_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(snapshot_values, "MIN_PAUSE_NS", SECOND)


def listed(running: Running, name: str = "S") -> list[ListedSchedule]:
    """Return what a sidecar holds of a stream."""
    return list(running.sidecar.served[name].engine.view().page(0, limit=None).finish().schedules)


def bucket_of(account: Account) -> SnapshotsBucket:
    return SnapshotsBucket(account.connection, account.api, snapshots_bucket_of("nats_scheduler"))


async def store_far(account: Account, name: str = "S", number: int = FAR) -> None:
    stream = FlaggedStream(account, name)
    for n in range(number):
        pattern = [f"@at {in_seconds(7_000 + n)}", "@every 3h", "0 30 9 1 1 *"][n % 3]
        await stream.schedule(f"s.{n}", pattern, target=f"out.{n}")
    await enough_for_a_snapshot(stream)


async def enough_for_a_snapshot(stream: FlaggedStream) -> None:
    """Store so many messages that a snapshot is written which has all that was stored before."""
    for _ in range(MESSAGES_AFTER):
        await stream.publish("plain")


async def with_snapshots(url: str, *names: str, **config: Any) -> list[list[ListedSchedule]]:
    """Have a sidecar write snapshots of far schedules; return what it held of each stream."""
    async with account_on(url) as account, sidecar_on(url) as running:
        for name in names:
            await account.create(name, **STORED, **config)
            await running.ready(name)
            await store_far(account, name)
        for name in names:
            await running.told_of("snapshot_written", stream=name, schedules=FAR)
        return [listed(running, name) for name in names]


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_start_with_a_snapshot_holds_the_same_and_fires_once(start_server: StartServer, version: str) -> None:
    """Snapshots have a bucket of their own."""
    server = await start_server(version)
    [before] = await with_snapshots(server.url, "S")
    async with account_on(server.url) as account:
        registry = Registry(account.connection, account.api, "nats_scheduler")
        assert [key async for key in registry.keys_within("chunk.>")] == []
        assert await bucket_of(account).keys("chunk") != []
        stream = FlaggedStream(account, "S")
        await stream.schedule("soon", f"@at {in_seconds(1)}", target="soon.out")
        await stream.schedule("s.1", "@every 9h")
        await stream.call("STREAM.PURGE", {"filter": "S.s.2"})
    async with served_on(server.url) as served:
        assert served.sidecar.told("snapshot_used")[0]["schedules"] == FAR
        await served.wait_for("soon.out")
        await eventually(
            lambda: len(listed(served.sidecar)) == FAR - 1,
            describe="what was purged while no sidecar ran is listed no more",
        )
        after = listed(served.sidecar)
        untouched = {one.subject for one in before} - {"S.s.1", "S.s.2"}
        assert [one for one in after if one.subject in untouched] == [one for one in before if one.subject in untouched]
        assert {one.pattern.text for one in after if one.subject == "S.s.1"} == {"@every 9h"}
        assert len(await served.messages("soon.out")) == 1
        assert len([event for event in served.of(FireStored) if not event.duplicate]) == 1


async def test_what_left_the_beginning_of_a_stream_with_max_age_is_not_held_at_the_next_start(
    start_server: StartServer,
) -> None:
    server = await start_server(V2_11)
    [before] = await with_snapshots(server.url, "S", max_age=24 * HOUR)
    async with account_on(server.url) as account:
        await FlaggedStream(account, "S").call("STREAM.PURGE", {"seq": 41})
    async with served_on(server.url) as served:
        assert served.sidecar.told("snapshot_used")[0]["schedules"] == FAR - 40
        assert listed(served.sidecar) == [one for one in before if one.sequence > 40]


async def test_a_user_who_may_keep_none_is_told_once_and_served_as_before(start_server: StartServer) -> None:
    """Whichever of the permissions lacks."""
    able = limited_to(V2_11, "S.>")
    lacking = [entry for entry in able if "snapshots" in entry.subject]
    grants = [[one for one in able if one != entry] for entry in lacking]
    server = await start_server(V2_11, config=accounts(grants))

    async def serve(number: int) -> None:
        admin, user = (url_of(server.url, f"{name}-{number}") for name in ("admin", "sidecar"))
        async with account_on(admin) as account, sidecar_on(user) as running:
            await account.create("S", **STORED)
            await running.ready("S")
            await store_far(account, number=20)
            told = await running.told_of("snapshot_not_kept", stream="S")
            assert "lacks the permission" in told["reason"]
            await FlaggedStream(account, "S").canary(1)
            assert len(running.told("snapshot_not_kept")) == 1, lacking[number]

    await asyncio.gather(*(serve(number) for number in range(len(lacking))))


# -- snapshots that do not fit -----------------------------------------------------------------------------------------

Change = Callable[[SnapshotsBucket, str, dict[str, Any]], Awaitable[object]]


def manifest_key(name: str) -> str:
    return snapshot_key("manifest", name, Mode.EMULATED)


def chunk_key(name: str, manifest: dict[str, Any]) -> str:
    return snapshot_key("chunk", name, Mode.EMULATED, manifest["generation"], 1)


async def damaged(bucket: SnapshotsBucket, name: str, manifest: dict[str, Any]) -> None:
    chunk = await bucket.chunk(chunk_key(name, manifest))
    assert chunk is not None
    await bucket.write_chunk(chunk_key(name, manifest), chunk[:-1] + bytes([chunk[-1] ^ 1]))


async def partial(bucket: SnapshotsBucket, name: str, manifest: dict[str, Any]) -> None:
    await bucket.purge(chunk_key(name, manifest))


async def foreign(bucket: SnapshotsBucket, name: str, manifest: dict[str, Any]) -> None:
    await bucket.put(manifest_key(name), {**manifest, "basis": "of another stream"})


async def nonsense(bucket: SnapshotsBucket, name: str, _manifest: dict[str, Any]) -> None:
    await bucket.put(manifest_key(name), {"through": "everything"})


async def beyond(bucket: SnapshotsBucket, name: str, manifest: dict[str, Any]) -> None:
    await bucket.put(manifest_key(name), {**manifest, "end": manifest["end"] + 1_000})


async def went_back(bucket: SnapshotsBucket, name: str, manifest: dict[str, Any]) -> None:
    sequence, stored_at, digest = manifest["witness"]
    await bucket.put(manifest_key(name), {**manifest, "witness": [sequence, stored_at - 1, digest]})


async def newer(bucket: SnapshotsBucket, name: str, _manifest: dict[str, Any]) -> None:
    _value, revision = await bucket.revised(manifest_key(name))
    assert await bucket.swap_bytes(manifest_key(name), b'{"format": 2}', revision)


CHANGES: tuple[Change, ...] = (damaged, partial, foreign, nonsense, beyond, went_back, newer)


async def test_a_snapshot_that_does_not_fit_is_not_used(start_server: StartServer) -> None:
    """One of a newer version is kept."""
    server = await start_server(V2_11)
    names = [change.__name__ for change in CHANGES]
    before = await with_snapshots(server.url, *names)
    async with account_on(server.url) as account:
        bucket = bucket_of(account)
        for name, change in zip(names, CHANGES, strict=True):
            manifest, _revision = await bucket.revised(manifest_key(name))
            assert manifest is not None
            await change(bucket, name, manifest)
        async with sidecar_on(server.url) as running:
            for name in names:
                await running.ready(name)
                assert (await running.told_of("snapshot_ignored", stream=name))["reason"]
            assert running.told("snapshot_used") == []
            assert dict(zip(names, before, strict=True)) == {name: listed(running, name) for name in names}
            await running.told_of("snapshot_not_kept", stream="newer")
            with pytest.raises(JetStreamError):
                await bucket.revised(manifest_key("newer"))


def other_program(monkeypatch: pytest.MonkeyPatch, _zone: Path) -> None:
    monkeypatch.setattr(continuity, "VERSION", "0.0.0")


def other_zone_data(_monkeypatch: pytest.MonkeyPatch, zone: Path) -> None:
    zone.write_bytes((Path(package_folder()) / "America" / "New_York").read_bytes())


def touched(_monkeypatch: pytest.MonkeyPatch, zone: Path) -> None:
    zone.write_bytes(zone.read_bytes())


@pytest.mark.parametrize(
    ("change", "is_used", "hour"), [(other_program, False, 8), (other_zone_data, False, 14), (touched, True, 8)]
)
async def test_fire_times_of_another_program_or_of_older_zone_data_are_not_used(
    start_server: StartServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[pytest.MonkeyPatch, Path], None],
    is_used: bool,
    hour: int,
) -> None:
    zone = tmp_path / "Depot" / "Hall"
    zone.parent.mkdir()
    zone.write_bytes((Path(package_folder()) / "Europe" / "Berlin").read_bytes())
    monkeypatch.setenv("ZONEINFO", str(tmp_path))
    zones._find_cached_zone.cache_clear()
    server = await start_server(V2_11)
    async with served_on(server.url, config=STORED) as served:
        for number in range(20):
            await served.schedule(f"s.{number}", "0 0 9 1 1 *", more={"Time-Zone": "Depot/Hall"})
        await enough_for_a_snapshot(served)
        await served.sidecar.told_of("snapshot_written", stream="S", schedules=20)
    change(monkeypatch, zone)
    zones._find_cached_zone.cache_clear()  # as a new process begins
    async with served_on(server.url) as served:
        assert len(served.sidecar.told("snapshot_used" if is_used else "snapshot_ignored")) == 1
        found = listed(served.sidecar)
        assert {one.next_fire // HOUR % 24 for one in found if one.next_fire is not None} == {hour}
        assert len(found) == 20


async def test_a_snapshot_of_a_stream_that_was_created_again_is_not_used(start_server: StartServer) -> None:
    """And without the setting none is used or kept."""
    server = await start_server(V2_11)
    async with served_on(server.url, config=STORED, keep_snapshots=False) as served:
        await store_far(served.account, number=30)
        await eventually(lambda: len(listed(served.sidecar)) == 30)
        assert await served.account.api.stream("KV_nats_scheduler_snapshots") is None
        await served.call("STREAM.DELETE")
    await with_snapshots(server.url, "S")
    async with served_on(server.url, keep_snapshots=False) as served:
        assert served.sidecar.told("snapshot_used") == []
        assert len(listed(served.sidecar)) == FAR
    async with account_on(server.url) as account:
        await account.api.call("STREAM.DELETE.S")
        await account.create("S", **STORED, **FLAG)
        await store_far(account, number=FAR + 50)
        await account.api.call("STREAM.PURGE.S", {"filter": "S.s.7"})
    async with served_on(server.url) as served:
        assert served.sidecar.told("snapshot_used") == []
        assert len(listed(served.sidecar)) == FAR + 49


async def test_of_two_instances_one_keeps_the_snapshot_and_both_begin_with_it(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config=STORED) as one, sidecar_on(server.url) as other:
        await store_far(one.account)
        await other.ready("S")
        await eventually(
            lambda: one.sidecar.told("snapshot_written") + other.told("snapshot_written"),
            describe="one of them wrote a snapshot",
        )
    async with sidecar_on(server.url) as first, sidecar_on(server.url) as second:
        for running in (first, second):
            await running.ready("S")
            assert running.told("snapshot_used")
            assert len(listed(running)) == FAR


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_the_first_snapshot_of_a_bucket_is_not_purged(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        bucket = bucket_of(account)
        await bucket.open()
        keys = [f"chunk.S.emulated.1.{n}" for n in range(3)]
        assert [await bucket.write_chunk(key, key.encode()) for key in keys] == [1, 2, 3]
        await bucket.purge_below("chunk.S.emulated.>", 1)
        assert [await bucket.chunk(key) for key in keys] == [key.encode() for key in keys]
        await bucket.purge_below("chunk.S.emulated.>", 3)
        assert [await bucket.chunk(key) for key in keys] == [None, None, keys[2].encode()]
