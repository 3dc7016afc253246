"""The printed output is complete in a pipe."""

from __future__ import annotations

import pytest

from nats_scheduler.cli.output import print_table


def test_a_row_is_one_line_in_a_pipe_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["subject", "pattern"], [["a" * 500, "b" * 500], ["short", "[bold]x[/bold] :smile:"]])
    assert capsys.readouterr().out.splitlines() == [
        "subject".ljust(500) + "  pattern",
        "a" * 500 + "  " + "b" * 500,
        "short".ljust(500) + "  [bold]x[/bold] :smile:",
    ]
