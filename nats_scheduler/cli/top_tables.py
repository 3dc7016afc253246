"""The tables of `top`: streams, what is due next, the last fires, failures and sidecars.

Rule: of the columns, those with a number in `Column.drop` are left out on a narrow screen, the lowest number first.
Cost: some microseconds for each row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from nats_scheduler.cli.top_lines import Column, Line, Row, Span, Style, cut_line, table_lines
from nats_scheduler.cli.top_view import LATENESS_MINUTES, InstanceRow, StreamRow, View
from nats_scheduler.observe.texts import span_text, what_happened
from nats_scheduler.schedule.instants import DAY, MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339

UNKNOWN = "-"
P99 = 0.99
MAX_CELL_CHARS = 200
"""How much of a foreign text is shown if the width is not limited."""

STREAMS, DUE, FIRES, FAILURES, INSTANCES = "STREAM", "DUE", "FIRED", "FAILED", "SIDECAR"
"""The tables, each by the title of its first column."""
IMPORTANCE = (STREAMS, FAILURES, DUE, INSTANCES, FIRES)
"""The first one is the last to be left out."""


@dataclass(frozen=True, slots=True)
class Section:
    """A table of the screen."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    empty: str = ""
    """What is shown instead of rows; without it, a table without rows is left out."""

    @property
    def size(self) -> int:
        """How many lines it has with all of its rows."""
        return 1 + len(self.rows) if self.rows else int(bool(self.empty))

    def lines(self, rows: int, width: int | None) -> list[Line]:
        """Return its heading and the first rows; the heading says if there are more."""
        if not self.rows:
            line = (Span(self.name, Style.HEADING), Span(f"  {self.empty}"))
            return [line if width is None else cut_line(line, width)]
        first = self.columns[0]
        title = first.title if rows >= len(self.rows) else f"{first.title} {rows}/{len(self.rows)}"
        heading = Column(title, first.least, first.drop, right=first.right)
        return table_lines([heading, *self.columns[1:]], self.rows[:rows], width)


def sections(view: View) -> list[Section]:
    """Return all tables from the top of the screen to its end."""
    return [_streams(view), _due(view), _last_fires(view), _failures(view), _instances(view)]


def in_order_of_importance(tables: Sequence[Section]) -> list[Section]:
    """Return the tables, the one that is left out last first."""
    return sorted(tables, key=lambda table: IMPORTANCE.index(table.name))


def _streams(view: View) -> Section:
    columns = [
        Column(STREAMS, least=10),
        Column("MODE", drop=1),
        Column("SCHEDULES", drop=3, right=True),
        Column("OVERDUE", right=True),
        Column("FAILING", right=True),
        Column("/MIN", drop=4, right=True),
        Column("P99", drop=2, right=True),
        Column("NEXT FIRE"),
    ]
    empty = "none is served" if view.answered else ""
    return Section(STREAMS, columns, [_stream_row(one, view.at) for one in view.streams], empty)


def _stream_row(row: StreamRow, at: int) -> Row:
    one, activity = row.stream, row.activity
    return [
        _short(one.name),
        one.mode,
        UNKNOWN if one.schedules is None else _schedules_text(one.schedules, row.paused),
        UNKNOWN if row.overdue is None else _bad_number(row.overdue),
        _bad_number(one.failing),
        UNKNOWN if activity is None else f"{activity.rate() * 60:,.0f}",
        UNKNOWN if activity is None else lateness_text(activity.lateness(LATENESS_MINUTES).quantile(P99)),
        _next_text(row, at),
    ]


def _schedules_text(schedules: int, paused: int | None) -> str:
    return f"{schedules:,}, {paused:,} paused" if paused else f"{schedules:,}"


def _next_text(row: StreamRow, at: int) -> Span:
    if not row.stream.is_ready:
        return Span("not ready", Style.BAD)
    return Span(UNKNOWN if row.next_fire is None else due_text(row.next_fire, at))


def _due(view: View) -> Section:
    columns = [
        Column(DUE),
        Column("STREAM", least=8, drop=2),
        Column("SCHEDULE", least=16),
        Column("PATTERN", least=10, drop=1),
    ]
    rows = [
        [due_text(one.fire_time, view.at), *map(_short, (one.stream, one.subject, one.pattern))]
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
        [clock_text(one.stored_at, view.at), lateness_text(one.lateness), _short(one.stream), _short(one.schedule)]
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
        [
            clock_text(one.stored_at, view.at),
            *map(_short, (one.kind, one.stream, one.schedule or UNKNOWN, what_happened(one.advisory))),
        ]
        for one in view.failures or ()
    ]
    return Section(FAILURES, columns, rows, "nothing, as far as it is kept" if view.failures is not None else "")


def _instances(view: View) -> Section:
    columns = [
        Column(INSTANCES, least=10),
        Column("STATE"),
        Column("STREAMS", drop=2, right=True),
        Column("SHARDS", drop=3, right=True),
        Column("UP", drop=1, right=True),
        Column("PROBLEM", least=12, drop=4),
    ]
    in_trouble_first = sorted(view.instances or (), key=lambda one: {"alive": 2, "gone": 1}.get(one.state, 0))
    rows = [_instance_row(one, view.at) for one in in_trouble_first]
    return Section(INSTANCES, columns, rows, "none lives on this account" if view.instances is not None else "")


def _instance_row(row: InstanceRow, at: int) -> Row:
    one = row.instance
    return [
        _short(one.id),
        Span(row.state, Style.PLAIN if row.state == "alive" else Style.BAD),
        str(len(one.shards)),
        str(sum(map(len, one.shards.values()))),
        UNKNOWN if one.since is None else span_text(max(at - one.since, 0)),
        _short(row.fault),
    ]


def due_text(fire_time: int, at: int) -> str:
    """Return when a fire is due, counted from now: `in 5s`, `now`, `12s ago`."""
    left = fire_time - at
    if left >= SECOND // 2:
        return f"in {span_text(left)}"
    return f"{span_text(-left)} ago" if left <= -2 * SECOND else "now"


def clock_text(instant: int, at: int) -> str:
    """Return an instant of the past (ns) as the time of the day in UTC; as its day if that is another one."""
    text = format_rfc3339(instant - instant % SECOND)
    return text[11:19] if instant // DAY == at // DAY else text[5:16].replace("T", " ")


def lateness_text(nanoseconds: int | None) -> str:
    """Return how late a fire was, or `-` if that is not known."""
    if nanoseconds is None:
        return UNKNOWN
    if abs(nanoseconds) < SECOND:
        return f"{nanoseconds / MILLISECOND:.1f} ms"
    return f"{nanoseconds / SECOND:.1f} s" if nanoseconds < 100 * SECOND else span_text(nanoseconds)


def _bad_number(number: int) -> Span:
    return Span(f"{number:,}", Style.BAD if number else Style.PLAIN)


def _short(text: str) -> str:
    return text if len(text) <= MAX_CELL_CHARS else f"{text[:MAX_CELL_CHARS]}…"
