"""The commands of the pages for users of other schedulers work as they are typed, one after the other."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.conftest import StartServer
from tests.harness.account import sidecar_on
from tests.harness.nats_cli import NatsCli
from tests.harness.processes import sidecar
from tests.house.coming_from import PAGES, STREAM_FILE, commands
from tests.house.sources import place

STREAM = json.loads(STREAM_FILE)["name"]
MAKE_THE_STREAM = ["nats", "stream", "add", "--config", "orders.json"]
"""Typed first for each page."""
ENDLESS = ["nats-scheduler", "run"]
"""A sidecar runs for the whole test."""
COMMAND_SECONDS = 60.0
"""Longest run of one of our commands, on a busy machine."""


@pytest.mark.parametrize("page", PAGES, ids=place)
async def test_the_commands_of_a_page_work_one_after_the_other(
    page: Path, start_server: StartServer, nats_cli: NatsCli
) -> None:
    server = await start_server()
    nats = nats_cli.at(server.url)
    write_stream_file(nats.home)
    async with sidecar_on(server.url) as running:
        await nats.run(*MAKE_THE_STREAM[1:])
        await running.ready(STREAM)
        typed = [line for line in commands(page) if line != MAKE_THE_STREAM and line[:2] != ENDLESS]
        assert len(typed) >= 4
        for program, *arguments in typed:
            if program == "nats":
                await nats.run(*arguments)
            else:
                await ours(arguments, server.url, nats.home)


def write_stream_file(folder: Path) -> None:
    """Write the file of the stream, as the README shows it."""
    (folder / "orders.json").write_text(STREAM_FILE, "utf-8")


async def ours(arguments: list[str], url: str, folder: Path) -> None:
    """Run one of our commands; fail unless it ends with 0 and has an answer."""
    with sidecar(*arguments, folder=folder, name=arguments[0], env={"NATS_URL": url}) as process:
        async with asyncio.timeout(COMMAND_SECONDS):
            code = await process.wait_for_exit(within_seconds=COMMAND_SECONDS)
    assert (code, bool(process.stdout)) == (0, True), f"{arguments}: {process.stdout}\n{process.stderr}"
