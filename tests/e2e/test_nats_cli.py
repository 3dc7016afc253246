"""The commands that a user types into the `nats` CLI work as typed, on servers without schedules of their own."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import Ending, ScheduleAccepted, ScheduleEnded, ScheduleRejected
from nats_scheduler.jetstream.streams import METADATA_FLAG
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import HOUR, SECOND
from tests.conftest import SharedServer
from tests.e2e.conftest import Served
from tests.harness.account import Account, account_on, in_seconds, sidecar_on
from tests.harness.nats_cli import NatsCli
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

SOON_SECONDS = 30.0


@dataclass
class Terminal(Served):
    """A user's terminal beside a sidecar."""

    nats: NatsCli

    def file(self, file: str, **config: Any) -> str:
        """Write a stream file and return its name, as it is typed."""
        wanted = {
            "name": self.name,
            "subjects": [f"{self.name}.>"],
            "retention": "limits",
            "storage": "memory",
            "discard": "old",
            "max_age": HOUR,
            "num_replicas": 1,
            **config,
        }
        Path(self.nats.home, file).write_text(json.dumps(wanted), "utf-8")
        return file

    async def add_stream(self) -> None:
        """Type the command that makes a flagged stream."""
        await self.nats.run("stream", "add", "--config", self.file("orders.json", **FLAGGED))
        await self.sidecar.ready(self.name)

    async def pub(self, rest: str, *flags: str, target: str = "out") -> str:
        """Type `nats pub` with schedule flags."""
        return await self.nats.run(
            "pub", self.subject(rest), "hello", *flags, "--schedule-dest", self.subject(target), "--quiet"
        )

    async def config(self) -> dict[str, Any]:
        """Return the stream's configuration as the CLI shows it."""
        told: dict[str, Any] = json.loads(await self.nats.run("stream", "info", self.name, "--json"))["config"]
        return told

    async def served_config(self) -> dict[str, Any]:
        """Wait until the stream is served, and return its configuration."""
        await self.sidecar.ready(self.name)
        return await self.config()

    async def ended(self, rest: str) -> Ending:
        """Wait until the schedule on a subject has ended and return why."""
        endings: list[Ending] = await eventually(
            lambda: [e.ending for e in self.sidecar.of(self.name, ScheduleEnded) if e.schedule == self.subject(rest)],
            within_seconds=SOON_SECONDS,
            describe=f"the schedule on {rest} ends",
        )
        return endings[-1]


FLAGGED = {"allow_msg_schedules": True, "allow_msg_ttl": True}


@pytest.fixture
async def terminal(
    emulated_server: EmbeddedServer, account: Account, nats_cli: NatsCli, stream_name: str
) -> AsyncIterator[Terminal]:
    """Run a sidecar, and give the user a terminal; the stream is for the test to make."""
    nats = nats_cli.at(emulated_server.url)
    async with sidecar_on(emulated_server.url) as running:
        yield Terminal(account, stream_name, running, emulated_server.version, nats)
        await account.api.call(f"STREAM.DELETE.{stream_name}")


# -- streams -------------------------------------------------------------------------------------------------------


async def test_stream_add_with_the_flag_in_the_file_is_all_that_a_stream_needs(terminal: Terminal) -> None:
    await terminal.nats.run(
        "stream", "add", "--config", terminal.file("orders.json", metadata={"team": "shop"}, **FLAGGED)
    )
    config = await terminal.served_config()
    assert config["metadata"]["team"] == "shop"
    assert (config["max_age"], config["allow_rollup_hdrs"]) == (HOUR, False)
    await terminal.pub("s", "--schedule-at", in_seconds(0))
    [fired] = await terminal.wait_for("out")
    assert fired.body == b"hello"


async def test_stream_add_with_the_flag_typed_is_served(terminal: Terminal) -> None:
    typed = ("--subjects", f"{terminal.name}.>", "--storage", "memory", "--allow-schedules", "--defaults")
    await terminal.nats.run("stream", "add", terminal.name, *typed)
    await terminal.pub("s", "--schedule-at", in_seconds(0))
    assert await terminal.wait_for("out")


