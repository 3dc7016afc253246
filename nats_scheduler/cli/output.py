"""The output of commands: tables for people, JSON for programs, and one form for all errors.

Rule: answers go to standard output, errors and warnings to standard error. With `--json` standard output has exactly
one document; if the command fails, it has the field `error`.
Texts from messages are printed with their control characters escaped, since a header may contain terminal commands.
A table is as wide as the terminal, and a cell is broken at spaces only. If it is still too wide, optional columns are
left out and named; if it is too wide even then, each row becomes a few lines of `column  cell`. In a pipe, and with
`--wide`, each row is one line of any length.
Cost: some microseconds a cell. Limit: a word that is wider than the terminal is broken by the terminal.
"""

import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any

import click

from nats_scheduler.message.rejection import Rejection
from nats_scheduler.observe.texts import printable
from nats_scheduler.observe.times import zone_name

MAX_FOLDED_ROWS = 2_000
"""The most rows that are laid out for a terminal; in a longer table each row is one line, as in a pipe."""

COLUMN_GAP = "  "

Command = Callable[..., Any]

wide_option: Callable[[Command], Command] = click.option(
    "--wide", is_flag=True, help="Print all columns, one line a row."
)
json_option: Callable[[Command], Command] = click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document."
)


def decorated(command: Command, *decorators: Callable[[Command], Command]) -> Command:
    """Return a command with arguments and options, in the order in which its help lists them."""
    for one in reversed(decorators):
        command = one(command)
    return command


def print_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, optional: Sequence[str] = (), wide: bool = False
) -> None:
    """Print rows under column names; `optional` columns may be left out, in this order."""
    cells = [[printable(cell) for cell in row] for row in rows]
    heads = [column.replace("(UTC)", f"({zone_name()})") for column in columns]
    if wide or not sys.stdout.isatty() or len(cells) > MAX_FOLDED_ROWS:
        _print_rows([heads, *cells])
        return
    room = shutil.get_terminal_size().columns
    kept, dropped = list(range(len(columns))), []
    table = [heads, *cells]
    for name in optional:
        if _least_width(table, kept) <= room:
            break
        if name in columns:
            kept.remove(columns.index(name))
            dropped.append(name)
    if _least_width(table, kept) > room:
        _print_stacked(heads, cells, room)
        return
    chosen = [[row[n] for n in kept] for row in table]
    _print_rows(chosen, _widths(chosen, room))
    if dropped:
        click.echo(f"(left out: {', '.join(dropped)}; --wide shows all)")


def width_of(text: str) -> int:
    """Return how many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _widths(table: Sequence[Sequence[str]], room: int) -> list[int]:
    """Return the width of each column, so that all fit: the widest shrink first, none below its longest word."""
    columns = list(zip(*table, strict=True))
    widths = [max(map(width_of, column)) for column in columns]
    least = [max(map(_longest_word, column)) for column in columns]
    too_much = sum(widths) + len(COLUMN_GAP) * (len(widths) - 1) - room
    while too_much > 0:
        widest = max((n for n in range(len(widths)) if widths[n] > least[n]), key=widths.__getitem__)
        widths[widest] -= 1
        too_much -= 1
    return widths


def _least_width(table: Sequence[Sequence[str]], kept: Sequence[int]) -> int:
    """Return the least width of the columns that are kept."""
    return sum(max(_longest_word(row[n]) for row in table) for n in kept) + len(COLUMN_GAP) * (len(kept) - 1)


def _longest_word(cell: str) -> int:
    return max(map(width_of, cell.split(" ")))


def _print_rows(table: Sequence[Sequence[str]], widths: Sequence[int] | None = None) -> None:
    """Print each row with its cells folded to `widths`; without widths, as one line."""
    fitting = widths or [max(map(width_of, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        folded = [fold(cell, width) for cell, width in zip(row, fitting, strict=True)] if widths else [[c] for c in row]
        for number in range(max(map(len, folded))):
            parts = [part[number] if number < len(part) else "" for part in folded]
            padded = (part + " " * (width - width_of(part)) for part, width in zip(parts, fitting, strict=True))
            lines.append(COLUMN_GAP.join(padded).rstrip())
    click.echo("\n".join(lines))


def _print_stacked(columns: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> None:
    """Print each row as a few lines, one for each cell that holds something."""
    label_chars = max(map(width_of, columns)) + len(COLUMN_GAP)
    lines = []
    for row in rows:
        filled = [(name, cell) for name, cell in zip(columns, row, strict=True) if cell]
        lines += [*labelled_lines(filled, label_chars, room), ""]
    click.echo("\n".join(lines[:-1]))


def labelled_lines(texts: Iterable[tuple[str, str]], label_chars: int, room: int | None) -> list[str]:
    """Return labels with their texts, which are folded beside them into a width; None is any width."""
    lines = []
    for label, text in texts:
        parts = [text] if room is None else fold(text, max(room - label_chars, 1))
        lines += [f"{'' if number else label:<{label_chars}}{part}" for number, part in enumerate(parts)]
    return lines


def print_folded(text: str) -> None:
    """Print a sentence, on a terminal in lines that fit into it."""
    click.echo("\n".join(fold(text, shutil.get_terminal_size().columns)) if sys.stdout.isatty() else text)


def fold(text: str, width: int) -> list[str]:
    """Break text at spaces into lines of at most `width`; a longer word has a line of its own."""
    if width_of(text) <= width:
        return [text]
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and width_of(lines[-1]) + 1 + width_of(word) > width:
            lines.append(word)
        else:
            lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return lines


STDOUT_FD = 1
EXIT_FAILED = 1
"""The command ran, and the outcome is bad: an invalid pattern, a server that does not answer."""
EXIT_WRONG_USE = 2
"""The command could not begin: wrong arguments or settings."""


class CommandError(click.ClickException):
    """Ends a command with a message for the operator."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED) -> None:
        """Hold the message, and the exit code of the process."""
        super().__init__(message)
        self.exit_code = exit_code  # type: ignore[misc]  # click reads it off the instance too

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message on standard error, each line with a prefix."""
        for line in self.message.splitlines():
            click.echo(f"nats-scheduler: error: {line}", file=file or sys.stderr)


def print_warning(text: str) -> None:
    """Print a warning on standard error."""
    click.echo(f"nats-scheduler: warning: {text}", err=True)


class Printer:
    """Prints whole lines; when their reader is gone, `gone` is called once, and nothing is printed any more."""

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone: Callable[[], None] | None = gone

    def lines(self, *lines: str) -> None:
        """Print lines, in one write."""
        if self._gone is None or not lines:
            return
        try:
            click.echo("\n".join(lines))
        except OSError:
            gone, self._gone = self._gone, None
            silence_output()
            gone()


def silence_output() -> None:
    """Write nothing more to standard output: what is buffered must not fail once more when the interpreter ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT_FD)


def print_json(document: object) -> None:
    """Print one JSON document."""
    click.echo(json.dumps(document, indent=2))


def rejection_error(rejection: Rejection) -> CommandError:
    """Return the error that ends a command because the server would refuse the message."""
    return CommandError(f"{printable(str(rejection))}\nthe server's error: {rejection.description}")
