"""What `nats-scheduler dev` prints: how to use the server, one line per fire, and the summary.

Rule: each output is whole lines, written at once. A pipe gets the same text as a terminal, without the colours.
If the reader of the output is gone (`| head`, a closed terminal), `gone` is called once, and nothing is printed any
more.
Cost: some microseconds a line, one write for the fires that were read together. Limit: eight bytes a fire are kept for
the summary.
"""

from __future__ import annotations

import os
import shlex
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import click

from nats_scheduler.cli.demo import DemoSchedule
from nats_scheduler.cli.fire_watch import WatchedStream
from nats_scheduler.cli.output import printable
from nats_scheduler.engine.events import Event, FiresMissed, ScheduleRejected
from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.fires import ScheduleKind, StoredFire
from nats_scheduler.message.writing import defined, definition_headers
from nats_scheduler.runtime.modes import EXPLANATIONS
from nats_scheduler.schedule.instants import MILLISECOND, MINUTE, floor_to_second
from nats_scheduler.schedule.rfc3339 import format_rfc3339

LATE_FROM_NS = 10 * MILLISECOND
"""What *Timely* promises for p99 while fires are spread (ns); later fires are shown in another colour."""
ALL_PATTERNS_API_LEVEL = 4
"""From this API level on (2.14) a native server supports every pattern; before that, only `@at`."""
KIND_COLOURS = {
    ScheduleKind.DELAYED: "cyan",
    ScheduleKind.INTERVAL: "green",
    ScheduleKind.CRON: "magenta",
    ScheduleKind.SAMPLING: "blue",
}
STDOUT_FD = 1


class Tally:
    """Counts what happened since the start, `since` (ns)."""

    def __init__(self, since: int) -> None:
        self._since = since
        self._fires: Counter[ScheduleKind] = Counter()
        self._lateness = array("q")
        self._events: Counter[type[Event]] = Counter()

    def event(self, _stream: str, event: Event) -> None:
        """Count an event of the sidecar; to be given to `Reporter.listen`."""
        self._events[type(event)] += 1

    def fire(self, fire: StoredFire) -> None:
        """Count a fire. One that was overdue before the sidecar could fire it does not count for lateness."""
        self._fires[fire.kind] += 1
        if not self.is_overdue(fire):
            self._lateness.append(fire.lateness)

    def is_overdue(self, fire: StoredFire) -> bool:
        """Return whether a fire was due before this start, or before its schedule was stored."""
        return fire.send_time < max(fire.since, self._since)

    def lines(self) -> list[str]:
        """Return the summary."""
        total = self._fires.total()
        kinds = ", ".join(f"{self._fires[kind]} {kind}" for kind in ScheduleKind if self._fires[kind])
        overdue = total - len(self._lateness)
        return [
            f"fires     {total}{f': {kinds}' if kinds else ''}",
            f"lateness  {self._percentiles()}{f' ({overdue} overdue at the start left out)' if overdue else ''}",
            f"rejected  {self._events[ScheduleRejected]}",
            f"missed    {self._events[FiresMissed]}",
        ]

    def _percentiles(self) -> str:
        ordered = sorted(self._lateness)
        if not ordered:
            return "none measured"
        p50, p99, most = (ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 99, 100))
        return f"p50 {milliseconds(p50)}, p99 {milliseconds(p99)}, max {milliseconds(most)}"


