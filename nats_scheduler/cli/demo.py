"""The demo of `nats-scheduler dev`: a stream, and one schedule of each kind.

Rule: it does only what a user can do: the stream is added as `nats-scheduler stream add` does it, and the schedules are
plain messages with headers.
A native server of 2.12 supports `@at` only. A schedule that it refuses is published again with the portable headers,
which the sidecar fires on every server.
Cost: one message a second, the sensor's. Limit: the first fires come within five seconds; sooner would be hard to read.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass
from typing import Any

from nats_scheduler.engine.inputs import Refused, Stored
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.errors import ApiError, ConnectionLostError
from nats_scheduler.jetstream.schedule_messages import ScheduleMessages
from nats_scheduler.jetstream.streams import FlaggedStreams
from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.fires import ScheduleKind
from nats_scheduler.message.rejection import PATTERN_INVALID
from nats_scheduler.message.writing import defined, definition_block
from nats_scheduler.schedule.instants import SECOND, floor_to_second
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
"""How often the demo writes a value to the subject that is sampled."""
DELAYED_FIRE_AFTER_NS = 5 * SECOND
"""How long from now the delayed message is due, in ns, before rounding down to a second: at least 4 s."""


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


async def publish_demo(
    messages: ScheduleMessages, streams: FlaggedStreams, now: int
) -> list[tuple[DemoSchedule, Dialect]]:
    """Add the stream, publish the schedules, and return each with the dialect that the server accepted.

    Raises `JetStreamError` if the server refuses anything but a pattern that it does not support.
    """
    await streams.add(DEMO_STREAM)
    return [(schedule, await _publish(messages, schedule)) for schedule in demo_schedules(now)]


async def write_sensor(connection: Connection) -> None:
    """Publish a temperature every second, until cancelled; raises `JetStreamError` when the connection is lost."""
    for count in itertools.count():
        await connection.request(SENSOR_SUBJECT, f"{20 + count % 30 / 10:.1f} degrees".encode())
        await asyncio.sleep(SENSOR_INTERVAL_SECONDS)


async def _publish(messages: ScheduleMessages, schedule: DemoSchedule) -> Dialect:
    for dialect in DIALECTS:
        block = schedule.block(dialect)
        outcome = await messages.publish(schedule.subject, block, schedule.body.encode(), expected=None)
        if isinstance(outcome, Stored):
            return dialect
        if not isinstance(outcome, Refused) or outcome.code != PATTERN_INVALID.code:
            break
    if isinstance(outcome, Refused):
        raise ApiError(outcome.status, outcome.code, outcome.description, f"publish to {schedule.subject}")
    raise ConnectionLostError(f"publish to {schedule.subject}: {outcome}")
