"""A progress bar says how much of a stream is read, and leaves nothing behind."""

from __future__ import annotations

import io

from nats_scheduler.cli.process import DRAW_INTERVAL_NS, ERASE_LINE, ProgressBar, progress_text
from nats_scheduler.testing.manual_clock import ManualClock


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
