"""The printed output: complete in a pipe, and harmless on a terminal."""

from __future__ import annotations

import pytest

from nats_scheduler.cli.output import fold, print_table
from nats_scheduler.observe.texts import printable


def test_a_row_is_one_line_in_a_pipe_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["subject", "pattern"], [["a" * 500, "b" * 500], ["short", "[bold]x[/bold] :smile:"]])
    assert capsys.readouterr().out.splitlines() == [
        "subject".ljust(500) + "  pattern",
        "a" * 500 + "  " + "b" * 500,
        "short".ljust(500) + "  [bold]x[/bold] :smile:",
    ]


def test_text_is_folded_at_blanks_and_escaped() -> None:
    assert fold("the quick brown-fox jumps", 10) == ["the quick", "brown-fox", "jumps"]
    assert fold("extraordinarily long", 5) == ["extraordinarily", "long"]
    assert fold("日本 日本", 4) == ["日本", "日本"]
    assert fold("", 5) == [""]
    escaped = {"grün 日本 '\"": "grün 日本 '\"", "a\x1b[31m\r\nb": "a\\x1b[31m\\r\\nb", "bad \udcff": "bad \\udcff"}
    assert {text: printable(text) for text in escaped} == escaped