class Screen:
    """Prints lines for people."""

    def __init__(self, gone: Callable[[], None]) -> None:
        self._gone: Callable[[], None] | None = gone
        self._heading_printed = False

    def lines(self, *lines: str) -> None:
        """Print lines, in one write."""
        if self._gone is None or not lines:
            return
        try:
            click.echo("\n".join(lines))
        except OSError:
            gone, self._gone = self._gone, None
            silence = os.open(os.devnull, os.O_WRONLY)
            os.dup2(silence, STDOUT_FD)  # buffered text must not fail once more when the interpreter ends
            gone()

    def heading(self, text: str) -> None:
        """Print an empty line and a heading."""
        self.lines("", click.style(text, bold=True))

    def stream(self, served: WatchedStream) -> None:
        """Print what fires on a stream."""
        self.lines(f"stream {printable(served.state.name)} is {served.mode}: {EXPLANATIONS[served.mode]}")

    def demo(self, published: Sequence[tuple[DemoSchedule, Dialect]], version: str) -> None:
        """Print what the demo published."""
        self.heading("The demo published these schedules")
        for schedule, dialect in published:
            source = f", the last message of {schedule.source}" if schedule.source else ""
            name = "" if dialect is ADR51 else f" ({dialect.schedule.decode()})"
            what = f"{schedule.kind:<9} {schedule.subject:<23}  {schedule.pattern + name:<28}"
            self.lines(f"{what} -> {schedule.target}{source}")
        if any(dialect is not ADR51 for _schedule, dialect in published):
            self.lines(
                f"nats-server {version} refuses some patterns in Nats-Schedule: natively it supports only @at.",
                "Those were published with the portable header X-Nats-Schedule, which the sidecar fires.",
            )

    def fires(self, fires: Sequence[StoredFire], is_overdue: Callable[[StoredFire], bool]) -> None:
        """Print one line per fire."""
        if not self._heading_printed:
            self._heading_printed = True
            self.heading("due                   late      kind      schedule -> target")
        self.lines(*(fire_line(fire, overdue=is_overdue(fire)) for fire in fires))


def fire_line(fire: StoredFire, *, overdue: bool) -> str:
    """Return the line of one fire: due time, lateness, kind, schedule and target."""
    late = click.style(f"{milliseconds(fire.lateness):>8}", fg="yellow" if fire.lateness > LATE_FROM_NS else None)
    kind = click.style(f"{fire.kind:<8}", fg=KIND_COLOURS.get(fire.kind))
    overdue_mark = "  (overdue)" if overdue else ""
    subjects = f"{printable(fire.schedule)} -> {printable(fire.target)}"
    return f"{format_rfc3339(fire.due):<20}  {late}  {kind}  {subjects}{overdue_mark}"


def milliseconds(nanoseconds: int) -> str:
    """Return a lateness as text for people."""
    return f"{nanoseconds / MILLISECOND:.1f} ms"


def who_fires(server: Capabilities) -> list[str]:
    """Return lines that say which schedules the server fires and which the sidecar."""
    if not server.schedules_natively:
        return [
            "It has no message schedules: the sidecar fires them (emulated), for Nats-Schedule and X-Nats-Schedule."
        ]
    lines = ["It has message schedules: it fires for Nats-Schedule itself (native), the sidecar for X-Nats-Schedule."]
    if server.api_level < ALL_PATTERNS_API_LEVEL:
        lines.append("This version supports @at only; for intervals and cron use X-Nats-Schedule.")
    return lines


def paste_lines(url: str, stream_file: Path, server: Capabilities, now: int) -> list[str]:
    """Return `nats` commands that add the stream of `stream_file`, subscribe to it, and publish three schedules.

    The subscriber reads the stream: a native server stores its fires without publishing them.
    """
    nats = f"nats -s {url}"
    at = format_rfc3339(floor_to_second(now) + MINUTE)
    is_portable = server.schedules_natively and server.api_level < ALL_PATTERNS_API_LEVEL
    terms = Terms(PORTABLE if is_portable else ADR51, "orders.due", None, ttl="", rollup=False)
    cron = _header_options("0 * * * * *", terms)
    interval = "--schedule-every 5s --schedule-dest orders.due"
    if is_portable:
        interval = f"-J {_header_options('@every 5s', terms)}"
    return [
        f"{nats} stream add --config {shlex.quote(str(stream_file))}",
        f"{nats} sub --stream ORDERS --new orders.due",
        f"{nats} pub --schedule-at {at} --schedule-dest orders.due orders.schedules.once 'a minute after the start'",
        f"{nats} pub {interval} orders.schedules.interval 'every five seconds'",
        f"{nats} pub -J {cron} orders.schedules.cron 'at each full minute'",
        f"{nats} stream purge ORDERS --force --subject orders.schedules.interval",
    ]


def _header_options(pattern: str, terms: Terms) -> str:
    """Return the options of `nats pub` that give a message the headers of a schedule."""
    headers = definition_headers(defined(pattern, terms))
    return " ".join(f"-H '{name.decode()}: {value.decode()}'" for name, value in headers)
