"""A sidecar that begins with a snapshot serves as one that read everything, and one that does not fit is not used."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import FireStored, StreamReady
from nats_scheduler.engine.views.view import ListedSchedule
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.registry import Registry, SnapshotsBucket, snapshots_bucket_of
from nats_scheduler.message.headers import header_value
from nats_scheduler.runtime import continuity
from nats_scheduler.runtime import snapshots as snapshot_values
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.snapshots import snapshot_key
from nats_scheduler.schedule import zones
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.zones import package_folder
from tests.conftest import StartServer
from tests.harness.account import WAIT_SECONDS, Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.permissions import Permission, accounts, permissions_of, url_of
from tests.harness.servers import EMULATED_VERSIONS, V2_11
from tests.harness.waiting import eventually
from tests.harness.workers import Worker

FAR = 300
MANIFEST = snapshot_key("manifest", "S", Mode.EMULATED)


@pytest.fixture(autouse=True)
def _eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have snapshots of small streams written at once."""
    monkeypatch.setattr(snapshot_values, "MIN_MESSAGES_AFTER", 5)
    monkeypatch.setattr(snapshot_values, "FIRST_CHECK_SECONDS", 0.05)
    monkeypatch.setattr(snapshot_values, "SNAPSHOT_CHECK_INTERVAL_SECONDS", 0.1)
    monkeypatch.setattr(snapshot_values, "MIN_PAUSE_NS", SECOND)


def listed(running: Running) -> list[ListedSchedule]:
    """Return what a sidecar holds of the stream."""
    service = running.sidecar.served["S"]
    return list(service.engine.view().page(0, limit=None).finish().schedules)


def bucket_of(account: Account) -> SnapshotsBucket:
    return SnapshotsBucket(account.connection, account.api, snapshots_bucket_of("nats_scheduler"))


async def store_far(account: Account, first: int = 0, number: int = FAR) -> None:
    for n in range(first, first + number):
        pattern = [f"@at {in_seconds(7_000 + n)}", "@every 3h", "0 30 9 1 1 *"][n % 3]
        await account.publish(f"S.s.{n}", {"Nats-Schedule": pattern, "Nats-Schedule-Target": f"S.out.{n}"})


