"""A progress bar is on a terminal while a stream is read, leaves nothing behind, and is in no pipe."""

from __future__ import annotations

import io
import re
from pathlib import Path

from nats_scheduler.cli.process import DRAW_INTERVAL_NS, ERASE_LINE, ProgressBar, progress_text
from nats_scheduler.testing.manual_clock import ManualClock
from tests.cli.changing_site import Site
from tests.cli.prompt import at_a_terminal
from tests.harness.account import CLOCK
from tests.harness.burst import store_herd

SCHEDULES = 5_000
FAR_NS = 10**18
BAR = re.compile(r"[\w ]+  \[[#.]{20}\]  \d+ %  [\d,]+ of [\d,]+\r")


def test_the_line_says_how_much_is_read_and_a_long_name_is_cut() -> None:
    for done, total, text in (
        (0, 10_000, "ORDERS  [....................]  0 %  0 of 10,000"),
        (2_599, 10_000, "ORDERS  [#####...............]  25 %  2,599 of 10,000"),
        (9_999, 10_000, "ORDERS  [###################.]  99 %  9,999 of 10,000"),
        (12, 10, "ORDERS  [####################]  100 %  12 of 10"),
        (2_500, None, "ORDERS  2,500 messages read"),
    ):
        assert progress_text("ORDERS", done, total) == text
    assert len(progress_text("X" * 200, 1, 10**9)) <= 80


def test_it_is_drawn_ten_times_a_second_at_most_and_removed_at_the_end() -> None:
    clock, file = ManualClock(0), io.StringIO()
    bar = ProgressBar(file, clock.monotonic)
    bar.show("S", 10, 10)
    bar.clear()
    assert file.getvalue() == "", "work that is done at once draws nothing"
    bar.show("S", 1, 10)
    bar.show("S", 2, 10)
    clock.advance(DRAW_INTERVAL_NS)
    bar.show("S", 3, 10)
    drawn = [f"{ERASE_LINE}{progress_text('S', done, 10)}\r" for done in (1, 3)]
    assert file.getvalue() == "".join(drawn)
    bar.clear()
    bar.clear()
    assert file.getvalue() == "".join([*drawn, ERASE_LINE])


async def test_progress_is_on_a_terminal_and_not_in_a_pipe(orders: Site, tmp_path: Path) -> None:
    await store_herd(orders.account, orders.stream, CLOCK.now() + FAR_NS, SCHEDULES)
    words = ("ls", orders.stream, "--count", "1", "--server", orders.url)
    async with at_a_terminal(*words, folder=tmp_path) as terminal:
        assert await terminal.end() == 0
        await terminal.wait_for(f"{SCHEDULES} schedules")
        before, _, after = terminal.text.rpartition(ERASE_LINE)
        assert (BAR.search(before) is None, BAR.search(after)) == (False, None)
    piped = await orders.run("ls", "--count", "1")
    assert (BAR.search(piped.output), "\x1b" in piped.output) == (None, False)
    async with at_a_terminal("run", "--server", orders.url, folder=tmp_path) as terminal:
        await terminal.wait_for("stream_ready")
        terminal.press_ctrl_c()
        assert await terminal.end() == 0
        assert "Traceback" not in terminal.text
