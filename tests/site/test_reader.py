"""A reader finds what is wrong with a page: a command that fails, and something else than what the page shows."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.house.sources import ROOT
from tests.site.blocks import Block
from tests.site.machine import machine_for
from tests.site.reader import Reader, difference
from tests.site.scenes import NOTHING

pytestmark = pytest.mark.server
PAGE = ROOT / "docs" / "start.md"


def block(kind: str, text: str, before: str = "") -> Block:
    return Block(PAGE, 1, kind, text, before, "## A section")


async def read(folder: Path, *steps: tuple[Block, Block | None]) -> None:
    """Follow blocks as those of a page, where no server runs."""
    async with machine_for(NOTHING, folder) as machine:
        await Reader("a page", steps, machine, {**machine.environment, "PATH": os.environ["PATH"]}).follow()


async def test_what_is_right_passes(tmp_path: Path) -> None:
    saved = block("text", "hello\n", "Save this as `words.txt`:")
    await read(tmp_path, (saved, None), (block("sh", "cat words.txt\necho x\n"), block("text", "hello\nx\n")))


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


ROW = "2026-11-23T05:28:59.629Z  9.6 ms  sidecar  3    2026-11-23T05:28:59.639Z  orders.due"


def test_times_ages_and_names_may_differ_from_the_page_and_nothing_else() -> None:
    same = {
        "2027-01-02T03:04:05Z      12 ms   sidecar  304  2027-01-02T03:04:05.012Z  orders.due": ROW,
        "fired by the sidecar 0123456789ab": "fired by the sidecar e7701473b5eb",
        "next fire in 3s, 2m1s ago": "next fire in 21h31m48s, 31s ago",
        "Tue  2027-01-05T08:30:00Z": "Mon  2026-11-23T08:30:00Z",
        "first\na\nb\nlast": "first\n…\nlast",
        "a\nlast": "…\nlast",
        "first\na": "first\n…",
        "indented\n  line\n": "indented\n  line",
    }
    assert {printed: difference(shown, printed) for printed, shown in same.items()} == dict.fromkeys(same)
    for shown, printed, first in (
        (ROW, ROW.replace("orders.due", "orders.other"), ROW),
        ("every 5m", "every 6m", "every 5m"),
        ("@every 5m", "@every 5s", "@every 5m"),
        ("first", "first\nsecond", "(not shown) second"),
        ("first\nlast", "first\na\nlast", "last"),
        ("first\n…\nlast", "first\na", "last"),
        ("waiting, in 3s", "waiting, soon", "waiting, in 3s"),
    ):
        assert difference(shown, printed) == first
    assert difference("b\na", "x\na\nb\n", in_any_order=True) is None
    assert difference("b\nc", "x\na\nb\n", in_any_order=True) == "c"
