"""One stream of schedules for the targets in two others, on real servers."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from nats_scheduler.engine.events import FireConfirmed, ScheduleRejected
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import MILLISECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, Account, Running, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FLAG, FlaggedStream
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually, instant_reached

SHORT_WINDOW = 200 * MILLISECOND
SCHEDULES = 4
"""Schedules for each of the others."""
OTHERS = {"A": "limits", "B": "workqueue"}


@dataclass
class Streams(FlaggedStream):
    """A stream of schedules, and two others."""

    def other(self, kind: str) -> FlaggedStream:
        """Return one of the others."""
        return FlaggedStream(self.account, f"{self.name}_{kind}")

    @property
    def allowed(self) -> tuple[str, ...]:
        """The setting that allows both."""
        return tuple(f"{self.name}={self.other(kind).name}.>" for kind in OTHERS)

    async def schedule_into(self, rest: str, pattern: str, target: str) -> int:
        """Store a schedule with a target that is named whole."""
        return await self.publish(rest, {"X-Nats-Schedule": pattern, "X-Nats-Schedule-X-Target": target})

    async def fires(self) -> list[StoredMessage]:
        """Return all fires in the other streams."""
        found = [one for kind in OTHERS for one in await self.other(kind).messages("run")]
        return [one for one in found if header_value(one.block, MSG_ID)]


@asynccontextmanager
async def streams_on(account: Account, name: str) -> AsyncIterator[Streams]:
    """Create all three, and delete them at the end."""
    streams = Streams(account, name)
    await account.create(name, storage="file", **FLAG)
    more = {"allow_msg_schedules": False, "duplicate_window": SHORT_WINDOW, "storage": "file"}
    for kind, retention in OTHERS.items():
        await account.create(streams.other(kind).name, retention=retention, **more)
    yield streams
    for one in (streams, *map(streams.other, OTHERS)):
        await one.call("STREAM.DELETE")


async def expect_rejected(streams: Streams, running: Running, rest: str, reason: str) -> None:
    """Wait until a schedule is rejected for this reason."""

    def is_rejected() -> bool:
        events = running.of(streams.name, ScheduleRejected)
        return any(one.schedule == streams.subject(rest) and reason in str(one.rejection) for one in events)

    await eventually(is_rejected, describe=f"{rest} is rejected: {reason}")


async def test_schedules_of_one_stream_fire_into_others(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    async with (
        streams_on(account, stream_name) as streams,
        sidecar_on(emulated_server.url, allowed_targets_elsewhere=streams.allowed) as running,
    ):
        await running.ready(streams.name)
        for kind in OTHERS:
            sequence = await streams.schedule_into(kind, "@every 1s", streams.other(kind).subject("run"))
            first = (await streams.other(kind).wait_for("run", 2))[0]
            assert (header_value(first.block, MSG_ID) or b"").startswith(b"nats-scheduler:%d:" % sequence)
            assert b"Nats-Expected" not in first.block
        await streams.schedule_into("once", f"@at {in_seconds(1)}", streams.other("A").subject("once"))
        await streams.other("A").wait_for("once")
        await streams.gone("once")
        targets = {streams.other(kind).subject("run") for kind in OTHERS}
        assert {event.target for event in running.of(streams.name, FireConfirmed)} >= targets
        assert await streams.messages("run") == []
        await streams.schedule_into("denied", "@every 1s", "elsewhere.run")
        await expect_rejected(streams, running, "denied", "is not among the targets in other streams")
        await streams.schedule_into("own", "@every 1s", streams.subject("run"))
        await expect_rejected(streams, running, "own", "name it in X-Nats-Schedule-Target")


async def test_by_default_no_other_stream_is_reached(
    emulated_server: EmbeddedServer, account: Account, stream_name: str
) -> None:
    async with streams_on(account, stream_name) as streams, sidecar_on(emulated_server.url) as running:
        await running.ready(streams.name)
        await streams.schedule_into("s", "@every 1s", streams.other("A").subject("run"))
        await expect_rejected(streams, running, "s", "that the operator allows on this stream: none")


async def test_no_crash_doubles_a_fire_beyond_the_duplicate_window(start_server: StartServer, tmp_path: Path) -> None:
    """The windows last 200 ms, the sidecar stays away for longer, and others publish on the same target."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account, streams_on(account, "CRON") as streams:
        for kind in OTHERS:
            for number in range(SCHEDULES):
                await streams.schedule_into(f"{kind}.{number}", "@every 3s", streams.other(kind).subject("run"))
        for life in range(3):
            allowed = ("--allowed-targets-elsewhere", ",".join(streams.allowed))
            with sidecar("run", "-s", server.url, *allowed, folder=tmp_path, name=f"life-{life}") as process:
                await process.wait_for_line("stream_ready")
                since = CLOCK.now()

                async def most_have_fired(since: int = since) -> bool:
                    """Return whether there are fires that no checkpoint contains yet."""
                    later = [one for one in await streams.fires() if one.stored_at > since]
                    return len({header_value(one.block, b"X-Nats-Scheduler") for one in later}) > SCHEDULES

                await eventually(most_have_fired, describe="most schedules fire")
            for kind in OTHERS:
                await streams.other(kind).publish("run", body=b"of others")
            await instant_reached(CLOCK.now() + 2 * SHORT_WINDOW, CLOCK.now)
        identities = Counter(header_value(one.block, MSG_ID) for one in await streams.fires())
        assert [identity for identity, count in identities.items() if count > 1] == []
