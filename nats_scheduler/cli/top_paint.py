"""What has to be written to a terminal to change one screen into the next: few bytes, for slow lines.

Rule: only the parts of lines that changed are written, each behind a command that moves the cursor there. A line with
characters whose width a terminal may see differently (all but those of `SIMPLE`) is written whole, so that the
difference stays in that line.
Colours are left out if they are not wanted; bold, faint and reverse are no colours.
Cost: a comparison of each cell of the lines that changed. Limit: the terminal has to understand the cursor commands of
a VT100.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nats_scheduler.cli.top_lines import BARS, ELLIPSIS, Line, Style, plain

ENTER = "\x1b[?1049h\x1b[?25l\x1b[?7l\x1b[2J"
"""The second screen, without a cursor, and without wrapping of lines."""
LEAVE = "\x1b[0m\x1b[?7h\x1b[?25h\x1b[?1049l"
CLEAR = "\x1b[2J"
ERASE_REST = "\x1b[K"
SIMPLE = frozenset(map(chr, range(0x20, 0x7F))) | {*BARS, ELLIPSIS}
"""Characters that take one column of every terminal."""
MERGED_CELLS = 8
"""Parts of a line with at most so many equal cells between them are written as one: moving the cursor is as long."""
COLOURS = frozenset({Style.GOOD, Style.BAD})

Cell = tuple[str, Style]
BLANK: Cell = (" ", Style.PLAIN)


class Painter:
    """Holds what is on the screen."""

    def __init__(self, *, coloured: bool) -> None:
        self._coloured = coloured
        self._shown: list[Line] | None = None

    def clear(self) -> None:
        """Assume nothing of what is on the screen: the next one is written whole."""
        self._shown = None

    def changes(self, lines: Sequence[Line]) -> str:
        """Return what changes the screen to these lines."""
        before = self._shown
        self._shown = list(lines)
        if before is None or len(before) != len(lines):
            return CLEAR + "".join(self._whole(row, line) for row, line in enumerate(lines, 1) if line)
        pairs = enumerate(zip(before, lines, strict=True), 1)
        return "".join(self._changed(row, old, new) for row, (old, new) in pairs if old != new)

    def _changed(self, row: int, old: Line, new: Line) -> str:
        if not SIMPLE.issuperset(plain(old) + plain(new)):
            return self._whole(row, new) + ERASE_REST
        was, now = _cells(old), _cells(new)
        length = len(now)
        now += [BLANK] * (len(was) - length)
        was += [BLANK] * (len(now) - len(was))
        written = []
        for first, end in _differences(was, now):
            is_rest = end > length
            text = self._text(now[first : min(end, length)])
            written.append(f"\x1b[{row};{first + 1}H{text}{ERASE_REST if is_rest else ''}")
        return "".join(written)

    def _whole(self, row: int, line: Line) -> str:
        return f"\x1b[{row};1H{self._text(_cells(line))}"

    def _text(self, cells: Sequence[Cell]) -> str:
        parts: list[str] = []
        style = Style.PLAIN
        for char, wanted in cells:
            shown = Style.PLAIN if wanted in COLOURS and not self._coloured else wanted
            if shown is not style:
                parts.append(f"\x1b[0;{shown.value}m" if shown is not Style.PLAIN else "\x1b[0m")
                style = shown
            parts.append(char)
        return "".join(parts) + ("\x1b[0m" if style is not Style.PLAIN else "")


def _cells(line: Line) -> list[Cell]:
    return [(char, span.style) for span in line for char in span.text]


def _differences(was: Sequence[Cell], now: Sequence[Cell]) -> Iterator[tuple[int, int]]:
    """Return the parts in which two lines of the same length differ: from the first cell to behind the last one."""
    first = end = -1
    for number, (old, new) in enumerate(zip(was, now, strict=True)):
        if old == new:
            continue
        if end >= 0 and number - end > MERGED_CELLS:
            yield first, end
            end = -1
        if end < 0:
            first = number
        end = number + 1
    if end >= 0:
        yield first, end