async def with_snapshot(url: str) -> list[ListedSchedule]:
    """Have a sidecar write a snapshot of far schedules; returns what it held."""
    async with account_on(url) as account, sidecar_on(url) as running:
        await account.create("S", storage="file")
        await running.ready("S")
        await store_far(account)
        await running.told_of("snapshot_written", stream="S", schedules=FAR)
        return listed(running)


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_a_start_with_a_snapshot_holds_the_same_and_fires_once(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    before = await with_snapshot(server.url)
    async with account_on(server.url) as account:
        await account.publish("S.soon", {"Nats-Schedule": f"@at {in_seconds(3)}", "Nats-Schedule-Target": "S.soon.out"})
        await account.publish("S.s.1", {"Nats-Schedule": "@every 9h", "Nats-Schedule-Target": "S.out.1"})
        await account.api.call("STREAM.PURGE.S", {"filter": "S.s.2"})
        async with sidecar_on(server.url) as running:
            await running.ready("S")
            assert running.told("snapshot_used")[0]["schedules"] == FAR
            assert await account.wait_for("S", "S.soon.out")
            await eventually(
                lambda: len(listed(running)) == FAR - 1,
                within_seconds=WAIT_SECONDS,
                describe="what was purged while no sidecar ran is listed no more",
            )
            after = listed(running)
        untouched = {one.subject for one in before} - {"S.s.1", "S.s.2"}
        assert [one for one in after if one.subject in untouched] == [one for one in before if one.subject in untouched]
        assert {one.pattern.text for one in after if one.subject == "S.s.1"} == {"@every 9h"}
        assert len(await account.messages("S", "S.soon.out")) == 1
        assert len([event for event in running.of("S", FireStored) if not event.duplicate]) == 1


FAR_POLICIES = ({"X-Jitter": "1h"}, {"X-Missed": "all 3", "X-Grace": "1m"}, {"X-Report": "true", "X-Jitter": "1m"})
"""The policies of schedules that are far from their fires."""
EACH_SECOND = {
    "report": {"Nats-Schedule-Target": "S.report.out", "Nats-Schedule-X-Report": "true"},
    "over": {
        "Nats-Schedule-Target": "S.over.out",
        "Nats-Schedule-X-Overlap": "queue",
        "Nats-Schedule-X-Consumer": "workers",
    },
    "jobs": {"X-Nats-Schedule-X-Target": "JOBS.out"},
}
"""The targets and the policies of schedules that fire each second, by the last tokens of their subjects."""


async def store_with_policies(account: Account) -> int:
    """Store schedules of each kind, and wait until those that are due have fired; returns how many they are."""
    for name, headers in EACH_SECOND.items():
        schedule = "X-Nats-Schedule" if "X-Nats-Schedule-X-Target" in headers else "Nats-Schedule"
        await account.publish(f"S.{name}", {schedule: "@every 1s", **headers})
    for stream, target in (("S", "S.report.out"), ("S", "S.over.out"), ("JOBS", "JOBS.out")):
        await account.wait_for(stream, target)
    for number in range(30):
        named = {f"Nats-Schedule-{name}": value for name, value in FAR_POLICIES[number % 3].items()}
        pattern = {"Nats-Schedule": f"@at {in_seconds(7_000 + number)}", "Nats-Schedule-Target": "S.out.far"}
        await account.publish(f"S.s.{number}", pattern | named)
    return len(EACH_SECOND) + 30


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_schedules_with_policies_go_on_after_a_start_with_a_snapshot(
    start_server: StartServer, version: str
) -> None:
    server = await start_server(version)
    settings: dict[str, Any] = {"allowed_targets_elsewhere": ("S=JOBS.>",)}
    async with account_on(server.url) as account:
        async with sidecar_on(server.url, **settings) as running:
            await account.create("S", storage="file")
            await account.create("JOBS", storage="file")
            worker = Worker(account.connection, account.api, "S", "workers")
            await worker.begin(filter_subject="S.over.out")
            await running.ready("S")
            count = await store_with_policies(account)
            await running.told_of("snapshot_written", stream="S", schedules=count)
            before = [one for one in listed(running) if one.subject.startswith("S.s.")]
        assert len(await account.messages("S", "S.over.out")) == 1
        reported = len(await account.messages("S", "S.report.out"))
        async with sidecar_on(server.url, **settings) as running:
            await running.ready("S")
            assert running.told("snapshot_used")[0]["schedules"] == count
            reports = await account.wait_for("S", "S.report.out", reported + 2)
            assert [one for one in listed(running) if one.subject.startswith("S.s.")] == before
            assert len(await account.messages("S", "S.over.out")) == 1, "the one before is unfinished"
            worker.pull(1)
            await worker.acknowledge(*await worker.takes(1))
            assert await account.wait_for("S", "S.over.out", 2)
        due, previous = (
            [header_value(one.block, b"X-Nats-Schedule-X-" + name) for one in reports] for name in (b"Due", b"Previous")
        )
        assert previous == [None, *due[:-1]], "each names the one before, also that of the life before"
        jobs = [header_value(one.block, b"Nats-Msg-Id") for one in await account.messages("JOBS", "JOBS.out")]
        assert len(set(jobs)) == len(jobs)


OF_SNAPSHOTS = [entry for entry in permissions_of("2.11") if "snapshots" in entry.subject]


@pytest.mark.parametrize("entry", OF_SNAPSHOTS, ids=lambda entry: entry.subject)
async def test_a_user_who_may_keep_none_is_told_once_and_served_as_before(
    start_server: StartServer, entry: Permission
) -> None:
    targets = Permission("publish", "S.>", ("yes",) * 4)
    grant = [targets, *(other for other in permissions_of("2.11") if other != entry)]
    server = await start_server(V2_11, config=accounts([grant]))
    admin, user = url_of(server.url, "admin-0"), url_of(server.url, "sidecar-0")
    async with account_on(admin) as account, sidecar_on(user) as running:
        await account.create("S", storage="file")
        await running.ready("S")
        await store_far(account, number=20)
        told = await running.told_of("snapshot_not_kept", stream="S")
        assert "lacks the permission" in told["reason"]
        await account.publish("S.soon", {"Nats-Schedule": f"@at {in_seconds(2)}", "Nats-Schedule-Target": "S.soon.out"})
        assert await account.wait_for("S", "S.soon.out")
        assert len(running.told("snapshot_not_kept")) == 1


async def damaged(bucket: SnapshotsBucket, manifest: dict[str, Any]) -> None:
    key = snapshot_key("chunk", "S", Mode.EMULATED, manifest["generation"], 1)
    chunk = await bucket.chunk(key)
    assert chunk is not None
    await bucket.write_chunk(key, chunk[:-1] + bytes([chunk[-1] ^ 1]))


async def partial(bucket: SnapshotsBucket, manifest: dict[str, Any]) -> None:
    await bucket.purge(snapshot_key("chunk", "S", Mode.EMULATED, manifest["generation"], 1))


async def foreign(bucket: SnapshotsBucket, manifest: dict[str, Any]) -> None:
    await bucket.put(MANIFEST, {**manifest, "basis": "of another stream"})


async def nonsense(bucket: SnapshotsBucket, _manifest: dict[str, Any]) -> None:
    await bucket.put(MANIFEST, {"through": "everything"})


async def beyond(bucket: SnapshotsBucket, manifest: dict[str, Any]) -> None:
    await bucket.put(MANIFEST, {**manifest, "end": manifest["end"] + 1_000})


async def of_a_stream_that_went_back(bucket: SnapshotsBucket, manifest: dict[str, Any]) -> None:
    sequence, stored_at, digest = manifest["witness"]
    await bucket.put(MANIFEST, {**manifest, "witness": [sequence, stored_at - 1, digest]})


async def of_a_newer_version(bucket: SnapshotsBucket, manifest: dict[str, Any]) -> None:
    _value, revision = await bucket.revised(MANIFEST)
    assert await bucket.swap_bytes(MANIFEST, b'{"format": 2}', revision)


@pytest.mark.parametrize(
    "change", [damaged, partial, foreign, nonsense, beyond, of_a_stream_that_went_back, of_a_newer_version]
)
async def test_a_snapshot_that_does_not_fit_is_not_used(start_server: StartServer, change: Callable[..., Any]) -> None:
    server = await start_server(V2_11)
    before = await with_snapshot(server.url)
    async with account_on(server.url) as account:
        bucket = bucket_of(account)
        manifest, _revision = await bucket.revised(MANIFEST)
        assert manifest is not None
        await change(bucket, manifest)
        async with sidecar_on(server.url) as running:
            await running.ready("S")
            assert (await running.told_of("snapshot_ignored", stream="S"))["reason"]
            assert running.told("snapshot_used") == []
            assert listed(running) == before
            if change is of_a_newer_version:
                await running.told_of("snapshot_not_kept", stream="S")
                with pytest.raises(JetStreamError):
                    await bucket.revised(MANIFEST)


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
    async with account_on(server.url) as account:
        async with sidecar_on(server.url) as running:
            await account.create("S", storage="file")
            await running.ready("S")
            cron = {"Nats-Schedule": "0 0 9 1 1 *", "Nats-Schedule-Time-Zone": "Depot/Hall"}
            for number in range(20):
                await account.publish(f"S.s.{number}", {**cron, "Nats-Schedule-Target": "S.out"})
            await running.told_of("snapshot_written", stream="S", schedules=20)
        change(monkeypatch, zone)
        zones._find_cached_zone.cache_clear()  # as a new process begins
        async with sidecar_on(server.url) as running:
            await running.ready("S")
            assert len(running.told("snapshot_used" if is_used else "snapshot_ignored")) == 1
            assert {one.next_fire // HOUR % 24 for one in listed(running) if one.next_fire is not None} == {hour}
            assert len(listed(running)) == 20


async def test_a_snapshot_of_a_stream_that_was_created_again_is_not_used(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    await with_snapshot(server.url)
    async with account_on(server.url) as account:
        await account.api.call("STREAM.DELETE.S")
        metadata = {"nats-scheduler.allow_msg_schedules": "true"}
        await account.create("S", storage="file", metadata=metadata)
        await store_far(account, number=FAR + 50)
        await account.api.call("STREAM.PURGE.S", {"filter": "S.s.7"})
        async with sidecar_on(server.url) as running:
            await running.ready("S")
            assert running.told("snapshot_used") == []
            assert len(listed(running)) == FAR + 49


async def test_without_the_setting_there_is_no_snapshot_and_none_is_used(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        async with sidecar_on(server.url, keep_snapshots=False) as running:
            await account.create("S", storage="file")
            await running.ready("S")
            await store_far(account, number=30)
            await eventually(
                lambda: len(listed(running)) == 30, within_seconds=WAIT_SECONDS, describe="all schedules are held"
            )
        assert await account.api.stream("KV_nats_scheduler_snapshots") is None
        await with_snapshot(server.url)
        async with sidecar_on(server.url, keep_snapshots=False) as running:
            await running.ready("S")
            assert running.told("snapshot_used") == []
            assert running.of("S", StreamReady)[0].schedules == FAR


async def test_of_two_instances_one_keeps_the_snapshot_and_both_begin_with_it(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        async with sidecar_on(server.url) as one, sidecar_on(server.url) as other:
            await account.create("S", storage="file")
            await store_far(account)
            for running in (one, other):
                await running.ready("S")
            await eventually(
                lambda: one.told("snapshot_written") + other.told("snapshot_written"),
                within_seconds=WAIT_SECONDS,
                describe="one of them wrote a snapshot",
            )
        async with sidecar_on(server.url) as one, sidecar_on(server.url) as other:
            for running in (one, other):
                await running.ready("S")
                assert running.told("snapshot_used")
                assert len(listed(running)) == FAR


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_the_first_snapshot_of_a_bucket_is_not_purged(start_server: StartServer, version: str) -> None:
    server = await start_server(version)
    async with account_on(server.url) as account:
        bucket = bucket_of(account)
        await bucket.open()
        assert [await bucket.write_chunk(f"chunk.S.emulated.1.{n}", b"%d" % n) for n in range(3)] == [1, 2, 3]
        await bucket.purge_below("chunk.S.emulated.>", 1)
        assert [await bucket.chunk(f"chunk.S.emulated.1.{n}") for n in range(3)] == [b"0", b"1", b"2"]
        await bucket.purge_below("chunk.S.emulated.>", 3)
        assert [await bucket.chunk(f"chunk.S.emulated.1.{n}") for n in range(3)] == [None, None, b"2"]


async def test_the_bucket_of_the_registry_is_another_one(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    await with_snapshot(server.url)
    async with account_on(server.url) as account:
        registry = Registry(account.connection, account.api, "nats_scheduler")
        assert [key async for key in registry.keys_within("chunk.>")] == []
        assert await bucket_of(account).keys("chunk") != []
