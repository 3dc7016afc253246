"""The how-to about schedules in version control: its files and commands, run in its order, print what it shows."""

from __future__ import annotations

import asyncio
import os
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from nats_scheduler.files.models import files_schema
from tests.conftest import StartServer
from tests.harness.account import account_on
from tests.harness.processes import clean_environment, sidecar_command
from tests.harness.servers import V2_11
from tests.house.sources import ROOT

GUIDE = ROOT / "docs" / "operating" / "version-control.md"
REFERENCE = ROOT / "docs" / "reference" / "files.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)
DIFFERENT = 1


class Block(NamedTuple):
    """One block of code in a page."""

    kind: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text("utf-8"))]


def file_named_in(text: str) -> str | None:
    """Return the name of the file that a block is, which its first line says in a comment."""
    found = re.match(r"# (\S+\.yaml)\n", text)
    return found and found[1]


@pytest.fixture
async def environment(start_server: StartServer, tmp_path: Path) -> dict[str, str]:
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        marked = {"nats-scheduler.allow_msg_schedules": "true"}
        await account.create("ORDERS", subjects=["orders.>"], metadata=marked)
    path = f"{Path(sidecar_command()[0]).parent}:{os.environ['PATH']}"
    return {**clean_environment(tmp_path), "PATH": path, "NATS_URL": server.url}


async def test_the_commands_of_the_guide_print_what_it_shows(environment: dict[str, str], tmp_path: Path) -> None:
    shown, ran = blocks(GUIDE), 0
    for number, block in enumerate(shown):
        if block.kind == "yaml" and (name := file_named_in(block.text)):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(block.text)
        if block.kind != "sh":
            continue
        process = await asyncio.create_subprocess_exec(
            *("/bin/sh", "-c", block.text), env=environment, cwd=tmp_path, stdout=asyncio.subprocess.PIPE
        )
        printed, _errors = await process.communicate()
        assert process.returncode == (DIFFERENT if block.text.startswith("nats-scheduler diff") else 0), block.text
        following = shown[number + 1] if number + 1 < len(shown) else Block("", "")
        if following.kind == "text":
            assert printed.decode() == following.text, block.text
            ran += 1
    assert ran == 6


def test_the_reference_has_every_key_of_a_file() -> None:
    page = REFERENCE.read_text("utf-8")
    document, schedule = (page.partition(f"\n## {title}\n")[2].partition("\n## ")[0] for title in TITLES)
    schema = files_schema()
    assert keys_in(document) == set(schema["properties"])
    assert keys_in(schedule) == set(schema["$defs"]["ScheduleModel"]["properties"])


TITLES = ("A document", "A schedule")


def keys_in(text: str) -> set[str]:
    """Return the keys in the first column of the table of a section."""
    return set(re.findall(r"^\| `([$\w]+)` \|", text, re.M))
