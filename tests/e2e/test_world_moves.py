"""The world moves under a running sidecar: clocks, streams, configurations, versions.

The outcomes are those of `docs/concepts/when-things-move.md`.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import FireRefused, FiresMissed
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.instants import HOUR, MINUTE, SECOND
from tests.conftest import StartServer
from tests.harness.account import CLOCK, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FlaggedStream, Served, at, fire_time_of, left_out, served_on
from tests.harness.nats_cli import NatsCli
from tests.harness.permissions import accounts, url_of
from tests.harness.servers import V2_11, V2_14
from tests.harness.upgrades import Machine, machine_in
from tests.harness.waiting import eventually

STORED = {"storage": "file"}


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    """Run a machine without a server yet."""
    async with machine_in(tmp_path / "machine") as one:
        yield one


# -- clocks ----------------------------------------------------------------------------------------------------------


class SteppedClock(SystemClock):
    """The clock of a machine that somebody sets."""

    def __init__(self, ahead: int) -> None:
        self.ahead = ahead

    def now(self) -> int:
        """Return what the machine takes for the time."""
        return super().now() + self.ahead


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
    async with served_on(url, clock=clock, config=STORED) as served:
        due = CLOCK.now() + 2 * SECOND
        await served.schedule("at", at(due))
        await served.schedule("hour", f"@at {in_seconds(1800)}", target="half.an.hour")
        await served.schedule("every", "@every 1s", target="ticks")
        await served.wait_for("ticks")
        clock.ahead = after
        [fired] = await served.wait_for("out")
        ticks = await served.wait_for("ticks", 4)
        assert await served.messages("half.an.hour") == []
    assert fired.stored_at >= due, case
    await served.none_left_out(ticks, "every")
    assert all(tick.stored_at >= fire_time_of(tick) for tick in ticks), case


async def test_fires_keep_the_servers_time_whatever_the_clock_shows(start_server: StartServer) -> None:
    server = await start_server(V2_11, config=accounts([[] for _ in CLOCKS]))
    urls = [url_of(server.url, f"admin-{number}") for number in range(len(CLOCKS))]
    await asyncio.gather(*(expect_the_servers_time(url, case) for url, case in zip(urls, CLOCKS, strict=True)))


# -- streams ---------------------------------------------------------------------------------------------------------


async def test_a_stream_made_again_fires_only_its_own_schedules(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url, config=STORED) as served:
        await served.schedule("old", f"@at {in_seconds(1.5)}", b"old")
        await served.schedule("every", "@every 1s", b"old")
        await served.call("STREAM.DELETE")
        await served.account.create("S", **STORED)
        due = CLOCK.now() + 2 * SECOND
        sequence = await served.schedule("old", at(due), b"new")
        [fired] = await served.wait_for("out")
        await served.canary()
        assert [message.body for message in await served.messages("out")] == [b"new"]
        assert (sequence, b"Nats-Msg-Id: nats-scheduler:1:" in fired.block) == (1, True)


async def test_a_restored_stream_is_served_at_once(
    start_server: StartServer, nats_cli: NatsCli, tmp_path: Path
) -> None:
    server = await start_server(V2_11)
    cli = nats_cli.at(server.url)
    async with served_on(server.url, config=STORED) as served:
        await served.schedule("first", f"@at {in_seconds(0.3)}", b"first")
        await served.wait_for("out")
        due = CLOCK.now() + 4 * SECOND
        await served.schedule("second", at(due), b"second")
        await served.schedule("every", "@every 1s", target="ticks")
        await served.wait_for("ticks")
        await cli.run("stream", "backup", "S", str(tmp_path / "backup"))
        held = [fire_time_of(one) for one in await served.messages("ticks")]
        await served.call("STREAM.DELETE")
        await cli.run("stream", "restore", str(tmp_path / "backup"))
        await served.sidecar.ready("S", times=2)
        fired = await served.wait_for("out", 2)
        ticks = [fire_time_of(one) for one in await served.wait_for("ticks", len(held) + 3)]
    assert [message.body for message in fired] == [b"first", b"second"]
    assert fired[1].stored_at >= due
    assert ticks[: len(held)] == held
    assert ticks == sorted(set(ticks))


EDITS: dict[str, dict[str, Any]] = {
    "roll-ups-off": {"allow_rollup_hdrs": False},
    "purging-denied": {"allow_rollup_hdrs": False, "deny_purge": True},
    "deletes-denied": {"deny_delete": True},
    "an-age-limit": {"max_age": HOUR},
    "limits": {"max_msgs": 1000, "max_msgs_per_subject": 50, "max_msg_size": 2048},
    "discard-new": {"discard": "new"},
    "more-subjects": {"subjects": ["more-subjects.>", "more.>"]},
    "acknowledges-nothing": {"no_ack": True},
}


async def expect_fires_through(served: Served, name: str) -> None:
    """Show that fires go on when somebody edits the configuration so."""
    one = Served(served.account, name, served.sidecar)
    await one.account.create(name, **STORED)
    await one.sidecar.ready(name)
    await one.schedule("at", f"@at {in_seconds(1.5)}")
    await one.schedule("every", "@every 1s", target="ticks")
    before = len(await one.wait_for("ticks"))
    config = (await one.account.api.stream(name))["config"]
    await one.account.api.update_stream({**config, **EDITS[name]})
    ticks = await one.wait_for("ticks", before + 3)
    assert len(await one.wait_for("out")) == 1, name
    await one.none_left_out(ticks, "every")


async def test_an_edit_of_the_configuration_loses_and_doubles_no_fire(start_server: StartServer) -> None:
    server = await start_server(V2_11)
    async with served_on(server.url) as served:
        await asyncio.gather(*(expect_fires_through(served, name) for name in EDITS))


# -- versions --------------------------------------------------------------------------------------------------------


async def test_an_upgrade_ends_emulation_and_a_downgrade_resumes_it(
    machine: Machine, said: list[dict[str, Any]]
) -> None:
    url = await machine.install(V2_11)
    async with sidecar_on(url) as running:
        async with account_on(url) as account:
            stream = FlaggedStream(account, "S")
            await account.create("S", **STORED)
            await running.ready("S")
            await stream.schedule("every", "@every 1s", target="ticks")
            portable = {"X-Nats-Schedule": "@every 1s", "X-Nats-Schedule-Target": "S.portable"}
            await stream.publish("portable.schedule", portable)
            await stream.wait_for("ticks")
        await machine.stop()
        await machine.install(V2_14)
        upgraded_at = CLOCK.now()
        async with account_on(url) as account:
            stream = FlaggedStream(account, "S")
            # How often it was ready says nothing: a busy machine loses its contact, and is ready again.
            [line] = await eventually(
                lambda: [line for line in said if line.get("mode") is Mode.DORMANT],
                describe="the emulation of the stream ended",
            )
            assert (line["event"], line["log_level"]) == ("stream_served", "warning")
            await stream.wait_for("portable", len(await stream.messages("portable")) + 4)
            assert [one for one in await stream.messages("ticks") if one.stored_at > upgraded_at] == []
            assert running.of("S", FireRefused) == []
        await machine.install(V2_11)
        async with account_on(url) as account:
            stream = FlaggedStream(account, "S")
            await eventually(
                lambda: running.sidecar.served["S"].mode is Mode.EMULATED, describe="the stream is emulated again"
            )
            before = len(await stream.messages("ticks"))
            await stream.wait_for("ticks", before + 3)
            fires = {rest: await stream.messages(rest) for rest in ("ticks", "portable")}
    missed = running.of("S", FiresMissed)
    for rest, schedule in (("ticks", "S.every"), ("portable", "S.portable.schedule")):
        assert left_out(fires[rest], [one for one in missed if one.schedule == schedule]) == set()
