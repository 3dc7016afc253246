"""The commands that a user types into the `nats` CLI work as typed, on servers without schedules of their own."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import ScheduleAccepted
from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import HOUR
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FLAG, Served, fire_time_of
from tests.harness.nats_cli import NatsCli
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

FLAGGED = {"allow_msg_schedules": True, "allow_msg_ttl": True}


@dataclass
class Terminal(Served):
    """A user's terminal beside a sidecar."""

    cli: NatsCli | None = None

    async def nats(self, *words: str) -> str:
        """Type a command."""
        assert self.cli is not None
        return await self.cli.run(*words)

    def file(self, **config: Any) -> str:
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
        assert self.cli is not None
        Path(self.cli.home, "orders.json").write_text(json.dumps(wanted), "utf-8")
        return "orders.json"

    async def pub(self, rest: str, *flags: str, target: str = "out") -> str:
        """Type `nats pub` with schedule flags."""
        return await self.nats(
            "pub", self.subject(rest), "hello", *flags, "--schedule-dest", self.subject(target), "--quiet"
        )

    async def fires(self, rest: str = "s") -> None:
        """Show that the stream is served."""
        await self.pub(rest, "--schedule-at", in_seconds(0), target=f"{rest}.out")
        [fired] = await self.wait_for(f"{rest}.out")
        assert fired.body == b"hello"

    async def config(self) -> dict[str, Any]:
        """Return the stream's configuration as the CLI shows it."""
        told: dict[str, Any] = json.loads(await self.nats("stream", "info", self.name, "--json"))["config"]
        return told


@pytest.fixture
async def terminal(
    emulated_server: EmbeddedServer, account: Account, nats_cli: NatsCli, stream_name: str
) -> AsyncIterator[Terminal]:
    """Run a sidecar, and give the user a terminal; the stream is for the test to make."""
    cli = nats_cli.at(emulated_server.url)
    async with sidecar_on(emulated_server.url) as running:
        yield Terminal(account, stream_name, running, emulated_server.url, emulated_server.version, cli)
        await account.api.call(f"STREAM.DELETE.{stream_name}")


async def test_the_flag_in_the_file_is_all_that_a_stream_needs(terminal: Terminal) -> None:
    """And it may be typed again; edits by a file without the flag, and by other flags, leave it on."""
    add = ("stream", "add", "--config", terminal.file(metadata={"team": "shop"}, **FLAGGED))
    await terminal.nats(*add)
    await terminal.sidecar.ready(terminal.name)
    await terminal.nats(*add)
    config = await terminal.config()
    assert (config["metadata"]["team"], config["max_age"], config["allow_rollup_hdrs"]) == ("shop", HOUR, False)
    await terminal.fires("added")
    edit = ("stream", "edit", terminal.name, "--force")
    more = [f"{terminal.name}.>", f"{terminal.name}-more.>"]
    await terminal.nats(*edit, "--config", terminal.file(subjects=more, max_age=2 * HOUR, allow_msg_ttl=True))
    config = await terminal.config()
    assert (config["subjects"], config["max_age"]) == (more, 2 * HOUR)
    await terminal.fires("edited")
    await terminal.nats(*edit, "--description", "new", "--max-msgs", "1000")
    config = await terminal.config()
    assert (config["description"], config["max_msgs"]) == ("new", 1000)
    await terminal.fires("typed")


async def test_pub_fires_as_it_is_typed(terminal: Terminal) -> None:
    """With the headers, with each flag of a schedule, and with an alias behind an equals sign; `sub` sees the fires."""
    await terminal.nats("stream", "add", "--config", terminal.file(**FLAGGED))
    await terminal.sidecar.ready(terminal.name)
    pattern, target = f"Nats-Schedule: @at {in_seconds(0.2)}", f"Nats-Schedule-Target: {terminal.subject('out.typed')}"
    said = await terminal.nats("pub", "-J", "-H", pattern, "-H", target, terminal.subject("typed"), "hello")
    assert f"Stored in Stream: {terminal.name}" in said
    assert [fired.body for fired in await terminal.wait_for("out.typed")] == [b"hello"]
    assert terminal.cli is not None
    with terminal.cli.start("sub", terminal.subject("out.every"), "--count", "1") as subscriber:
        await subscriber.wait_for_line("Subscribing")
        await terminal.pub("every", "--schedule-every", "1s", target="out.every")
        await subscriber.wait_for_line(f"Nats-Scheduler: {terminal.subject('every')}")
        await subscriber.wait_for_line("hello")
    await terminal.pub("cron", "--schedule-cron", "* * * * * *", target="out.cron")
    await terminal.pub("names", "--schedule-cron", "*/1 * * ? JAN-DEC sun-sat", target="out.names")
    for rest in ("every", "cron", "names"):
        fired = await terminal.wait_for(f"out.{rest}", 2)
        assert len({fire_time_of(message) for message in fired}) == len(fired)
    # As the CLI does: `@hourly` as a word of its own would name a file with more arguments.
    await terminal.pub("alias", "--schedule-cron=@hourly")
    await eventually(
        lambda: [one for one in terminal.of(ScheduleAccepted) if one.schedule == terminal.subject("alias")],
        describe="the alias is taken",
    )
    await terminal.nats("pub", "-J", "-H", "Unit: C", terminal.subject("sensor"), "20.5")
    source = ("--schedule-source", terminal.subject("sensor"), "--schedule-ttl", "90s")
    await terminal.pub("sampled", "--schedule-at", in_seconds(0), *source, target="out.sampled")
    [sample] = await terminal.wait_for("out.sampled")
    assert sample.body == b"20.5"
    assert b"Unit: C\r\n" in sample.block
    assert b"Nats-TTL: 1m30s\r\n" in sample.block
    shown = await terminal.nats("stream", "get", terminal.name, "--last-for", terminal.subject("every"))
    assert "Nats-Schedule: @every 1s" in shown


async def test_run_connects_by_a_saved_context(
    shared_server: SharedServer, nats_cli: NatsCli, stream_name: str
) -> None:
    server = await shared_server(V2_11)
    await nats_cli.run("context", "save", "shop", "--server", server.url)
    await nats_cli.run("context", "save", "nowhere", "--server", "nats://127.0.0.1:1")
    async with account_on(server.url) as account:
        await account.create(stream_name, allow_msg_schedules=False, **FLAG)
        for how in ("flag", "variable", "selected"):
            await nats_cli.run("context", "select", "shop" if how == "selected" else "nowhere")
            arguments = ("--context", "shop") if how == "flag" else ()
            env = {"NATS_CONTEXT": "shop"} if how == "variable" else {}
            with sidecar("run", *arguments, folder=nats_cli.home, name=how, env=env) as running:
                await running.wait_for_line(f"stream_ready .*stream={stream_name}")
                assert await running.terminate() == 0
        await account.api.call(f"STREAM.DELETE.{stream_name}")
