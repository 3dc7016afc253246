"""A progress bar is on a terminal while a stream is read, leaves nothing behind, and is in no pipe."""

from __future__ import annotations

import asyncio
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

from nats_scheduler.cli.process import DRAW_INTERVAL_NS, ERASE_LINE, ProgressBar, progress_text
from nats_scheduler.cli.run import show_start
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.testing.clock import ManualClock
from tests.conftest import SharedServer
from tests.harness.account import CLOCK, account_on
from tests.harness.burst import store_herd
from tests.harness.processes import sidecar
from tests.harness.servers import V2_11
from tests.harness.terminal import on_terminal
from tests.harness.waiting import eventually

SCHEDULES = 5_000
FAR_NS = 10**18
BAR = re.compile(r"[\w ]+  \[[#.]{20}\]  \d+ %  [\d,]+ of [\d,]+\r")


@pytest.mark.parametrize(
    ("done", "total", "text"),
    [
        (0, 10_000, "ORDERS  [....................]  0 %  0 of 10,000"),
        (2_599, 10_000, "ORDERS  [#####...............]  25 %  2,599 of 10,000"),
        (9_999, 10_000, "ORDERS  [###################.]  99 %  9,999 of 10,000"),
        (12, 10, "ORDERS  [####################]  100 %  12 of 10"),
        (2_500, None, "ORDERS  2,500 messages read"),
    ],
)
def test_the_line_says_how_much_is_read(done: int, total: int | None, text: str) -> None:
    assert progress_text("ORDERS", done, total) == text


def test_a_long_name_is_cut() -> None:
    assert len(progress_text("X" * 200, 1, 10**9)) <= 80


def test_it_is_drawn_ten_times_a_second_at_most_and_removed_at_the_end() -> None:
    clock, file = ManualClock(0), io.StringIO()
    bar = ProgressBar(file, clock.monotonic)
    bar.show("S", 1, 10)
    bar.show("S", 2, 10)
    clock.advance(DRAW_INTERVAL_NS)
    bar.show("S", 3, 10)
    drawn = [f"{ERASE_LINE}{progress_text('S', done, 10)}\r" for done in (1, 3)]
    assert file.getvalue() == "".join(drawn)
    bar.clear()
    bar.clear()
    assert file.getvalue() == "".join([*drawn, ERASE_LINE])


def test_work_that_is_done_at_once_draws_nothing() -> None:
    file = io.StringIO()
    bar = ProgressBar(file, ManualClock(0).monotonic)
    bar.show("S", 10, 10)
    bar.clear()
    assert file.getvalue() == ""


async def test_ls_shows_on_a_terminal_how_far_it_has_read_and_in_a_pipe_nothing(
    shared_server: SharedServer, tmp_path: Path
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("BAR", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        await store_herd(account, "BAR", CLOCK.now() + FAR_NS, SCHEDULES)
        words = ("ls", "BAR", "--count", "1", "--server", server.url)
        terminal = await on_terminal(*words, folder=tmp_path)
        try:
            assert await terminal.end() == 0
            await terminal.wait_for(f"{SCHEDULES} schedules")
            before, _, after = terminal.text.rpartition(ERASE_LINE)
            assert BAR.search(before)
            assert not BAR.search(after)
        finally:
            await terminal.close()
        with sidecar(*words, folder=tmp_path) as process:
            assert await process.wait_for_exit() == 0
        assert not BAR.search(process.stdout + process.stderr)
        assert "\x1b" not in process.stdout + process.stderr
        await account.api.call("STREAM.DELETE.BAR")


@dataclass
class Reading:
    """A stream that a sidecar reads, and its engine."""

    state: StreamState
    last_read: int
    is_live: bool = False

    @property
    def engine(self) -> Reading:
        return self


async def test_the_start_of_a_sidecar_is_shown_until_all_streams_are_read() -> None:
    file = io.StringIO()
    streams = {name: Reading(StreamState({"name": name}, "", 101, 300), 150) for name in ("A", "B")}
    bar = ProgressBar(file, SystemClock().monotonic)
    shown = asyncio.create_task(show_start(bar, cast(Any, streams)))
    await eventually(lambda: progress_text("2 streams", 100, 400) in file.getvalue(), within_seconds=30)
    streams["A"].is_live = True
    await eventually(lambda: progress_text("B", 50, 200) in file.getvalue(), within_seconds=30)
    streams["B"].is_live = True
    await asyncio.wait_for(shown, 30)
    assert file.getvalue().endswith(ERASE_LINE)


async def test_without_a_terminal_the_start_of_a_sidecar_is_not_watched() -> None:
    bar = ProgressBar(None, SystemClock().monotonic)
    await asyncio.wait_for(show_start(bar, cast(Any, {"A": Reading(StreamState({"name": "A"}, "", 1, 2), 1)})), 30)


async def test_a_sidecar_on_a_terminal_starts_and_ends_as_elsewhere(
    shared_server: SharedServer, tmp_path: Path
) -> None:
    server = await shared_server(V2_11)
    async with account_on(server.url) as account:
        await account.create("START", metadata={"nats-scheduler.allow_msg_schedules": "true"})
        await store_herd(account, "START", CLOCK.now() + FAR_NS, SCHEDULES)
        terminal = await on_terminal("run", "--server", server.url, folder=tmp_path)
        try:
            await terminal.wait_for("stream_ready")
            terminal.press_ctrl_c()
            assert await terminal.end() == 0
            assert "Traceback" not in terminal.text
        finally:
            await terminal.close()
        await account.api.call("STREAM.DELETE.START")
