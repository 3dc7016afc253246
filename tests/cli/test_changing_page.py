"""The commands of the page about changing schedules do what they are for, on a server where nothing else runs."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from nats_scheduler.cli.main import COMMANDS
from tests.conftest import StartServer
from tests.harness.account import account_on
from tests.harness.processes import clean_environment, sidecar_command
from tests.harness.servers import V2_11
from tests.house.coming_from import STREAM_FILE, commands
from tests.house.sources import ROOT
from tests.house.test_documents import shell_blocks

PAGE = ROOT / "docs" / "operating" / "changing.md"
BLOCK_SECONDS = 120.0


async def run_block(block: str, folder: Path, url: str) -> tuple[int, str]:
    """Run a block of commands as an operator would, the next one only if the one before succeeded."""
    programs = [Path(sidecar_command()[0]).parent, Path(sys.executable).parent, os.environ["PATH"]]
    environ = {**clean_environment(folder), "PATH": ":".join(map(str, programs)), "NATS_URL": url}
    process = await asyncio.create_subprocess_exec(
        *("/bin/sh", "-e", "-c", block),
        cwd=folder,
        env=environ,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(BLOCK_SECONDS):
        said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_each_block_of_the_page_succeeds_in_its_order(start_server: StartServer, tmp_path: Path) -> None:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        config = json.loads(STREAM_FILE)
        marked = {"nats-scheduler.allow_msg_schedules": "true"}
        await account.create(config.pop("name"), **{**config, "storage": "memory", "metadata": marked})
        await account.create(
            "nats_scheduler_failures", subjects=["nats_scheduler.advisory.>"], allow_msg_schedules=None
        )
        for block in shell_blocks(PAGE):
            code, said = await run_block(block, tmp_path, server.url)
            assert code == 0, f"{block}\n{said}"
        left = {message.subject for message in await account.messages("ORDERS", "orders.schedules.>")}
        assert left == {"orders.schedules.morning", "orders.schedules.report"}


def test_the_page_shows_each_command_that_changes_schedules() -> None:
    shown = {arguments[1] for arguments in commands(PAGE) if arguments[0] == "nats-scheduler"}
    wanted = {"add", "edit", "pause", "resume", "rm", "fire", "backfill", "changes"}
    assert wanted <= set(COMMANDS)
    assert wanted <= shown
