"""The printed output: complete in a pipe, harmless on a terminal."""

from __future__ import annotations

import pytest

from nats_scheduler.cli.output import print_table
from nats_scheduler.observe.texts import printable


def test_a_row_is_one_line_in_a_pipe_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["subject", "pattern"], [["a" * 500, "b" * 500], ["short", "[bold]x[/bold] :smile:"]])
    assert capsys.readouterr().out.splitlines() == [
        "subject".ljust(500) + "  pattern",
        "a" * 500 + "  " + "b" * 500,
        "short".ljust(500) + "  [bold]x[/bold] :smile:",
    ]


def test_control_characters_are_escaped_and_letters_of_all_languages_are_not() -> None:
    assert printable("grün 日本 '\"") == "grün 日本 '\""
    assert printable("a\x1b[31m\r\nb") == "a\\x1b[31m\\r\\nb"
    assert printable("bad \udcff") == "bad \\udcff"
