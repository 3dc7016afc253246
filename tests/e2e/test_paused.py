"""Paused schedules on real servers: nothing fires them, whatever restarts, and resumed they fire again.

The commands of the page for operators work as they are typed.
"""

import asyncio
import json
import os
import re
import shlex
import signal
from pathlib import Path

from click.testing import CliRunner

from nats_scheduler.cli.main import main
from nats_scheduler.engine.events import Ending, ScheduleEnded
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.headers import header_items
from nats_scheduler.message.reading import paused_block, resumed_block
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.conftest import StartServer
from tests.e2e.conftest import Served
from tests.e2e.test_coming_from import ours
from tests.harness.account import account_on, sidecar_on
from tests.harness.flagged import FlaggedStream
from tests.harness.nats_cli import NatsCli
from tests.harness.servers import V2_11, V2_15
from tests.harness.upgrades import machine_in
from tests.harness.waiting import eventually
from tests.house.sources import ROOT

PAGE = ROOT / "docs" / "operating" / "pause.md"
PAUSED = "Nats-Schedule-X-Paused"
WITHIN_SECONDS = 30.0


def headers_of(block: bytes) -> list[tuple[bytes, bytes]]:
    """Return the headers in alphabetical order: the CLI writes them in any order."""
    return sorted(header_items(block))


async def listed(url: str, stream: str) -> dict[str, str]:
    """Return the states of the schedules that `ls` lists, by what follows the stream in their subjects."""
    words = ["ls", stream, "--json", "-s", url, "--no-context"]
    result = await asyncio.to_thread(CliRunner().invoke, main, words)
    assert result.exit_code == 0, result.output
    return {one["subject"].partition(".")[2]: one["state"] for one in json.loads(result.stdout)["schedules"]}


async def republished(stream: FlaggedStream, rest: str, *, paused: bool, rollup: bool = False) -> int:
    """Store the message on a subject again, paused or resumed, and with a roll-up if the server has to be asked."""
    (message,) = (await stream.messages(rest))[-1:]
    block = (paused_block if paused else resumed_block)(message.block, ADR51)
    lines = block.decode().split("\r\n")[1:-2]
    headers = dict(line.split(": ", 1) for line in lines)
    headers.pop("Nats-Rollup", None)
    return await stream.publish(rest, {**headers, **({"Nats-Rollup": "sub"} if rollup else {})}, message.body or b"")


async def test_a_paused_schedule_stops_firing_and_a_resumed_one_goes_on(served: Served) -> None:
    await served.schedule("s", "@every 1s", b"body", more={"X-Note": "mine"})
    await served.wait_for("out", 1)
    paused = await republished(served, "s", paused=True)
    await eventually(
        lambda: [one.ending for one in served.sidecar.of(served.name, ScheduleEnded)] == [Ending.PAUSED],
        within_seconds=WITHIN_SECONDS,
        describe="it is paused",
    )

    async def is_alone() -> bool:
        return [one.sequence for one in await served.messages("s")] == [paused]

    await eventually(is_alone, within_seconds=WITHIN_SECONDS, describe="its older versions are purged")
    before = await served.messages("out")
    await served.schedule("other", "@every 1s", target="other.out")
    await served.wait_for("other.out", 3)
    assert await served.messages("out") == before, "it fires nothing while others do"
    await republished(served, "s", paused=False)
    fires = await served.wait_for("out", len(before) + 1)
    assert fires[-1].body == b"body"
    assert b"X-" not in fires[-1].block, "a fire has neither the policy nor the state"


async def test_a_purge_and_a_ttl_end_a_paused_schedule(served: Served, emulated_server: EmbeddedServer) -> None:
    target = {"Nats-Schedule-Target": served.subject("out")}
    await served.publish("purged", {PAUSED: "@daily", **target})
    expiring = await served.publish("expiring", {PAUSED: "@daily", **target, "Nats-TTL": "1s"})

    async def states() -> dict[str, str]:
        return await listed(emulated_server.url, served.name)

    async def is_listed() -> bool:
        return (await states()).get("purged") == "paused"

    async def is_nothing_listed() -> bool:
        return await states() == {}

    await eventually(is_listed, within_seconds=WITHIN_SECONDS, describe="it is listed")
    await served.call("STREAM.PURGE", {"filter": served.subject("purged")})
    await eventually(is_nothing_listed, within_seconds=WITHIN_SECONDS, describe="both are listed no more")

    async def is_gone() -> bool:
        return expiring not in [one.sequence for one in await served.messages("expiring")]

    await eventually(is_gone, within_seconds=WITHIN_SECONDS, describe="what expired is removed")


async def test_on_a_native_stream_it_is_listed_and_the_server_fires_nothing_even_after_a_crash(tmp_path: Path) -> None:
    """Without the roll-up the server revives the active version when it builds its index anew."""
    async with machine_in(tmp_path / "store") as machine:
        url = await machine.install(V2_15)
        async with account_on(url) as account:
            await account.create("S", storage="file")
            stream = FlaggedStream(account, "S")
            await stream.schedule("s", "@every 1s")
            await stream.wait_for("out", 1)
            await republished(stream, "s", paused=True, rollup=True)
            before = await stream.messages("out")
        assert machine.server is not None
        assert machine.server.pid is not None
        os.kill(machine.server.pid, signal.SIGKILL)
        url = await machine.install(V2_15)
        async with account_on(url) as account:
            stream = FlaggedStream(account, "S")
            await stream.schedule("other", "@every 1s", target="other.out")
            await stream.wait_for("other.out", 3)
            assert await stream.messages("out") == before
            assert await listed(url, "S") == {"s": "paused", "other": "waiting"}
            await republished(stream, "s", paused=False)
            await stream.wait_for("out", len(before) + 1)


def paragraphs(page: Path) -> list[list[list[str]]]:
    """Return the commands of each code block of a page, split into words."""
    blocks = re.findall(r"^```sh\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)
    return [[shlex.split(line) for line in block.replace("\\\n", " ").splitlines()] for block in blocks]


async def test_the_commands_of_the_page_pause_and_resume(start_server: StartServer, nats_cli: NatsCli) -> None:
    pause, look, resume = paragraphs(PAGE)
    server = await start_server(V2_11)
    nats = nats_cli.at(server.url)
    subject = "orders.schedules.morning"
    async with account_on(server.url) as account, sidecar_on(server.url) as running:
        await account.create("ORDERS", subjects=["orders.>"])
        await running.ready("ORDERS")

        async def shows(state: str) -> None:
            async def is_shown() -> bool:
                return await listed(server.url, "ORDERS") == {"schedules.morning": state}

            await eventually(is_shown, within_seconds=WITHIN_SECONDS, describe=f"it is {state}")

        await nats.run(*resume[0][1:])
        await shows("waiting")
        (active,) = await account.messages("ORDERS", subject)
        for words in pause:
            await nats.run(*words[1:])
        await shows("paused")
        for _program, *arguments in look:
            await ours(arguments, server.url, nats.home)
        (paused,) = (await account.messages("ORDERS", subject))[-1:]
        assert headers_of(paused.block) == headers_of(paused_block(active.block, ADR51))
        await nats.run(*resume[0][1:])
        await shows("waiting")
        (resumed,) = (await account.messages("ORDERS", subject))[-1:]
        assert (headers_of(resumed.block), resumed.body) == (headers_of(active.block), active.body)
