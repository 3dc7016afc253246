"""One stream of schedules for the targets in three others, on real servers."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import FireConfirmed, FireRefused, FireStored, ScheduleRejected
from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.cluster import running_cluster
from tests.harness.flagged import FLAG, FlaggedStream, at, served_on
from tests.harness.fleet import values
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import EMULATED_VERSIONS, V2_11
from tests.harness.waiting import eventually

SHORT_WINDOW = 200 * MILLISECOND
SCHEDULES = 4
"""Schedules for each of the three streams."""
KINDS: dict[str, dict[str, Any]] = {
    "A": {"retention": "limits"},
    "B": {"retention": "workqueue"},
    "C": {"retention": "limits", "max_msgs": 100_000},
}


@dataclass
class Streams(FlaggedStream):
    """A stream of schedules, and three others."""

    def other(self, kind: str) -> FlaggedStream:
        """Return one of the three."""
        return FlaggedStream(self.account, f"{self.name}_{kind}")

    @property
    def allowed(self) -> tuple[str, ...]:
        """The setting that allows all three."""
        return tuple(f"{self.name}={self.other(kind).name}.>" for kind in KINDS)

    async def create(self, kind: str) -> None:
        """Create one of the three."""
        more = {"allow_msg_schedules": False, "duplicate_window": SHORT_WINDOW, "storage": "file"}
        await self.account.create(self.other(kind).name, **KINDS[kind], **more)

    async def schedule_into(self, rest: str, pattern: str, target: str, body: bytes = b"body") -> int:
        """Store a schedule with a target that is named whole."""
        return await self.publish(rest, {"X-Nats-Schedule": pattern, "X-Nats-Schedule-X-Target": target}, body)

    async def schedule_each(self, pattern: str) -> None:
        """Store some schedules for each of the three."""
        for kind in KINDS:
            for number in range(SCHEDULES):
                await self.schedule_into(f"{kind}.{number}", pattern, self.other(kind).subject("run"))

    async def fires(self) -> list[StoredMessage]:
        """Return all fires in the other streams."""
        found = [one for kind in KINDS for one in await self.other(kind).messages("run")]
        return [one for one in found if header_value(one.block, MSG_ID)]

    async def fired_since(self, since: int, count: int = SCHEDULES * len(KINDS)) -> None:
        """Wait until so many schedules have stored one more fire."""

        async def are_so_many() -> bool:
            later = [one for one in await self.fires() if one.stored_at > since]
            return len({header_value(one.block, b"X-Nats-Scheduler") for one in later}) >= count

        await eventually(are_so_many, describe=f"{count} schedules fire")

    async def expect_no_fire_twice(self) -> None:
        """Show that no identity is stored twice."""
        identities = Counter(header_value(one.block, MSG_ID) for one in await self.fires())
        assert [identity for identity, count in identities.items() if count > 1] == []


@asynccontextmanager
async def streams_on(account: Account, name: str) -> AsyncIterator[Streams]:
    """Create all four, and delete them at the end."""
    streams = Streams(account, name)
    await account.create(name, storage="file", **FLAG)
    for kind in KINDS:
        await streams.create(kind)
    yield streams
    for one in (streams, *map(streams.other, KINDS)):
        await one.call("STREAM.DELETE")


async def expect_rejected(streams: Streams, running: Running, reasons: dict[str, str]) -> None:
    """Wait until schedules are rejected, each for its reason."""
    events = await running.reported(streams.name, ScheduleRejected, len(reasons))
    found = {event.schedule.removeprefix(f"{streams.name}."): str(event.rejection) for event in events}
    assert {rest: reason in found[rest] for rest, reason in reasons.items()} == dict.fromkeys(reasons, True), found


async def test_schedules_of_one_stream_fire_into_three_others(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    async with (
        streams_on(account, stream_name) as streams,
        sidecar_on(emulated_server.url, allowed_targets_elsewhere=streams.allowed) as running,
    ):
        await running.ready(streams.name)
        targets = {kind: streams.other(kind).subject("run") for kind in KINDS}
        sequences = {
            kind: await streams.schedule_into(kind, "@every 1s", target, b"of " + kind.encode())
            for kind, target in targets.items()
        }
        await streams.schedule_into("once", f"@at {in_seconds(1)}", streams.other("A").subject("once"))
        for kind, sequence in sequences.items():
            first, second = (await streams.other(kind).wait_for("run", 2))[:2]
            assert first.body == b"of " + kind.encode()
            assert (header_value(first.block, MSG_ID) or b"").startswith(b"nats-scheduler:%d:" % sequence)
            assert first.sequence < second.sequence
            assert b"Nats-Expected" not in first.block
        await streams.other("A").wait_for("once")
        await streams.gone("once")
        assert {event.target for event in running.of(streams.name, FireConfirmed)} >= set(targets.values())
        assert await streams.messages("run") == []
        await streams.schedule_into("denied", "@every 1s", "elsewhere.run")
        await streams.schedule_into("own", "@every 1s", streams.subject("run"))
        reasons = {
            "denied": "is not among the targets in other streams",
            "own": "name it in X-Nats-Schedule-Target",
        }
        await expect_rejected(streams, running, reasons)


async def test_by_default_no_other_stream_is_reached(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    async with streams_on(account, stream_name) as streams, sidecar_on(emulated_server.url) as running:
        await running.ready(streams.name)
        await streams.schedule_into("s", "@every 1s", streams.other("A").subject("run"))
        await expect_rejected(streams, running, {"s": "that the operator allows on this stream: none"})


async def test_a_native_stream_serves_it_with_the_portable_headers(
    native_server: EmbeddedServer, stream_name: str
) -> None:
    """A target without a stream fails until there is one."""
    async with account_on(native_server.url) as account:
        streams = Streams(account, stream_name)
        async with sidecar_on(native_server.url, allowed_targets_elsewhere=streams.allowed) as running:
            await account.create(stream_name)
            await running.ready(stream_name)
            await streams.schedule_into("s", f"@at {in_seconds(0.5)}", streams.other("B").subject("run"))
            assert (await running.reported(stream_name, FireRefused))[0].code == 10059
            await streams.create("B")
            await streams.other("B").wait_for("run")
        for one in (streams, streams.other("B")):
            await one.call("STREAM.DELETE")


def started(url: str, streams: Streams, folder: Path, name: str) -> ChildProcess:
    """Start a sidecar as a process."""
    allowed = ("--allowed-targets-elsewhere", ",".join(streams.allowed))
    return sidecar("run", "--server", url, *allowed, "--log-format", "json", folder=folder, name=name)


async def windows_are_over() -> None:
    """Wait until no stream knows the identity of what is stored now."""
    since = CLOCK.now()
    await eventually(lambda: CLOCK.now() > since + 2 * SHORT_WINDOW)


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_no_crash_stores_a_fire_twice_beyond_the_duplicate_window(
    start_server: StartServer, tmp_path: Path, version: str
) -> None:
    """The windows last 200 ms, the sidecar stays away for longer, and others publish on the same target."""
    server = await start_server(version)
    async with account_on(server.url) as account, streams_on(account, "CRON") as streams:
        await streams.schedule_each("@every 3s")
        for life in range(3):
            with started(server.url, streams, tmp_path, f"life-{life}") as process:
                await process.wait_for_line("stream_ready")
                # The checkpoint does not contain what was just fired.
                await streams.fired_since(CLOCK.now(), 2 * SCHEDULES + 1)
            for kind in KINDS:
                await streams.other(kind).publish("run", body=b"of others")
            await windows_are_over()
        await streams.expect_no_fire_twice()


@asynccontextmanager
async def standby(url: str, owner: str, settings: dict[str, Any]) -> AsyncIterator[Running]:
    """Run a sidecar that comes after the owner in the order of the stream."""
    while True:
        async with sidecar_on(url, **settings) as running:
            if order_of("emulated.CRON", [owner, running.sidecar.instance])[0] == owner:
                yield running
                return


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_the_standby_takes_over_and_suspects_nobody_meanwhile(
    start_server: StartServer, tmp_path: Path, version: str
) -> None:
    """It does not see what the owner stores, and does not take it for one that does not fire."""
    server = await start_server(version)
    async with account_on(server.url) as account, streams_on(account, "CRON") as streams:
        await streams.schedule_each("@every 2s")
        settings = {"allowed_targets_elsewhere": streams.allowed}

        async def owner() -> str:
            return str((await values(account, "owner")).get("emulated.CRON", {}).get("owner", ""))

        with started(server.url, streams, tmp_path, "first") as first:
            name = await eventually(owner, describe="it owns the stream")
            async with standby(server.url, name, settings) as second:
                await second.ready("CRON")
                for _ in range(3):
                    await streams.fired_since(CLOCK.now())
                assert await owner() == name
                first.kill()
                for _ in range(2):
                    await streams.fired_since(CLOCK.now())
                assert "instance_not_firing" not in first.stderr + str(second.problems)
        await streams.expect_no_fire_twice()


async def test_a_fire_that_other_nodes_have_is_found(tmp_path: Path) -> None:
    """An earlier sidecar stored it, and was killed before it could purge the schedule; others have published since."""
    async with running_cluster(V2_11, tmp_path) as cluster, account_on(cluster.nodes[0].url) as account:
        cron, due = FlaggedStream(account, "CRON"), CLOCK.now() // SECOND * SECOND
        await account.create("CRON", storage="file", **FLAG)
        targets = [FlaggedStream(account, "A"), FlaggedStream(account, "B")]
        for one, replicas in zip(targets, (1, 3), strict=True):
            more = {"duplicate_window": SHORT_WINDOW, "num_replicas": replicas, "storage": "file"}
            await account.create(one.name, allow_msg_schedules=False, **more)
            headers = {"X-Nats-Schedule": at(due), "X-Nats-Schedule-X-Target": one.subject("run")}
            sequence = await cron.publish(one.name, headers)
            stamps = {"X-Nats-Scheduler": cron.subject(one.name), "X-Nats-Schedule-Next": "purge"}
            identity = fire_identity(cron.subject(one.name), sequence, due)
            await one.publish("run", {**stamps, "Nats-Msg-Id": identity})
            await one.publish("run", body=b"of others")
        await windows_are_over()
        allowed = ("CRON=A.>", "CRON=B.>")
        async with served_on(cluster.nodes[2].url, "CRON", allowed_targets_elsewhere=allowed) as served:
            await served.gone(">")
            assert [event.duplicate for event in served.of(FireStored)] == [True, True]
        assert [len(await one.messages("run")) for one in targets] == [2, 2]
