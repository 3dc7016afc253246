"""One stream of schedules for the targets in three others, on real servers."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import FireReadBack, FireRefused, FireStored, ScheduleRejected
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.policies import X_TARGET
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, account_on, in_seconds, sidecar_on
from tests.harness.cluster import running_cluster
from tests.harness.fleet import BUCKET, parts_of
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import EMULATED_VERSIONS, V2_11
from tests.harness.waiting import eventually

PATIENCE_SECONDS = 90.0
SHORT_WINDOW = 200 * MILLISECOND
SCHEDULES = 10
"""Schedules for each of the three streams."""
KINDS: dict[str, dict[str, Any]] = {
    "A": {"retention": "limits"},
    "B": {"retention": "workqueue"},
    "C": {"retention": "limits", "max_msgs": 100_000},
}


def scheduled(pattern: str, target: str, **more: str) -> dict[str, str]:
    """Return the headers of a schedule with a target in another stream."""
    return {"X-Nats-Schedule": pattern, X_TARGET.decode(): target, **more}


class Streams:
    """A stream of schedules, and three others."""

    def __init__(self, account: Account, name: str) -> None:
        self.account = account
        self.name = name

    def other(self, kind: str) -> str:
        """Return the name of one of the three."""
        return f"{self.name}_{kind}"

    @property
    def allowed(self) -> dict[str, tuple[str, ...]]:
        """The setting that allows all three."""
        return {"allowed_targets_elsewhere": tuple(f"{self.name}={self.other(kind)}.>" for kind in KINDS)}

    async def create(self, kind: str) -> None:
        """Create one of the three."""
        more = {"allow_msg_schedules": False, "duplicate_window": SHORT_WINDOW, "storage": "file"}
        await self.account.create(self.other(kind), **KINDS[kind], **more)

    async def schedule(self, rest: str, pattern: str, target: str, body: bytes = b"body", **more: str) -> int:
        """Store a schedule."""
        return await self.account.publish(f"{self.name}.{rest}", scheduled(pattern, target, **more), body)

    async def fires(self, kind: str, rest: str = "run") -> list[StoredMessage]:
        """Return what is stored on a target."""
        return await self.account.messages(self.other(kind), f"{self.other(kind)}.{rest}")

    async def fired(self, kind: str, count: int = 1) -> list[StoredMessage]:
        """Wait until `count` messages are stored on a target."""
        return await self.account.wait_for(self.other(kind), f"{self.other(kind)}.run", count)


@asynccontextmanager
async def streams_on(account: Account, name: str) -> AsyncIterator[Streams]:
    """Create all four, and delete them at the end."""
    streams = Streams(account, name)
    await account.create(name, metadata={"nats-scheduler.allow_msg_schedules": "true"}, storage="file")
    for kind in KINDS:
        await streams.create(kind)
    yield streams
    for one in (name, *map(streams.other, KINDS)):
        await account.api.call(f"STREAM.DELETE.{one}")


async def rejection(streams: Streams, running: object, subject: str) -> str:
    """Wait until a schedule is rejected, and return why."""

    def rejected() -> list[ScheduleRejected]:
        events = running.of(streams.name, ScheduleRejected)  # type: ignore[attr-defined]
        return [event for event in events if event.schedule == f"{streams.name}.{subject}"]

    await eventually(lambda: bool(rejected()), within_seconds=PATIENCE_SECONDS, describe=f"{subject} is rejected")
    return str(rejected()[0].rejection)


async def test_schedules_of_one_stream_fire_into_three_others(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    async with (
        streams_on(account, stream_name) as streams,
        sidecar_on(emulated_server.url, **streams.allowed) as running,
    ):
        await running.ready(streams.name)
        sequences = {
            kind: await streams.schedule(kind, "@every 1s", f"{streams.other(kind)}.run", b"of " + kind.encode())
            for kind in KINDS
        }
        await streams.schedule("once", f"@at {in_seconds(1)}", f"{streams.other('A')}.once")
        for kind, sequence in sequences.items():
            first, second = (await streams.fired(kind, 2))[:2]
            assert (first.body, first.subject) == (b"of " + kind.encode(), f"{streams.other(kind)}.run")
            identity = header_value(first.block, b"Nats-Msg-Id") or b""
            assert identity.startswith(b"nats-scheduler:%d:" % sequence)
            assert first.sequence < second.sequence
            assert b"Nats-Expected" not in first.block
        await account.wait_for(streams.other("A"), f"{streams.other('A')}.once")
        await eventually(
            lambda: streams_left(streams, "once"), within_seconds=PATIENCE_SECONDS, describe="an @at is purged"
        )
        assert {event.target for event in running.of(streams.name, FireReadBack)} >= {
            f"{streams.other(kind)}.run" for kind in KINDS
        }
        assert await account.messages(streams.name, f"{streams.name}.run") == []
        await streams.schedule("denied", "@every 1s", "elsewhere.run")
        assert "is not among the targets in other streams" in await rejection(streams, running, "denied")
        await streams.schedule("own", "@every 1s", f"{streams.name}.run")
        assert "name it in X-Nats-Schedule-Target" in await rejection(streams, running, "own")


async def streams_left(streams: Streams, rest: str) -> bool:
    """Return whether a schedule is gone."""
    return not await streams.account.messages(streams.name, f"{streams.name}.{rest}")


async def test_by_default_no_other_stream_is_reached(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    async with streams_on(account, stream_name) as streams, sidecar_on(emulated_server.url) as running:
        await running.ready(streams.name)
        await streams.schedule("s", "@every 1s", f"{streams.other('A')}.run")
        assert "that the operator allows on this stream: none" in await rejection(streams, running, "s")


async def test_a_native_stream_serves_it_with_the_portable_headers(
    native_server: EmbeddedServer, stream_name: str
) -> None:
    async with account_on(native_server.url) as account:
        streams = Streams(account, stream_name)
        async with sidecar_on(native_server.url, **streams.allowed) as running:
            await account.create(stream_name)
            await streams.create("B")
            await running.ready(stream_name)
            await streams.schedule("s", "@every 1s", f"{streams.other('B')}.run")
            await streams.fired("B", 2)
        for name in (stream_name, streams.other("B")):
            await account.api.call(f"STREAM.DELETE.{name}")


async def test_a_target_without_a_stream_fails_until_there_is_one(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    async with streams_on(account, stream_name) as streams:
        await account.api.call(f"STREAM.DELETE.{streams.other('A')}")
        async with sidecar_on(emulated_server.url, **streams.allowed) as running:
            await running.ready(streams.name)
            await streams.schedule("s", f"@at {in_seconds(1)}", f"{streams.other('A')}.run")
            await eventually(
                lambda: bool(running.of(streams.name, FireRefused)),
                within_seconds=PATIENCE_SECONDS,
                describe="the fire is refused",
            )
            assert running.of(streams.name, FireRefused)[0].code == 10059
            await streams.create("A")
            await streams.fired("A")


@pytest.fixture(params=EMULATED_VERSIONS)
async def crashing(request: pytest.FixtureRequest, start_server: StartServer) -> EmbeddedServer:
    """Start a server of its own, of each version that we fire for."""
    return await start_server(request.param)


async def test_no_crash_stores_a_fire_twice_beyond_the_duplicate_window(
    crashing: EmbeddedServer, tmp_path: Path
) -> None:
    """The windows last 200 ms, the sidecar stays away for longer, and others publish on the same target."""
    async with account_on(crashing.url) as account, streams_on(account, "CRON") as streams:
        for kind in KINDS:
            for number in range(SCHEDULES):
                await streams.schedule(f"{kind}.{number}", "@every 3s", f"{streams.other(kind)}.run")
        for life in range(4):
            with started(crashing.url, streams, tmp_path, life) as process:
                await killed_after_a_fire(process, streams)
            for kind in KINDS:
                await account.publish(f"{streams.other(kind)}.run", body=b"of others")
            dead_since = CLOCK.now()
            await eventually(
                lambda since=dead_since: CLOCK.now() > since + 2 * SHORT_WINDOW,  # type: ignore[misc]
                within_seconds=PATIENCE_SECONDS,
                describe="the duplicate window is over",
            )
        for kind in KINDS:
            identities = Counter(header_value(one.block, b"Nats-Msg-Id") for one in await streams.fires(kind))
            del identities[None]
            assert [identity for identity, count in identities.items() if count > 1] == []


async def killed_after_a_fire(process: ChildProcess, streams: Streams) -> None:
    """Kill a sidecar as soon as most schedules have fired: its checkpoint does not contain that yet."""
    since = CLOCK.now()

    async def most_fired() -> bool:
        found = [one for kind in KINDS for one in await streams.fires(kind) if one.stored_at > since]
        return len({header_value(one.block, b"X-Nats-Scheduler") for one in found} - {None}) > 2 * SCHEDULES

    await process.wait_for_line("stream_ready")
    await eventually(most_fired, within_seconds=PATIENCE_SECONDS, describe="most schedules fire")
    process.kill()


def started(url: str, streams: Streams, folder: Path, life: int) -> ChildProcess:
    """Start a sidecar as a process."""
    allowed = ",".join(streams.allowed["allowed_targets_elsewhere"])
    arguments = ("run", "--server", url, "--allowed-targets-elsewhere", allowed, "--log-format", "json")
    return sidecar(*arguments, folder=folder, name=f"life-{life}")


async def test_two_sidecars_divide_the_work_and_one_takes_over(crashing: EmbeddedServer, tmp_path: Path) -> None:
    """Neither sees what the other one stores, and none is taken for one that does not fire."""
    async with account_on(crashing.url) as account, streams_on(account, "CRON") as streams:
        for kind in KINDS:
            for number in range(SCHEDULES):
                await streams.schedule(f"{kind}.{number}", "@every 2s", f"{streams.other(kind)}.run")
        with (
            started(crashing.url, streams, tmp_path, 1) as first,
            started(crashing.url, streams, tmp_path, 2) as second,
        ):
            await eventually(
                lambda: is_divided(account), within_seconds=PATIENCE_SECONDS, describe="both hold a part of the stream"
            )
            for _ in range(3):
                await rounds(streams)
            first.kill()
            for _ in range(2):
                await rounds(streams)
            output = first.stderr + first.stdout + second.stderr + second.stdout
        assert "instance_not_firing" not in output
        for kind in KINDS:
            identities = Counter(header_value(one.block, b"Nats-Msg-Id") for one in await streams.fires(kind))
            assert [identity for identity, count in identities.items() if count > 1] == []


async def is_divided(account: Account) -> bool:
    """Return whether two instances hold all shards of the stream of schedules."""
    if await account.api.stream(BUCKET) is None:
        return False
    message = await account.api.message(BUCKET, last_by_subj="$KV.nats_scheduler.lease.emulated.CRON")
    parts = {} if message is None else parts_of(message)
    return len(parts) == 2 and sum(parts.values()) == SHARDS


async def rounds(streams: Streams) -> None:
    """Wait until each schedule has stored one more fire."""
    since = CLOCK.now()

    async def all_fired() -> bool:
        found = [one for kind in KINDS for one in await streams.fires(kind) if one.stored_at > since]
        return len({header_value(one.block, b"X-Nats-Scheduler") for one in found}) == len(KINDS) * SCHEDULES

    await eventually(all_fired, within_seconds=PATIENCE_SECONDS, describe="all schedules fire")


async def test_a_fire_that_other_nodes_have_is_found(tmp_path: Path) -> None:
    """An earlier sidecar stored it, and was killed before it could purge the schedule; others have published since."""
    async with running_cluster(V2_11, tmp_path) as cluster, account_on(cluster.nodes[0].url) as account:
        await account.create("CRON", metadata={"nats-scheduler.allow_msg_schedules": "true"}, storage="file")
        due = CLOCK.now() // SECOND * SECOND
        for name, replicas in (("A", 1), ("B", 3)):
            more = {"duplicate_window": SHORT_WINDOW, "num_replicas": replicas, "storage": "file"}
            await account.create(name, allow_msg_schedules=False, **more)
            pattern = f"@at {format_rfc3339(due)}"
            sequence = await account.publish(f"CRON.{name}", scheduled(pattern, f"{name}.run"))
            stamps = {"X-Nats-Scheduler": f"CRON.{name}", "X-Nats-Schedule-Next": "purge"}
            identity = fire_identity(f"CRON.{name}", sequence, due)
            await account.publish(f"{name}.run", {**stamps, "Nats-Msg-Id": identity})
            await account.publish(f"{name}.run", body=b"of others")
        stored_by = CLOCK.now()
        await eventually(
            lambda: CLOCK.now() > stored_by + 2 * SHORT_WINDOW,
            within_seconds=PATIENCE_SECONDS,
            describe="the duplicate window is over",
        )
        allowed = {"allowed_targets_elsewhere": ("CRON=A.>", "CRON=B.>")}
        async with sidecar_on(cluster.nodes[2].url, **allowed) as running:
            await running.ready("CRON")
            await eventually(
                lambda: nothing_left(account), within_seconds=PATIENCE_SECONDS, describe="both schedules are done"
            )
            assert [event.duplicate for event in running.of("CRON", FireStored)] == [True, True]
        for name in ("A", "B"):
            assert len(await account.messages(name, f"{name}.run")) == 2


async def nothing_left(account: Account) -> bool:
    """Return whether no schedule is left."""
    return not await account.messages("CRON", "CRON.>")
