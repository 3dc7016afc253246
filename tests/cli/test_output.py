"""The printed output: complete in a pipe, harmless on a terminal, where no word of a table is ever broken."""

from __future__ import annotations

import pytest

from nats_scheduler.cli.output import fold, print_table
from nats_scheduler.observe.texts import printable
from tests.cli.prompt import Cli, words

WIDTHS = (80, 120)


def test_no_cell_is_broken_of_what_needs_no_server(cli: Cli) -> None:
    for columns in WIDTHS:
        zone = ("--tz", "America/Argentina/Buenos_Aires")
        fires = cli("next", "0 30 9 * * mon-fri", *zone, columns=columns).stdout
        settings = cli("settings", "show", columns=columns).stdout
        assert words("UTC in 5 fires,") <= words(fires)
        assert words("connection.request_timeout default setting value source in all:") <= words(settings)
        assert max(map(len, [*fires.splitlines(), *settings.splitlines()])) <= columns


def test_a_row_is_one_line_in_a_pipe_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["subject", "pattern"], [["a" * 500, "b" * 500], ["short", "[bold]x[/bold] :smile:"]])
    assert capsys.readouterr().out.splitlines() == [
        "subject".ljust(500) + "  pattern",
        "a" * 500 + "  " + "b" * 500,
        "short".ljust(500) + "  [bold]x[/bold] :smile:",
    ]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (40, ["subject           target", "orders.invoice.7  orders.due", "(left out: sequence; --wide shows all)"]),
        (20, ["subject   orders.invoice.7", "target    orders.due", "sequence  777777777777"]),
    ],
)
def test_what_is_too_wide_loses_columns_or_becomes_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, expected: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    row = ["orders.invoice.7", "orders.due", "7" * 12]
    print_table(["subject", "target", "sequence"], [row], optional=["sequence"] if columns == 40 else [])
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines() if line] == expected


def test_text_is_folded_at_blanks_and_escaped() -> None:
    assert fold("the quick brown-fox jumps", 10) == ["the quick", "brown-fox", "jumps"]
    assert fold("extraordinarily long", 5) == ["extraordinarily", "long"]
    assert fold("日本 日本", 4) == ["日本", "日本"]
    assert fold("", 5) == [""]
    escaped = {"grün 日本 '\"": "grün 日本 '\"", "a\x1b[31m\r\nb": "a\\x1b[31m\\r\\nb", "bad \udcff": "bad \\udcff"}
    assert {text: printable(text) for text in escaped} == escaped