async def test_stream_edit_switches_the_flag_on(terminal: Terminal) -> None:
    await terminal.nats.run("stream", "add", "--config", terminal.file("plain.json"))
    await terminal.nats.run("stream", "edit", terminal.name, "--force", "--allow-schedules", "--description", "mine")
    config = await terminal.served_config()
    assert config["description"] == "mine"
    await terminal.pub("s", "--schedule-at", in_seconds(0))
    assert await terminal.wait_for("out")


async def test_the_flag_survives_an_edit_by_a_file_without_it(terminal: Terminal) -> None:
    await terminal.add_stream()
    more = [f"{terminal.name}.>", f"{terminal.name}-more.>"]
    without = terminal.file("without.json", subjects=more, max_age=2 * HOUR, allow_msg_ttl=True)
    await terminal.nats.run("stream", "edit", terminal.name, "--force", "--config", without)
    config = await terminal.config()
    assert (config["subjects"], config["max_age"]) == (more, 2 * HOUR)
    fires = ("--schedule-at", in_seconds(0), "--schedule-dest", f"{terminal.name}-more.out")
    await terminal.nats.run("pub", terminal.subject("s"), "hello", *fires)
    assert await terminal.account.wait_for(terminal.name, f"{terminal.name}-more.out")


async def test_the_flag_survives_an_edit_by_flags(terminal: Terminal) -> None:
    await terminal.add_stream()
    await terminal.nats.run("stream", "edit", terminal.name, "--force", "--description", "new", "--max-msgs", "1000")
    config = await terminal.config()
    assert (config["description"], config["max_msgs"]) == ("new", 1000)
    await terminal.pub("s", "--schedule-at", in_seconds(0))
    assert await terminal.wait_for("out")


# -- schedules -----------------------------------------------------------------------------------------------------


async def test_pub_with_the_headers_typed_fires(terminal: Terminal) -> None:
    await terminal.add_stream()
    pattern, target = f"Nats-Schedule: @at {in_seconds(0.2)}", f"Nats-Schedule-Target: {terminal.subject('out')}"
    said = await terminal.nats.run("pub", "-J", "-H", pattern, "-H", target, terminal.subject("s"), "hello")
    assert f"Stored in Stream: {terminal.name}" in said
    [fired] = await terminal.wait_for("out")
    assert fired.body == b"hello"


