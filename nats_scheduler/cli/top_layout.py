"""The screen of `top`: which lines are shown at a size.

Rule: a screen is never wider or higher than asked for. What does not fit is left out in a fixed order: of the tables
first the last fires, then the sidecars, what is due next, failures and the streams; of the lines around them the keys,
the title, lateness, fires and notices. The line that says whether all is well stays.
Each table is first given one row, then all of them more (`TIERS`), so that a long one does not displace another.
Cost: some microseconds for each row.
"""

from __future__ import annotations

from collections.abc import Sequence

from nats_scheduler.cli.output import width_of
from nats_scheduler.cli.top_lines import Line, Span, Style, cut_line, sparkline
from nats_scheduler.cli.top_tables import P99, Section, in_order_of_importance, lateness_text, sections
from nats_scheduler.cli.top_view import LATENESS_MINUTES, View
from nats_scheduler.observe.texts import moment_text, printable, span_text
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.service.overview import Activity

TIERS = (1, 3, 5, 9, 10**6)
"""How many rows each table has before any of them gets more."""
ROWS_WITHOUT_LIMIT = 20
"""Rows of each table if the height is not limited."""
CHARS_WITHOUT_LIMIT = 400
"""How much of a line around the tables is shown if the width is not limited."""
LEFT_COLUMNS = 40
"""Where the label of a sparkline begins."""
LABEL_COLUMNS = 16
LEAST_MINUTES_SHOWN, MOST_MINUTES_SHOWN = 8, 60
STALE_FROM_NS = 5 * SECOND
"""The age from which on answers are said to be old."""
P50 = 0.5
PATIENCE = "waiting for the first answer"

STATUS, NOTICE, FIRES, LATENESS, TITLE, KEYS = range(6)
"""The lines around the tables, the most important one first."""


def screen(view: View, width: int | None, height: int | None, keys: str = "") -> list[Line]:
    """Return the lines for a terminal of `width` columns and `height` rows; None is any size, as for a pipe."""
    around = _around(view, width, keys)
    kept = sorted(around)[: len(around) if height is None else height]
    above = [line for name, line in around.items() if name in kept and name != KEYS]
    below = [around[KEYS]] if KEYS in kept else []
    tables = sections(view)
    if height is None:
        body = [line for table in tables if table.size for line in ((), *table.lines(ROWS_WITHOUT_LIMIT, width))]
    else:
        room = height - len(above) - len(below)
        rows = shared_rows(in_order_of_importance(tables), room)
        body = [line for table in tables if table.name in rows for line in table.lines(rows[table.name], width)]
        body += [()] * (room - len(body))
    return [_cut(line, width) for line in (*above, *body, *below)]


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


def _around(view: View, width: int | None, keys: str) -> dict[int, Line]:
    """Return the lines around the tables, from the top."""
    lines: dict[int, Line] = {TITLE: _title(view, width), STATUS: _status(view)}
    if view.notices:
        lines[NOTICE] = (Span("! ", Style.BAD), Span(_short("; ".join(view.notices))))
    if view.activity is not None:
        lines[FIRES] = _fires_line(view.activity, width)
        lines[LATENESS] = _lateness_line(view.activity, width)
    if keys:
        lines[KEYS] = (Span(keys, Style.FAINT),)
    return lines


def _title(view: View, width: int | None) -> Line:
    name, time = "nats-scheduler top", moment_text(view.at)
    server = f"  {_short(view.server)}"
    if width is None:
        return (Span(name, Style.BOLD), Span(server), Span(f"  {time}"))
    between = cut_line((Span(server),), max(width - len(name) - len(time) - 2, 0))
    blanks = width - len(name) - len(time) - sum(map(_width, between))
    return (Span(name, Style.BOLD), *between, Span(" " * max(blanks, 1) + time))


def _status(view: View) -> Line:
    """Return whether all is well, in words first."""
    age = f", as of {span_text(view.age)} ago" if view.answered and view.age >= STALE_FROM_NS else ""
    if view.lost:
        return _bad("CONNECTION LOST", f"connecting again{age}: {view.lost}")
    if not view.answered:
        return _bad("NO SIDECAR ANSWERS", view.advice) if view.advice else (Span(PATIENCE),)
    alive = "" if view.instances is None else _alive_text(view.alive, len(view.instances))
    about = f"{alive}{age}".removeprefix(", ")
    if view.reasons:
        more = f" (and {len(view.reasons) - 1} more)" if len(view.reasons) > 1 else ""
        return _bad("NOT READY", f"{about}{': ' if about else ''}{view.reasons[0]}{more}")
    if not view.is_health_known:
        return _bad("NOT KNOWN", f"no sidecar says whether it is ready{': ' if about else ''}{about}")
    return (Span("READY", Style.GOOD), Span(f"  {about}"))


def _alive_text(alive: int, total: int) -> str:
    number = f"{alive}" if alive == total else f"{alive} of {total}"
    return f"{number} sidecar{'' if total == 1 else 's'} alive"


def _bad(word: str, text: str) -> Line:
    return (Span(word, Style.BAD), Span(f"  {_short(text)}"))


def _fires_line(activity: Activity, width: int | None) -> Line:
    rate, refused = activity.rate(), activity.refused(LATENESS_MINUTES)
    shown = f"{rate:,.0f}" if rate >= 100 else f"{rate:.1f}"
    parts = [Span("fires     "), Span(f"{shown}/s", Style.BOLD), Span(f", {rate * 60:,.0f} in 60 s")]
    if refused:
        parts.append(Span(f", {refused:,} refused", Style.BAD))
    return (*parts, *_spark(parts, "per minute", [minute.fires for minute in activity.minutes], width))


def _lateness_line(activity: Activity, width: int | None) -> Line:
    late = activity.lateness(LATENESS_MINUTES)
    if not late.total:
        return (Span("lateness  "), Span(f"no fire in {LATENESS_MINUTES} min"))
    figures = {"p50": late.quantile(P50), "p99": late.quantile(P99), "max": late.most or None}
    parts = [Span("lateness")]
    for name, figure in figures.items():  # the last one is left out first if there is no room
        text = f"  {name} {lateness_text(figure)}"
        if width is None or sum(map(_width, parts)) + len(text) <= width:
            parts.append(Span(text))
    minutes = [minute.lateness.quantile(P99) or 0 for minute in activity.minutes]
    return (*parts, *_spark(parts, "p99 per minute", minutes, width))


def _spark(left: Sequence[Span], label: str, values: Sequence[float], width: int | None) -> Line:
    """Return a label and a picture of the last values, behind the text at the left; nothing if there is no room."""
    used = sum(map(_width, left))
    start = max(LEFT_COLUMNS, used + 1)
    room = MOST_MINUTES_SHOWN if width is None else min(width - start - LABEL_COLUMNS, MOST_MINUTES_SHOWN)
    if room < LEAST_MINUTES_SHOWN or not values:
        return ()
    return (Span(" " * (start - used) + label.rjust(LABEL_COLUMNS - 1) + " "), Span(sparkline(values[-room:])))


def _width(span: Span) -> int:
    return width_of(span.text)


def _short(text: str) -> str:
    shown = printable(text)
    return shown if len(shown) <= CHARS_WITHOUT_LIMIT else f"{shown[:CHARS_WITHOUT_LIMIT]}…"


def _cut(line: Line, width: int | None) -> Line:
    return line if width is None else cut_line(line, width)
