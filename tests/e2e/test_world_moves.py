"""The world moves under a running sidecar: clocks, streams, configurations, versions.

The outcomes are those of `docs/concepts/when-things-move.md`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import FireRefused
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.connection import ConnectionSettings
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.conftest import StartServer
from tests.harness.account import CLOCK, WAIT_SECONDS, Running, account_on, in_seconds, sidecar_on, sidecar_with
from tests.harness.flagged import FlaggedStream
from tests.harness.log_lines import capture_logs
from tests.harness.nats_cli import NatsCli
from tests.harness.servers import EMULATED_VERSIONS, V2_11, V2_14
from tests.harness.upgrades import Machine, machine_in
from tests.harness.waiting import eventually

SOON_SECONDS = 15.0
Lines = list[dict[str, Any]]


class SteppedClock(SystemClock):
    """The clock of a machine that somebody sets."""

    def __init__(self, ahead: int = 0) -> None:
        self.ahead = ahead

    def now(self) -> int:
        """Return what the machine takes for the time."""
        return super().now() + self.ahead


@dataclass
class ServedFromMachine(FlaggedStream):
    """A flagged stream, and the sidecar that serves it."""

    sidecar: Running
    url: str


@asynccontextmanager
async def served_on(url: str, clock: SteppedClock, **config: Any) -> AsyncIterator[ServedFromMachine]:
    """Serve a flagged stream from a machine with this clock."""
    settings = SidecarSettings(connection=ConnectionSettings(servers=(url,)))
    async with account_on(url) as account, sidecar_with(settings, clock) as running:
        await account.create("S", storage="file", **config)
        await running.ready("S")
        yield ServedFromMachine(account, "S", running, url)


@pytest.fixture
def said() -> Iterator[Lines]:
    """Collect what is logged."""
    with capture_logs() as lines:
        yield lines


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    """Run a machine without a server yet."""
    async with machine_in(tmp_path / "machine") as one:
        yield one


def seconds_of(fires: list[Any]) -> list[int]:
    """Return for which seconds messages were generated, from their identities."""
    return [int(one.block.split(b"nats-scheduler:")[1].split(b":")[1]) // SECOND for one in fires]


# -- clocks ----------------------------------------------------------------------------------------------------------


class StoppedClock(SystemClock):
    """The clock of a process that somebody stops."""

    def __init__(self) -> None:
        self.stopped_for = 0

    def monotonic(self) -> int:
        """Return what has passed, the stop included."""
        return super().monotonic() + self.stopped_for


async def test_what_waited_while_the_process_stood_still_is_not_sent_when_it_wakes_up(
    start_server: StartServer,
) -> None:
    """Beyond the duplicate window the server would store again what others have fired meanwhile."""
    server = await start_server(V2_11)
    clock = StoppedClock()
    settings = SidecarSettings(connection=ConnectionSettings(servers=(server.url,)))
    async with account_on(server.url) as account, sidecar_with(settings, clock) as running:
        stream = FlaggedStream(account, "S")
        await account.create("S")
        await running.ready("S")
        clock.stopped_for += MINUTE
        assert "stood still for 6" in (await running.told_of("connection_lost"))["reason"]
        await stream.schedule("s", f"@at {in_seconds(0.3)}")
        await stream.wait_for("out")


CLOCKS = {
    "is stepped forwards": (0, HOUR),
    "is stepped back": (0, -HOUR),
    "is ahead": (5 * MINUTE, 5 * MINUTE),
    "is behind": (-5 * MINUTE, -5 * MINUTE),
}
"""The lead (ns) of the machine's clock over the server's, before and after something was fired."""


async def expect_the_servers_time(url: str, case: str) -> None:
    """Show that fires keep the server's time whatever the clock of the machine shows."""
    before, after = CLOCKS[case]
    clock = SteppedClock(before)
    async with served_on(url, clock) as served:
        due = CLOCK.now() + 2 * SECOND
        await served.schedule("at", f"@at {format_rfc3339(due)}")
        await served.schedule("hour", f"@at {in_seconds(1800)}", target="half.an.hour")
        await served.schedule("every", "@every 1s", target="ticks")
        await served.wait_for("ticks")
        clock.ahead = after
        [fired] = await served.wait_for("out")
        ticks = await served.wait_for("ticks", 4)
        assert await served.messages("half.an.hour") == []
    print(f"the clock {case}: late by {(fired.stored_at - due) / 1e6:.1f} ms")
    assert 0 <= fired.stored_at - due < SOON_SECONDS * SECOND
    seconds = seconds_of(ticks)
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds))), case
    assert all(tick.stored_at // SECOND >= second for tick, second in zip(ticks, seconds, strict=True)), case


@pytest.mark.parametrize("version", EMULATED_VERSIONS)
async def test_whatever_the_clock_of_the_machine_shows_fires_keep_the_servers_time(
    start_server: StartServer, version: str
) -> None:
    servers = [await start_server(version) for _ in CLOCKS]
    await asyncio.gather(
        *(expect_the_servers_time(server.url, case) for server, case in zip(servers, CLOCKS, strict=True))
    )


# -- streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_made_again_fires_its_own_schedules_and_none_of_the_first(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, SteppedClock()) as served:
        await served.schedule("old", f"@at {in_seconds(1.5)}", b"old")
        await served.schedule("every", "@every 1s", b"old")
        await served.call("STREAM.DELETE")
        await served.account.create("S", storage="file")
        await served.schedule("new", f"@at {in_seconds(2)}", b"new")
        assert [message.body for message in await served.wait_for("out")] == [b"new"]
        await served.canary(1.0)
        assert [message.body for message in await served.wait_for("out")] == [b"new"]


async def test_a_restored_stream_is_served_at_once_and_what_had_not_fired_in_it_fires(
    start_server: StartServer, nats_cli: NatsCli, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    cli = nats_cli.at(server.url)
    async with served_on(server.url, SteppedClock()) as served:
        await served.schedule("first", f"@at {in_seconds(0.3)}", b"first")
        await served.wait_for("out")
        due = CLOCK.now() + 4 * SECOND
        await served.schedule("second", f"@at {format_rfc3339(due)}", b"second")
        await served.schedule("every", "@every 1s", target="ticks")
        await served.wait_for("ticks")
        await cli.run("stream", "backup", "S", str(tmp_path / "backup"))
        held = seconds_of(await served.messages("ticks"))
        await served.call("STREAM.DELETE")
        await cli.run("stream", "restore", str(tmp_path / "backup"))
        restored_at = CLOCK.now()
        await served.sidecar.ready("S", times=2)
        print(f"served {(CLOCK.now() - restored_at) / 1e9:.2f} s after the restore")
        fired = await served.wait_for("out", 2)
        ticks = seconds_of(await served.wait_for("ticks", len(held) + 3))
    assert [message.body for message in fired] == [b"first", b"second"]
    assert fired[1].stored_at >= due
    assert ticks[: len(held)] == held
    assert len(set(ticks)) == len(ticks)
    assert ticks == sorted(ticks)


EDITS: dict[str, dict[str, Any]] = {
    "roll-ups off": {"allow_rollup_hdrs": False},
    "purging denied": {"allow_rollup_hdrs": False, "deny_purge": True},
    "deletes denied": {"deny_delete": True},
    "an age limit": {"max_age": HOUR},
    "limits": {"max_msgs": 1000, "max_msgs_per_subject": 50, "max_msg_size": 2048},
    "discard new": {"discard": "new"},
    "more subjects": {"subjects": ["S.>", "more.>"]},
    "acknowledges nothing": {"no_ack": True},
}


async def expect_fires_through(url: str, edit: str) -> None:
    """Show that fires go on when somebody edits the configuration so."""
    async with served_on(url, SteppedClock()) as served:
        await served.schedule("at", f"@at {in_seconds(1.5)}")
        await served.schedule("every", "@every 1s", target="ticks")
        before = len(await served.wait_for("ticks"))
        config = (await served.account.api.stream("S"))["config"]
        await served.account.api.update_stream({**config, **EDITS[edit]})
        seconds = seconds_of(await served.wait_for("ticks", before + 3))
        assert len(await served.wait_for("out")) == 1, edit
    assert seconds == list(range(seconds[0], seconds[0] + len(seconds))), edit


async def test_an_edit_of_the_configuration_neither_loses_nor_doubles_a_fire(start_server: StartServer) -> None:
    servers = [await start_server(V2_11) for _ in EDITS]
    await asyncio.gather(*(expect_fires_through(server.url, edit) for server, edit in zip(servers, EDITS, strict=True)))


# -- versions --------------------------------------------------------------------------------------------------------


async def test_an_upgrade_ends_emulation_loudly_and_a_downgrade_resumes_it(machine: Machine, said: Lines) -> None:
    url = await machine.install(V2_11)
    async with sidecar_on(url) as running:
        async with account_on(url) as account:
            stream = FlaggedStream(account, "S")
            await account.create("S", storage="file")
            await running.ready("S")
            await stream.schedule("every", "@every 1s", target="ticks")
            portable = {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-Target": "S.portable"}
            await stream.publish("portable.schedule", portable)
            await stream.schedule("at", f"@at {in_seconds(3)}")
            await stream.wait_for("ticks")
        await machine.install(V2_14)
        upgraded_at = CLOCK.now()
        async with account_on(url) as account:
            stream = FlaggedStream(account, "S")
            # How often it was ready says nothing: a busy machine loses its contact, and is ready again.
            [line] = await eventually(
                lambda: [line for line in said if line.get("mode") is Mode.DORMANT],
                within_seconds=WAIT_SECONDS,
                describe="the emulation of the stream ended",
            )
            assert (line["event"], line["log_level"]) == ("stream_served", "warning")
            await stream.wait_for("portable", len(await stream.messages("portable")) + 4)
            assert [one for one in await stream.messages("ticks") if one.stored_at > upgraded_at] == []
            assert (await stream.messages("out"), running.of("S", FireRefused)) == ([], [])
        await machine.install(V2_11)
        async with account_on(url) as account:
            stream = FlaggedStream(account, "S")
            await eventually(
                lambda: running.sidecar.served["S"].mode is Mode.EMULATED,
                within_seconds=WAIT_SECONDS,
                describe="the stream is emulated again",
            )
            [_once] = await stream.wait_for("out")
            ticks = seconds_of(await stream.wait_for("ticks", len(await stream.messages("ticks")) + 3))
            portable_seconds = seconds_of(await stream.messages("portable"))
    for seconds in (ticks, portable_seconds):
        assert len(set(seconds)) == len(seconds), seconds
        assert seconds == sorted(seconds)


# -- the registry ----------------------------------------------------------------------------------------------------


async def test_without_the_bucket_fires_go_on_and_the_next_start_makes_it_again(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, SteppedClock()) as served:
        await served.schedule("every", "@every 1s", target="ticks")
        await served.wait_for("ticks")
        await served.account.api.call("STREAM.DELETE.KV_nats_scheduler")
        seen = len(await served.messages("ticks"))
        await served.wait_for("ticks", seen + 2)
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await running.ready("S")
        stream = FlaggedStream(account, "S")
        seconds = seconds_of(await stream.wait_for("ticks", len(await stream.messages("ticks")) + 2))
        assert await account.api.stream("KV_nats_scheduler") is not None
    assert len(set(seconds)) == len(seconds)
