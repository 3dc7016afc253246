"""The commands that a user types into the `nats` CLI work as typed, on servers without schedules of their own."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.runtime.embedded import EmbeddedServer
from nats_scheduler.schedule.instants import HOUR
from tests.conftest import SharedServer
from tests.harness.account import Account, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FLAG, Served
from tests.harness.nats_cli import NatsCli
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11

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

    async def fires(self, rest: str) -> None:
        """Show that the stream is served."""
        flags = ("--schedule-at", in_seconds(0), "--schedule-dest", self.subject(f"{rest}.out"), "--quiet")
        await self.nats("pub", self.subject(rest), "hello", *flags)
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
