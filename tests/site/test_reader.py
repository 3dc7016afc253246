"""A reader finds what is wrong with a page: a command that fails, and something else than what the page shows."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.site.blocks import Block
from tests.site.machine import machine_for
from tests.site.reader import Reader
from tests.site.scenes import NOTHING

pytestmark = pytest.mark.server
PAGE = ROOT / "docs" / "start.md"


def block(kind: str, text: str, before: str = "") -> Block:
    return Block(PAGE, 1, kind, text, before, "## A section")


async def read(folder: Path, *steps: tuple[Block, Block | None]) -> Reader:
    """Follow blocks as those of a page, where no server runs."""
    async with machine_for(NOTHING, folder) as machine:
        reader = Reader("a page", steps, machine, {**machine.environment, "PATH": os.environ["PATH"]})
        await reader.follow()
        return reader


async def test_what_is_right_passes_and_is_compared(tmp_path: Path) -> None:
    saved = block("text", "hello\n", "Save this as `words.txt`:")
    reader = await read(tmp_path, (saved, None), (block("sh", "cat words.txt\necho x\n"), block("text", "hello\nx\n")))
    assert reader.compared == 1


@pytest.mark.parametrize(
    ("typed", "shown", "said"),
    [
        ("echo said; false\n", None, "ended with 1"),
        ("false\ntrue\n", None, "ended with 1"),
        ("no-such-program\n", None, "ended with 127"),
        ("echo 2 schedules\n", "3 schedules\n", "'3 schedules'"),
        ("echo one; echo two\n", "one\n", "not shown"),
        ("cat\n", "typed\n", "'typed'"),
    ],
)
async def test_what_is_wrong_fails(tmp_path: Path, typed: str, shown: str | None, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        await read(tmp_path, (block("sh", typed), block("text", shown) if shown else None))


async def test_what_runs_on_has_to_run_until_the_end_of_the_page(tmp_path: Path) -> None:
    with pytest.raises((AssertionError, RuntimeError)):
        await asyncio.wait_for(read(tmp_path, (block("sh", "nats-scheduler watch ORDERS\n"), None)), 60)