async def test_pub_with_a_repeating_schedule_fires_again_and_again(terminal: Terminal) -> None:
    await terminal.add_stream()
    await terminal.pub("s.every", "--schedule-every", "1s", target="out.every")
    await terminal.pub("s.cron", "--schedule-cron", "* * * * * *", target="out.cron")
    await terminal.pub("s.names", "--schedule-cron", "*/1 * * ? JAN-DEC sun-sat", target="out.names")
    for rest in ("every", "cron", "names"):
        fired = await terminal.wait_for(f"out.{rest}", 2)
        assert len({message.stored_at // SECOND for message in fired}) == len(fired)


async def test_pub_takes_an_alias_behind_an_equals_sign(terminal: Terminal) -> None:
    """As the CLI does: `@hourly` as a word of its own would name a file with more arguments."""
    await terminal.add_stream()
    await terminal.pub("s", "--schedule-cron=@hourly")
    accepted = await eventually(lambda: terminal.sidecar.of(terminal.name, ScheduleAccepted), within_seconds=30)
    assert [event.schedule for event in accepted] == [terminal.subject("s")]
    assert accepted[0].due % HOUR == 0


async def test_pub_with_a_source_samples_it_and_with_a_ttl_stamps_it(terminal: Terminal) -> None:
    await terminal.add_stream()
    await terminal.nats.run("pub", "-J", "-H", "Unit: C", terminal.subject("sensor"), "20.5")
    source = ("--schedule-source", terminal.subject("sensor"), "--schedule-ttl", "90s")
    await terminal.pub("s", "--schedule-at", in_seconds(0), *source)
    [fired] = await terminal.wait_for("out")
    assert fired.body == b"20.5"
    assert b"Unit: C\r\n" in fired.block
    assert b"Nats-TTL: 1m30s\r\n" in fired.block


async def test_the_bare_time_of_schedule_after_is_rejected_and_the_reason_says_what_is_missing(
    terminal: Terminal,
) -> None:
    await terminal.add_stream()
    await terminal.pub("s", "--schedule-after", "1s")
    [event] = await eventually(lambda: terminal.sidecar.of(terminal.name, ScheduleRejected), within_seconds=30)
    assert (event.schedule, event.rejection.code) == (terminal.subject("s"), 10189)
    assert "write '@at " in event.rejection.reason
    await terminal.schedule("canary", f"@at {in_seconds(1.2)}", target="canary.out")
    await terminal.wait_for("canary.out")
    assert await terminal.messages("out") == []
    assert await terminal.messages("s"), "what is rejected stays where it is"


async def test_stream_get_shows_a_schedule_and_what_it_fired(terminal: Terminal) -> None:
    await terminal.add_stream()
    await terminal.pub("s", "--schedule-every", "1s")
    await terminal.wait_for("out")
    schedule = await terminal.nats.run("stream", "get", terminal.name, "1")
    assert "Nats-Schedule: @every 1s" in schedule
    fired = await terminal.nats.run("stream", "get", terminal.name, "--last-for", terminal.subject("out"))
    assert f"Nats-Scheduler: {terminal.subject('s')}" in fired
    assert "hello" in fired


async def test_schedules_that_stream_purge_and_stream_rmm_removed_never_fire(terminal: Terminal) -> None:
    await terminal.add_stream()
    due = in_seconds(2)
    await terminal.pub("deleted", "--schedule-at", due)
    await terminal.pub("purged", "--schedule-at", due)
    await terminal.nats.run("stream", "rmm", terminal.name, "1", "--force")
    await terminal.nats.run("stream", "purge", terminal.name, "--subject", terminal.subject("purged"), "--force")
    await terminal.schedule("canary", f"@at {in_seconds(2)}", target="canary.out")
    await terminal.wait_for("canary.out")
    assert await terminal.messages("out") == []
    assert [await terminal.ended(rest) for rest in ("deleted", "purged")] == [Ending.REMOVED, Ending.REMOVED]


async def test_sub_sees_a_fire_as_it_sees_any_message(terminal: Terminal) -> None:
    await terminal.add_stream()
    with terminal.nats.start("sub", terminal.subject("out"), "--count", "1") as subscriber:
        await subscriber.wait_for_line("Subscribing")
        await terminal.pub("s", "--schedule-every", "1s")
        await subscriber.wait_for_line(f"Nats-Scheduler: {terminal.subject('s')}")
        await subscriber.wait_for_line("hello")


# -- saved contexts --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["flag", "variable", "selected"])
async def test_run_connects_by_a_saved_context(
    how: str, shared_server: SharedServer, nats_cli: NatsCli, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    await nats_cli.run("context", "save", "shop", "--server", server.url)
    await nats_cli.run("context", "save", "nowhere", "--server", "nats://127.0.0.1:1")
    await nats_cli.run("context", "select", "shop" if how == "selected" else "nowhere")
    arguments = ("--context", "shop") if how == "flag" else ()
    env = {"NATS_CONTEXT": "shop"} if how == "variable" else {}
    async with account_on(server.url) as account:
        await account.create(stream_name, allow_msg_schedules=False, metadata={METADATA_FLAG: "true"})
        with sidecar("run", *arguments, folder=nats_cli.home, env=env) as running:
            await running.wait_for_line(f"stream_ready .*stream={stream_name}")
            assert await running.terminate() == 0
        await account.api.call(f"STREAM.DELETE.{stream_name}")
