"""Lines of a screen: texts with styles, cut to a width in columns of the terminal, and tables of them.

Rule: no line is wider than it may be, whatever the texts contain: a cell of a table is made printable, is measured in
columns of a terminal, and what is too long is cut in its middle, because subjects differ at both ends.
A style never carries a meaning that the text does not have.
Cost: a microsecond for each cell. Limit: a terminal that shows some characters wider than Unicode says so is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from nats_scheduler.cli.output import width_of
from nats_scheduler.observe.texts import printable

GAP = "  "
ELLIPSIS = "…"
BARS = "▁▂▃▄▅▆▇█"


class Style(Enum):
    """How a text is shown, by the number that a terminal has for it."""

    PLAIN = "0"
    BOLD = "1"
    FAINT = "2"
    HEADING = "7"
    GOOD = "32"
    BAD = "31"


class Span(NamedTuple):
    """A text in one style."""

    text: str
    style: Style = Style.PLAIN


Line = tuple[Span, ...]


def plain(line: Line) -> str:
    """Return the text of a line."""
    return "".join(span.text for span in line)


def cut(text: str, width: int) -> str:
    """Return text that takes at most `width` columns: what is too long loses its middle."""
    if width_of(text) <= width:
        return text
    if width <= 0:
        return ""
    tail = (width - 1) // 3
    return _head(text, width - 1 - tail) + ELLIPSIS + _head(text[::-1], tail)[::-1]


def cut_line(line: Line, width: int) -> Line:
    """Return a line that takes at most `width` columns: what is too long loses its end."""
    kept: list[Span] = []
    for span in line:
        took = width_of(span.text)
        if took > width:
            return (*kept, Span(_head(span.text, width - 1) + ELLIPSIS, span.style)) if width > 0 else tuple(kept)
        kept.append(span)
        width -= took
    return tuple(kept)


def _head(text: str, width: int) -> str:
    """Return as much of the beginning as fits into `width` columns."""
    if text.isascii():
        return text[: max(width, 0)]
    for end, char in enumerate(text):
        width -= width_of(char)
        if width < 0:
            return text[:end]
    return text


def sparkline(values: Sequence[float]) -> str:
    """Return a picture of values: one bar for each, the highest one full, the lowest bar for anything above 0."""
    most = max(values, default=0)
    if most <= 0:
        return BARS[0] * len(values)
    return "".join(BARS[min(int(max(value, 0) / most * (len(BARS) - 1) + 0.999), len(BARS) - 1)] for value in values)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table, whose cells are in the rows at the same place."""

    title: str
    least: int = 0
    """The width to which it may shrink; 0 if it may not. What is left over goes to these columns."""
    drop: int = 0
    """The place in the order in which columns are left out if there is no room; 0 for one that always stays."""
    right: bool = False
    """Whether its cells stand at the right, as numbers do."""


Row = Sequence[Span | str]


def table_lines(columns: Sequence[Column], rows: Sequence[Row], width: int | None) -> list[Line]:
    """Return the heading and the rows, none wider than `width` columns; None is any width."""
    cells = [[_printable_span(cell) for cell in row] for row in rows]
    natural = [
        max([width_of(column.title), *(width_of(row[n].text) for row in cells)]) for n, column in enumerate(columns)
    ]
    kept = list(range(len(columns)))
    widths = dict(enumerate(natural))
    if width is not None:
        kept = _kept(columns, natural, width)
        widths = _shrunk(columns, natural, kept, width)
    heading = _line([Span(columns[n].title) for n in kept], [columns[n] for n in kept], [widths[n] for n in kept])
    lines: list[Line] = [(Span(plain(heading).ljust(width or 0), Style.HEADING),)]
    lines += [_line([row[n] for n in kept], [columns[n] for n in kept], [widths[n] for n in kept]) for row in cells]
    return lines if width is None else [cut_line(line, width) for line in lines]


def _printable_span(cell: Span | str) -> Span:
    return Span(printable(cell.text), cell.style) if isinstance(cell, Span) else Span(printable(cell))


def _least(column: Column, natural: int) -> int:
    return min(column.least or natural, natural)


def _kept(columns: Sequence[Column], natural: Sequence[int], width: int) -> list[int]:
    """Return the columns that fit if each one is as narrow as it may be."""
    kept = list(range(len(columns)))
    for number in sorted((n for n in kept if columns[n].drop), key=lambda n: columns[n].drop):
        if sum(_least(columns[n], natural[n]) for n in kept) + len(GAP) * (len(kept) - 1) <= width:
            break
        kept.remove(number)
    return kept


def _shrunk(columns: Sequence[Column], natural: Sequence[int], kept: Sequence[int], width: int) -> dict[int, int]:
    """Return the widths with which the columns fit: the widest of those that may shrink shrinks first."""
    widths = {n: natural[n] for n in kept}
    too_much = sum(widths.values()) + len(GAP) * (len(kept) - 1) - width
    while too_much > 0:
        shrinking = [n for n in kept if widths[n] > _least(columns[n], natural[n])]
        if not shrinking:
            break
        widest = max(shrinking, key=widths.__getitem__)
        others = [widths[n] for n in shrinking if n != widest]
        room = widths[widest] - max([_least(columns[widest], natural[widest]), *(w - 1 for w in others if w > 0)])
        step = max(1, min(too_much, room))
        widths[widest] -= step
        too_much -= step
    return widths


def _line(cells: Sequence[Span], columns: Sequence[Column], widths: Sequence[int]) -> Line:
    spans: list[Span] = []
    for number, (cell, column, width) in enumerate(zip(cells, columns, widths, strict=True)):
        text = cut(cell.text, width)
        blanks = " " * (width - width_of(text))
        before, after = (blanks, "") if column.right else ("", blanks)
        gap = GAP if number else ""
        spans += [Span(gap + before), Span(text, cell.style), Span(after)]
    while spans and not spans[-1].text.strip():
        spans.pop()
    return tuple(span for span in spans if span.text)
