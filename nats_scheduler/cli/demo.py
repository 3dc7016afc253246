"""The demo of `nats-scheduler dev`, and what this command prints: how to use the server, the fires, and the summary.

Rule: the demo does only what a user can do: its stream is added as `nats-scheduler stream add` does it, and its
schedules, one of each kind, are plain messages with headers. A native server of 2.12 supports `@at` only; a schedule
that it refuses is published again with the portable headers, which the sidecar fires on every server.
A pipe gets the same text as a terminal, without the colours.
Cost: one message a second, the sensor's, and one write for the fires that were read together.
Limit: the first fires come within five seconds, sooner would be hard to read; eight bytes a fire are kept for the
summary.
"""

import asyncio
import itertools
import shlex
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from nats_scheduler.cli.fire_watch import fire_line, milliseconds
from nats_scheduler.cli.output import Printer
from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.control.store import publish_message
from nats_scheduler.engine.events import Event, FiresMissed, ScheduleRejected
from nats_scheduler.extras import installation, missing
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.schedule_wire import ScheduleWire
from nats_scheduler.jetstream.streams import FlaggedStreams
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.definition_block import defined, definition_block
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.fires import ScheduleKind, StoredFire
from nats_scheduler.message.headers import header_items
from nats_scheduler.message.rejection import PATTERN_INVALID
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.schedule.instants import MINUTE, SECOND, floor_to_second
from nats_scheduler.schedule.rfc3339 import format_rfc3339

DEMO_STREAM: dict[str, Any] = {
    "name": "DEMO",
    "description": "The demo of nats-scheduler dev",
    "subjects": ["demo.>"],
    "storage": "file",
    "max_msgs_per_subject": 1000,
    "allow_msg_schedules": True,
}
SENSOR_SUBJECT = "demo.sensor.temperature"
SENSOR_INTERVAL_SECONDS = 1.0
"""The interval at which the demo writes a value to the subject that is sampled."""
DELAYED_FIRE_AFTER_NS = 5 * SECOND
"""The time from now until the delayed message is due (ns); it is rounded down to a second, so it is at least 4 s."""
PAGE = "nats-scheduler web"
"""The command of the demo that needs another extra."""
TO_TRY = (
    "nats-scheduler top",
    PAGE,
    "nats-scheduler history DEMO",
    "nats-scheduler doctor DEMO",
    "nats-scheduler pause DEMO demo.schedules.interval",
    "nats-scheduler resume DEMO demo.schedules.interval",
    "nats-scheduler export DEMO > demo.yaml",
    "nats-scheduler rm DEMO demo.schedules.cron",
    "nats-scheduler apply demo.yaml --yes",
)
"""Commands about the demo, in this order; the last one adds again what the one before removes."""


@dataclass(frozen=True, slots=True)
class DemoSchedule:
    """One schedule of the demo."""

    kind: ScheduleKind
    pattern: str
    target: str
    body: str
    source: str = ""

    @property
    def subject(self) -> str:
        """Return the subject that the schedule is published to."""
        return f"demo.schedules.{self.kind}"

    def block(self, dialect: Dialect) -> bytes:
        """Return its headers."""
        terms = Terms(dialect, self.target, self.source or None, ttl="", rollup=False)
        return definition_block(defined(self.pattern, terms))


def demo_schedules(now: int) -> list[DemoSchedule]:
    """Return the four schedules; the delayed one is due some seconds after `now` (ns)."""
    at = format_rfc3339(floor_to_second(now) + DELAYED_FIRE_AFTER_NS)
    return [
        DemoSchedule(ScheduleKind.DELAYED, f"@at {at}", "demo.reminders", "Call back"),
        DemoSchedule(ScheduleKind.INTERVAL, "@every 2s", "demo.heartbeats", "Still here"),
        DemoSchedule(ScheduleKind.CRON, "*/3 * * * * *", "demo.reports", "Report, please"),
        DemoSchedule(ScheduleKind.SAMPLING, "@every 4s", "demo.samples", "No value yet", source=SENSOR_SUBJECT),
    ]


async def publish_demo(wire: ScheduleWire, streams: FlaggedStreams, now: int) -> list[tuple[DemoSchedule, Dialect]]:
    """Add the stream, publish the schedules, and return each with the dialect that the server accepted.

    Raises `SchedulerError` if the server refuses anything but a pattern that it does not support.
    """
    await streams.add(DEMO_STREAM)
    return [(schedule, await _publish(wire, schedule)) for schedule in demo_schedules(now)]


async def write_sensor(connection: Connection) -> None:
    """Publish a temperature every second, until cancelled; raises `SchedulerError` when the connection is lost."""
    for count in itertools.count():
        await connection.request(SENSOR_SUBJECT, f"{20 + count % 30 / 10:.1f} degrees".encode())
        await asyncio.sleep(SENSOR_INTERVAL_SECONDS)


async def _publish(wire: ScheduleWire, schedule: DemoSchedule) -> Dialect:
    for dialect in DIALECTS:
        try:
            block, body = schedule.block(dialect), schedule.body.encode()
            await publish_message(wire, DEMO_STREAM["name"], schedule.subject, block, body)
        except SchedulerError as error:
            if error.code != PATTERN_INVALID.code or dialect is DIALECTS[-1]:
                raise
        else:
            break
    return dialect


# -- what is printed -------------------------------------------------------------------------------------------


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


class Screen(Printer):
    """Prints lines for people."""

    def __init__(self, gone: Callable[[], None]) -> None:
        super().__init__(gone)
        self._heading_printed = False

    def heading(self, text: str) -> None:
        """Print an empty line and a heading."""
        self.lines("", click.style(text, bold=True))

    def demo(self, published: Sequence[tuple[DemoSchedule, Dialect]], version: str, url: str) -> None:
        """Print what the demo published, and what to try on the server at `url`."""
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
        self.heading("To look at them and change them, in another terminal")
        self.lines(f"export NATS_URL={url}", *to_try())

    def fires(self, fires: Sequence[StoredFire], is_overdue: Callable[[StoredFire], bool]) -> None:
        """Print one line per fire."""
        if not self._heading_printed:
            self._heading_printed = True
            self.heading("due                   late      kind      schedule -> target")
        self.lines(*(fire_line(fire, overdue=is_overdue(fire)) for fire in fires))


def to_try() -> list[str]:
    """Return the commands about the demo, with what to install first where an extra is missing."""
    return [f"{one}  # first: {installation('web')}" if one == PAGE and missing("web") else one for one in TO_TRY]


def who_fires(server: Capabilities) -> list[str]:
    """Return lines that say which schedules the server fires and which the sidecar."""
    if not server.schedules_natively:
        return [
            "It has no message schedules: the sidecar fires them (emulated), for Nats-Schedule and X-Nats-Schedule."
        ]
    lines = ["It has message schedules: it fires for Nats-Schedule itself (native), the sidecar for X-Nats-Schedule."]
    if server.schedules_at_only:
        lines.append("This version supports @at only; for intervals and cron use X-Nats-Schedule.")
    return lines


def paste_lines(url: str, stream_file: Path, server: Capabilities, now: int) -> list[str]:
    """Return `nats` commands that add the stream of `stream_file`, subscribe to it, and publish three schedules.

    The subscriber reads the stream: a native server stores its fires without publishing them.
    """
    nats = f"nats -s {url}"
    at = format_rfc3339(floor_to_second(now) + MINUTE)
    is_portable = server.schedules_at_only
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
    headers = header_items(definition_block(defined(pattern, terms)))
    return " ".join(f"-H '{name.decode()}: {value.decode()}'" for name, value in headers)
