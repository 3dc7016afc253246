"""What commands print: tables for people, JSON for programs, and one form for everything that goes wrong.

Rule: answers go to standard output, complaints to standard error; JSON is one document and nothing beside it.
Whatever a message holds is shown with its control characters escaped, for a header may hold a terminal's
commands. rich is imported when a table is printed, so that `--json` and `--help` do not pay for it.
Cost: some 50 ms for the first table, 2 µs a cell beyond. Limit: a table is printed as a whole.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import IO, Any

import click

from nats_scheduler.message.rejection import Rejection

EXIT_FAILED = 1
"""The command did its work, and the outcome is bad: an invalid pattern, a server that does not answer."""
EXIT_WRONG_USE = 2
"""The command could not begin: wrong arguments or settings."""

MOST_FOLDED_ROWS = 2_000
"""Rows that are laid out for a terminal; in a longer table, as in a pipe, each row is one line."""


class CommandError(click.ClickException):
    """A command ends with a message for the operator."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        """Hold the message, and the code that the process ends with."""
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it off the instance too

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message on standard error, each line marked."""
        for line in self.message.splitlines():
            click.echo(f"nats-scheduler: error: {line}", file=file or sys.stderr)


def printable(text: str) -> str:
    """Return text with everything that is not a visible character escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def print_json(document: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print rows under column names, as wide as the terminal or, in a pipe, as wide as the text."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if not sys.stdout.isatty() or len(cells) > MOST_FOLDED_ROWS:
        _print_plain(columns, cells)
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for column in columns:
        table.add_column(Text(column), overflow="fold")
    for row in cells:
        table.add_row(*map(Text, row))
    Console(file=sys.stdout, highlight=False, emoji=False).print(table)


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print each row as one line, however long; rich would take a minute for 100,000."""
    from rich.cells import cell_len

    def width_of(cell: str) -> int:
        return len(cell) if cell.isascii() else cell_len(cell)

    widths = [max(map(width_of, column)) for column in zip(columns, *rows, strict=True)]
    lines = []
    for row in (columns, *rows):
        padded = (cell + " " * (width - width_of(cell)) for cell, width in zip(row, widths, strict=True))
        lines.append("  ".join(padded).rstrip())
    click.echo("\n".join(lines))


def rejection_document(rejection: Rejection) -> dict[str, object]:
    """Return a rejection as JSON holds it: the names that a server's error has, and where it is."""
    return {
        "code": rejection.status,
        "err_code": rejection.code,
        "description": rejection.description,
        "header": rejection.header,
        "value": rejection.value,
        "reason": rejection.reason,
    }


def rejection_error(rejection: Rejection) -> CommandError:
    """Return the error that ends a command whose subject the server would refuse."""
    return CommandError(f"{printable(str(rejection))}\nthe server says: {rejection.description}")
