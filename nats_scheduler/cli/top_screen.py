"""The screen of `top`: which lines and tables are shown at a size, as renderables of rich.

Rule: a screen is never wider or higher than asked for, and nothing on it takes two lines. What does not fit is left out
in a fixed order: of the tables first the last fires, then the sidecars, what is due next, failures and the streams; of
the lines around them the keys, the title, lateness, fires and notices. The line that says whether all is well stays.
Each table is first given one row, then all of them more (`TIERS`), so that a long one does not displace another.
A style never carries a meaning that the text does not have, and what others wrote is made printable.
Cost: some hundred microseconds for each row.
Limit: a terminal that shows some characters wider than Unicode says so is not known.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from nats_scheduler.cli.top_view import LATENESS_MINUTES, P50, P99, InstanceRow, StreamRow, View
from nats_scheduler.observe.activity import LastMinutes
from nats_scheduler.observe.documents import due_of, instant_of
from nats_scheduler.observe.texts import printable, what_happened
from nats_scheduler.observe.times import UNKNOWN, lateness_text, moment_text, short_text, span_text, upcoming_text
from nats_scheduler.schedule.instants import SECOND

GOOD, BAD, HEADING = "green", "red", "reverse"
ELLIPSIS = "…"
BARS = "▁▂▃▄▅▆▇█"
GAP_COLUMNS = 2
"""Between two columns of a table."""
TIERS = (1, 3, 5, 9, 10**6)
"""The steps by which tables grow: each of them gets this number of rows before any gets more."""
ROWS_WITHOUT_LIMIT = 20
"""Rows of each table if the height is not limited."""
WIDTH_WITHOUT_LIMIT = 4_000
"""Columns that all texts have room in: each is shortened before."""
MAX_LINE_CHARS, MAX_CELL_CHARS = 400, 200
"""The most characters of a foreign text that are shown, in a line around the tables and in a table."""
LEFT_COLUMNS = 40
"""Where the label of a sparkline begins."""
LABEL_COLUMNS = 16
LEAST_MINUTES_SHOWN, MOST_MINUTES_SHOWN = 8, 60
STALE_FROM_NS = 5 * SECOND
"""The age from which on answers are said to be old."""
PATIENCE = "waiting for the first answer"
ADVICE = "Start `nats-scheduler run`, or see `nats-scheduler doctor`."

STATUS, NOTICE, FIRES_LINE, LATENESS, TITLE, KEYS = range(6)
"""The lines around the tables, the most important one first."""
STREAMS, DUE, FIRES, FAILURES, INSTANCES = "STREAM", "DUE", "FIRED", "FAILED", "SIDECAR"
"""The tables, each by the title of its first column."""
IMPORTANCE = (STREAMS, FAILURES, DUE, INSTANCES, FIRES)
"""The first one is the last to be left out."""


def screen(view: View, width: int | None, height: int | None, keys: str = "") -> Group:
    """Return what fills a terminal of `width` columns and `height` rows; None is any size, as for a pipe."""
    around = _around(view, width, keys)
    kept = sorted(around)[: len(around) if height is None else height]
    above = [line for name, line in around.items() if name in kept and name != KEYS]
    below = [around[KEYS]] if KEYS in kept else []
    tables = _sections(view)
    if height is None:
        body = [part for table in tables if table.size for part in (Text(), table.shown(ROWS_WITHOUT_LIMIT, width))]
    else:
        room = height - len(above) - len(below)
        rows = shared_rows(sorted(tables, key=lambda table: IMPORTANCE.index(table.name)), room)
        body = [table.shown(rows[table.name], width) for table in tables if table.name in rows]
        body += [Text()] * (room - sum(1 + number for number in rows.values()))
    return Group(*above, *body, *below)


def text_of(shown: RenderableType, width: int | None) -> list[str]:
    """Return the lines without styles, none wider than `width`; None is any width."""
    console = Console(width=width or WIDTH_WITHOUT_LIMIT, color_system=None)
    lines = console.render_lines(shown, pad=False)
    return ["".join(segment.text for segment in line).rstrip() for line in lines]


# -- lines around the tables -------------------------------------------------------------------------------------------


def _around(view: View, width: int | None, keys: str) -> dict[int, RenderableType]:
    """Return the lines around the tables, from the top."""
    lines: dict[int, RenderableType] = {TITLE: _title(view, width), STATUS: _status(view)}
    advice = [ADVICE] if view.verdict.is_blind and not (view.verdict.is_waiting or view.lost) else []
    if notices := [*advice, *view.notices, *view.verdict.of_level("note")]:
        lines[NOTICE] = _line(("! ", BAD), _short(" ".join(notices), MAX_LINE_CHARS))
    if view.activity is not None:
        lines[FIRES_LINE] = _fires_line(view.activity, width)
        lines[LATENESS] = _lateness_line(view.activity, width)
    if keys:
        lines[KEYS] = _line((keys, "dim"))
    return lines


def _line(*parts: str | tuple[str, str]) -> Text:
    """Return texts and texts with their styles as one line; what is too long loses its end."""
    return Text.assemble(*parts, no_wrap=True, overflow="ellipsis")


def _title(view: View, width: int | None) -> Table:
    title = Table.grid(padding=(0, GAP_COLUMNS, 0, 0), expand=width is not None)
    title.add_column(no_wrap=True, ratio=1)
    title.add_column(no_wrap=True)
    left = _line(("nats-scheduler top", "bold"), f"  {_short(view.server, MAX_LINE_CHARS)}")
    title.add_row(left, _line(moment_text(view.at)))
    return title


def _status(view: View) -> Text:
    """Return the verdict in words, the sidecars that are alive, and the first reason if it is not well."""
    verdict = view.verdict
    if verdict.is_waiting:
        return _line(PATIENCE)
    age = f", as of {span_text(view.age)} ago" if view.age >= STALE_FROM_NS else ""
    alive = "" if view.instances is None else _alive_text(view.alive, len(view.instances))
    about = f"{alive}{age}".removeprefix(", ")
    reasons = verdict.of_level("warn", "bad")
    more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
    text = ": ".join(filter(None, (about, f"{reasons[0]}{more}" if reasons else "")))
    return _line((verdict.words.upper(), BAD if reasons else GOOD), f"  {_short(text, MAX_LINE_CHARS)}")


def _alive_text(alive: int, total: int) -> str:
    if not total:
        return "no sidecar"
    number = f"{alive}" if alive == total else f"{alive} of {total}"
    return f"{number} sidecar{'' if total == 1 else 's'} alive"


def _fires_line(activity: LastMinutes, width: int | None) -> Text:
    rate, refused = activity.rate(), activity.last(LATENESS_MINUTES).refused
    shown = f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"
    values = [minute.fires if activity.is_known(minute) else None for minute in activity.minutes]
    line = _line("fires     ", (f"{shown}/s", "bold"), f", {rate * 60:,.0f} in 60 s")
    if refused:
        line.append(f", {refused:,} refused", BAD)
    return line.append(_spark(line.cell_len, "per minute", values, width))


def _lateness_line(activity: LastMinutes, width: int | None) -> Text:
    late = activity.last(LATENESS_MINUTES)
    if not late.fires:
        return _line(f"lateness  no fire in {LATENESS_MINUTES} min")
    figures = {"p50": late.quantile(P50), "p99": late.quantile(P99), "max": late.lateness_max or None}
    if not any(figure is not None for figure in figures.values()):
        return _line("lateness  not known")
    line = _line("lateness")
    for name, figure in figures.items():  # the last one is left out first if there is no room
        text = f"  {name} {lateness_text(figure)}"
        if width is None or line.cell_len + len(text) <= width:
            line.append(text)
    minutes = [minute.quantile(P99) or 0 if activity.is_known(minute) else None for minute in activity.minutes]
    return line.append(_spark(line.cell_len, "p99 per minute", minutes, width))


def _spark(used: int, label: str, values: Sequence[float | None], width: int | None) -> str:
    """Return a label and a picture of the last values, behind `used` columns; nothing if there is no room."""
    start = max(LEFT_COLUMNS, used + 1)
    room = MOST_MINUTES_SHOWN if width is None else min(width - start - LABEL_COLUMNS, MOST_MINUTES_SHOWN)
    if room < LEAST_MINUTES_SHOWN or not values:
        return ""
    return " " * (start - used) + label.rjust(LABEL_COLUMNS - 1) + " " + sparkline(values[-room:])


def sparkline(values: Sequence[float | None]) -> str:
    """Return a picture of values: a bar for each, the highest one full, the lowest one for 0; a blank if not known."""
    most = max((value for value in values if value is not None), default=0)
    return "".join(" " if value is None else _bar(value, most) for value in values)


def _bar(value: float, most: float) -> str:
    if most <= 0:
        return BARS[0]
    return BARS[min(int(max(value, 0) / most * (len(BARS) - 1) + 0.999), len(BARS) - 1)]


# -- tables ------------------------------------------------------------------------------------------------------------


class Cell:
    """A text in a table, made printable; what is too long loses its middle, because subjects differ at both ends."""

    def __init__(self, text: str, style: str = "") -> None:
        self._text = _short(text, MAX_CELL_CHARS)
        self._style = style
        self.width = cell_len(self._text)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(0, self.width)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(cut(self._text, options.max_width), self._style)


def cut(text: str, width: int) -> str:
    """Return text that takes at most `width` columns: what is too long loses its middle."""
    if cell_len(text) <= width:
        return text
    if width <= 0:
        return ""
    tail = (width - 1) // 3
    return set_cell_size(text, width - 1 - tail) + ELLIPSIS + set_cell_size(text[::-1], tail)[::-1]


class Column(NamedTuple):
    """A column of a table, whose cells are in the rows at the same place."""

    title: str
    least: int = 0
    """The width without which it is of no use; 0 if it may not shrink."""
    drop: int = 0
    """The place in the order in which columns are left out if there is no room; 0 for one that always stays."""
    right: bool = False
    """True if its cells are aligned to the right, as numbers are."""


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the screen."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    empty: str = ""
    """The text that is shown instead of rows; without it, a table without rows is left out."""

    @property
    def size(self) -> int:
        """The number of its lines with all of its rows."""
        return 1 + len(self.rows) if self.rows else int(bool(self.empty))

    def shown(self, rows: int, width: int | None) -> RenderableType:
        """Return its heading and the first rows; the heading says if there are more."""
        if not self.rows:
            return _line((self.name, HEADING), f"  {self.empty}")
        number = f" {rows}/{len(self.rows)}" if rows < len(self.rows) else ""
        titles = [Cell(f"{self.name}{number}"), *(Cell(column.title) for column in self.columns[1:])]
        return _table(self.columns, titles, self.rows[:rows], width or WIDTH_WITHOUT_LIMIT)


def _table(columns: Sequence[Column], titles: Sequence[Cell], rows: Sequence[Sequence[Cell]], width: int) -> Table:
    """Return a table without the columns for which there is no room; rich shrinks the others, the widest first."""
    natural = [max(cell.width for cell in cells) for cells in zip(titles, *rows, strict=True)]
    least = [min(column.least or full, full) for column, full in zip(columns, natural, strict=True)]
    kept = list(range(len(columns)))
    for number in sorted((n for n in kept if columns[n].drop), key=lambda n: columns[n].drop):
        if _total(least, kept) <= width:
            break
        kept.remove(number)
    width = max(width, _total(least, kept))  # what is still too wide loses its end
    table = Table(box=None, padding=(0, GAP_COLUMNS, 0, 0), pad_edge=False, header_style=HEADING, width=width)
    for n in kept:
        table.add_column(titles[n], no_wrap=not columns[n].least, justify="right" if columns[n].right else "left")
    if _total(natural, kept) + GAP_COLUMNS < width:
        table.add_column(ratio=1)  # takes the rest of the line, so that the heading is as wide as the screen
    for row in rows:
        table.add_row(*(row[n] for n in kept))
    return table


def _total(widths: Sequence[int], kept: Sequence[int]) -> int:
    return sum(widths[n] + GAP_COLUMNS for n in kept) - GAP_COLUMNS


def shared_rows(tables: Sequence[Section], room: int) -> dict[str, int]:
    """Return how many rows each table gets, the most important table first; one that is left out is not named."""
    rows: dict[str, int] = {}
    for table in tables:
        if 0 < min(table.size, 2) <= room:
            rows[table.name] = min(len(table.rows), 1)
            room -= min(table.size, 2)
    for tier in TIERS:
        growing = True
        while growing and room:
            growing = False
            for table in tables:
                if room and rows.get(table.name, tier) < min(tier, len(table.rows)):
                    rows[table.name] += 1
                    room -= 1
                    growing = True
    return rows


def _sections(view: View) -> list[Section]:
    """Return all tables from the top of the screen to its end."""
    return [_streams(view), _due(view), _last_fires(view), _failures(view), _instances(view)]


def _streams(view: View) -> Section:
    columns = [
        Column(STREAMS, least=10),
        Column("MODE", drop=3),
        Column("SCHEDULES", drop=5, right=True),
        Column("OVERDUE", right=True),
        Column("FAILING", right=True),
        Column("/MIN", drop=6, right=True),
        Column("P99", drop=4, right=True),
        Column("NEXT FIRE"),
        Column("OWNER", drop=2),
        Column("STANDBYS", drop=1, right=True),
    ]
    empty = "none is served" if view.answered else ""
    return Section(STREAMS, columns, [_stream_row(one, view.at) for one in view.streams], empty)


def _stream_row(row: StreamRow, at: int) -> list[Cell]:
    one, activity, overdue = row.stream, row.activity, row.in_state("overdue")
    late = None if activity is None else activity.last(LATENESS_MINUTES).quantile(P99)
    return [
        Cell(one["stream"]),
        Cell(one["mode"]),
        Cell(UNKNOWN if row.schedules is None else _schedules_text(row.schedules, row.in_state("paused"))),
        Cell(UNKNOWN) if overdue is None else _bad_number(overdue),
        _bad_number(one["failing"]),
        Cell(UNKNOWN if activity is None else f"{activity.rate() * 60:,.0f}"),
        Cell(lateness_text(late)),
        _next_fire(row, at),
        Cell(one["owner"] or UNKNOWN, BAD if row.is_unowned else ""),
        Cell(str(len(one["standbys"]))),
    ]


def _schedules_text(schedules: int, paused: int | None) -> str:
    return f"{schedules:,}, {paused:,} paused" if paused else f"{schedules:,}"


def _next_fire(row: StreamRow, at: int) -> Cell:
    if not row.stream["ready"]:
        return Cell("not ready", BAD)
    if row.is_unowned:
        return Cell("no owner", BAD)
    return Cell(UNKNOWN if row.next_fire is None else upcoming_text(row.next_fire, at))


def _due(view: View) -> Section:
    columns = [
        Column(DUE),
        Column("STREAM", least=8, drop=2),
        Column("SCHEDULE", least=16),
        Column("PATTERN", least=10, drop=1),
    ]
    rows = [
        _cells(upcoming_text(due_of(one), view.at), one["stream"], one["subject"], one["pattern"])
        for one in view.due or ()
    ]
    return Section(DUE, columns, rows, "nothing" if view.due is not None else "")


def _last_fires(view: View) -> Section:
    columns = [
        Column(FIRES),
        Column("LATE", right=True),
        Column("STREAM", least=8, drop=1),
        Column("SCHEDULE", least=16),
    ]
    rows = [
        _cells(
            short_text(instant_of(one["stored"]), view.at),
            lateness_text(one["lateness_nanoseconds"]),
            one["stream"],
            one["schedule"],
        )
        for one in view.fires or ()
    ]
    return Section(FIRES, columns, rows)


def _failures(view: View) -> Section:
    columns = [
        Column(FAILURES),
        Column("KIND", least=10),
        Column("STREAM", least=8, drop=2),
        Column("SCHEDULE", least=12, drop=3),
        Column("WHAT", least=14, drop=1),
    ]
    rows = [
        _cells(
            short_text(instant_of(one["stored"]), view.at),
            one["kind"],
            one["stream"],
            one["schedule"] or UNKNOWN,
            what_happened(one["advisory"]),
        )
        for one in view.failures or ()
    ]
    return Section(FAILURES, columns, rows, "nothing, as far as it is kept" if view.failures is not None else "")


def _instances(view: View) -> Section:
    columns = [
        Column(INSTANCES, least=10),
        Column("STATE"),
        Column("OWNS", drop=3, right=True),
        Column("STANDBY", drop=2, right=True),
        Column("UP", drop=1, right=True),
        Column("PROBLEM", least=12, drop=4),
    ]
    in_trouble_first = sorted(view.instances or (), key=lambda one: {"alive": 2, "gone": 1}.get(one.state, 0))
    rows = [_instance_row(one, view.at) for one in in_trouble_first]
    return Section(INSTANCES, columns, rows, "none lives on this account" if view.instances is not None else "")


def _instance_row(row: InstanceRow, at: int) -> list[Cell]:
    since = row.instance["since"]
    return [
        Cell(row.instance["id"]),
        Cell(row.state, "" if row.state == "alive" else BAD),
        Cell(str(row.owns)),
        Cell(str(row.stands_by)),
        Cell(UNKNOWN if since is None else span_text(max(at - instant_of(since), 0))),
        Cell(row.fault),
    ]


def _cells(*texts: str) -> list[Cell]:
    return [Cell(text) for text in texts]


def _bad_number(number: int) -> Cell:
    return Cell(f"{number:,}", BAD if number else "")


# -- texts -------------------------------------------------------------------------------------------------------------


def _short(text: str, most: int) -> str:
    shown = printable(text)
    return shown if len(shown) <= most else f"{shown[:most]}{ELLIPSIS}"
