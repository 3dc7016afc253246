"""What `top` writes to a terminal: the screen is as wanted, and few bytes change it into the next one."""

from __future__ import annotations

import random

import pytest

from nats_scheduler.cli.output import width_of
from nats_scheduler.cli.top_lines import Line, Span, Style, plain
from nats_scheduler.cli.top_paint import CLEAR, Painter
from tests.harness.screen import Screen

COLUMNS, ROWS = 30, 6


def lines(*texts: str) -> list[Line]:
    return [(Span(text),) if text else () for text in [*texts, *[""] * (ROWS - len(texts))]]


def painted(*screens: list[Line], coloured: bool = True) -> tuple[Screen, list[str]]:
    """Paint screens one after the other; return the terminal, and what was written for each."""
    painter, screen = Painter(coloured=coloured), Screen(COLUMNS, ROWS)
    written = []
    for wanted in screens:
        written.append(painter.changes(wanted))
        screen.write(written[-1])
        assert screen.lines() == [plain(line).rstrip() for line in wanted]
    return screen, written


def test_nothing_is_written_if_nothing_changed() -> None:
    _, written = painted(lines("one", "two"), lines("one", "two"))
    assert written[1] == ""


def test_only_what_changed_is_written() -> None:
    _, written = painted(lines("in 5s  ORDERS  orders.s.1"), lines("in 4s  ORDERS  orders.s.1"))
    assert written[1] == "\x1b[1;4H4"


def test_two_parts_far_from_each_other_are_written_alone() -> None:
    _, written = painted(lines("5s  ORDERS  orders.s.1  7"), lines("4s  ORDERS  orders.s.1  8"))
    assert written[1] == "\x1b[1;1H4\x1b[1;25H8"


def test_the_rest_of_a_longer_line_is_erased() -> None:
    _, written = painted(lines("orders.reminder"), lines("orders"), lines(""))
    assert written[1] == "\x1b[1;7H\x1b[K"
    assert written[2] == "\x1b[1;1H\x1b[K"


def test_a_line_with_wide_characters_is_written_whole() -> None:
    _, written = painted(lines("注文.顧客 in 5s"), lines("注文.顧客 in 4s"), lines("orders in 4s"))
    assert written[1] == "\x1b[1;1H注文.顧客 in 4s\x1b[K"
    assert "\x1b[K" in written[2]


def test_a_change_of_style_alone_is_written() -> None:
    good, bad = [(Span("x ", Style.PLAIN), Span("1", style)) for style in (Style.GOOD, Style.BAD)]
    _, written = painted([good, *lines()[1:]], [bad, *lines()[1:]])
    assert written[1] == "\x1b[1;3H\x1b[0;31m1\x1b[0m"


def test_without_colours_bold_and_reverse_stay() -> None:
    line = (Span("BAD", Style.BAD), Span(" "), Span("HEAD", Style.HEADING))
    _, written = painted([line, *lines()[1:]], coloured=False)
    assert written == [f"{CLEAR}\x1b[1;1HBAD \x1b[0;7mHEAD\x1b[0m"]


def test_a_cleared_screen_is_written_whole() -> None:
    painter = Painter(coloured=True)
    painter.changes(lines("one"))
    painter.clear()
    assert painter.changes(lines("one")) == f"{CLEAR}\x1b[1;1Hone"


@pytest.mark.parametrize("seed", range(30))
def test_any_change_shows_the_wanted_screen(seed: int) -> None:
    chance = random.Random(seed)
    alphabet = ["a", "b", " ", "注", "█", "…", "é"] if seed % 2 else ["a", "b", " ", "▁"]

    def any_line() -> Line:
        spans = []
        room = chance.randrange(COLUMNS + 1)
        while room > 1:
            text = "".join(chance.choices(alphabet, k=min(chance.randrange(1, 5), room // 2)))
            spans.append(Span(text, chance.choice(list(Style))))
            room -= width_of(text)
        return tuple(spans)

    screens = [[any_line() for _ in range(ROWS)] for _ in range(2)]
    for _ in range(20):  # most lines of a screen are as they were before
        screens.append([line if chance.random() < 0.7 else any_line() for line in screens[-1]])
    painted(*screens, coloured=bool(seed % 3))
