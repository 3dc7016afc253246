"""A terminal as a person sees it after a program wrote to it: the few commands of a VT100 that our programs use.

Its rule: a command that is not understood is an error, so that nothing is written that was not meant.
Its limit: a character is one or two columns wide, as Unicode says.
"""

import re

from rich.cells import cell_len

PARTS = re.compile(r"\x1b\[(\??)([0-9;]*)([A-Za-z])|([^\x1b])", re.S)
BLANK = " "


class Screen:
    """A terminal of a size; text is written at the cursor, and a line that is too long is an error."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.modes: dict[str, bool] = {}
        """The modes that were set (`h`) or reset (`l`), by number."""
        self._cells = [[BLANK] * columns for _ in range(rows)]
        self._row = self._column = 0

    def write(self, text: str) -> None:
        """Do what a terminal does with this text."""
        end = 0
        for part in PARTS.finditer(text):
            assert part.start() == end, f"not understood: {text[end : part.start() + 20]!r}"
            end = part.end()
            private, numbers, command, char = part.groups()
            if char is None:
                self._do(private + command, numbers)
            elif char >= " ":
                self._put(char)
        assert end == len(text), f"not understood: {text[end : end + 20]!r}"

    def lines(self) -> list[str]:
        """Return the text of all rows, without blanks at the end."""
        return ["".join(row).rstrip() for row in self._cells]

    def _put(self, char: str) -> None:
        width = cell_len(char)
        assert self._column + width <= self.columns, f"row {self._row + 1} is wider than {self.columns} columns"
        row = self._cells[self._row]
        row[self._column : self._column + width] = [char, *[""] * (width - 1)]
        self._column += width

    def _do(self, command: str, numbers: str) -> None:
        if command == "H":
            row, column = (int(number) for number in (numbers or "1;1").split(";"))
            assert 1 <= row <= self.rows
            assert 1 <= column <= self.columns
            self._row, self._column = row - 1, column - 1
        elif command == "K" and not numbers:
            self._cells[self._row][self._column :] = [BLANK] * (self.columns - self._column)
        elif command == "J" and numbers == "2":
            self._cells = [[BLANK] * self.columns for _ in range(self.rows)]
        elif command in ("?h", "?l"):
            self.modes[numbers] = command == "?h"
        else:
            assert command == "m", f"a command {command} that is not known"
