"""Find the fires among a stream's messages, in their order, and how late each was.

The rules:

- What is shown is what is stored in the stream. A native server sends no events about its fires, and the kind of a
  schedule follows from its message, which is always read before its fires.
- A fire of the sidecar has its fire time in its identity. One of the server's own scheduler has not; its fire time is
  the one that its schedule, or the fire before it, named as the next.

Limit: if earlier fires of a native schedule were removed from the stream, the lateness of the next one counts from an
older time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.headers import decoded, header_value
from nats_scheduler.message.jitter import stored_timetable
from nats_scheduler.message.reading import Generated, read_message
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import FLAG, StreamRules
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.patterns import At, Every
from nats_scheduler.schedule.rfc3339 import offset_in, parse_rfc3339


class ScheduleKind(StrEnum):
    """The kind of schedule that a fire came from."""

    DELAYED = "delayed"
    INTERVAL = "interval"
    CRON = "cron"
    SAMPLING = "sampling"
    UNKNOWN = "unknown"
    """The schedule was gone before it could be read."""


@dataclass(frozen=True, slots=True)
class StoredFire:
    """A generated message; all times are nanoseconds since the Unix epoch."""

    stream: str
    schedule: str
    target: str
    kind: ScheduleKind
    due: int
    stored_at: int
    since: int
    """The instant at which the schedule itself was stored."""
    delay: int = 0
    """The delay after its due time with which it was to be sent."""

    @property
    def send_time(self) -> int:
        """Return when it was to be sent."""
        return self.due + self.delay

    @property
    def lateness(self) -> int:
        """Return how long after its send time it was stored, by the server's clock, in nanoseconds."""
        return self.stored_at - self.send_time


class StoredSchedule(NamedTuple):
    """A schedule as it is stored now."""

    sequence: int
    timetable: Timetable
    terms: Terms


class FireReader:
    """Reads the messages of one stream, in their order."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        self.stream = str(config["name"])
        self.last_read = 0
        """The highest stream sequence read so far."""
        self._rules = StreamRules.from_config(config)
        self._is_native = config.get(FLAG) is True
        self._known: dict[str, StoredSchedule] = {}
        self._due: dict[str, int | None] = {}
        """Their next fire times (ns), for fires without one in their identity."""

    def holds(self, subject: str) -> bool:
        """Return whether a schedule was read on this subject."""
        return subject in self._known

    def read(self, message: StoredMessage) -> StoredFire | None:
        """Read the next message; return its fire if it is one, else None."""
        self.last_read = max(self.last_read, message.sequence)
        fire = self._native_fire(message) if self._is_native else None
        if fire is not None:
            return fire
        reading = read_message(message.block, message.subject, message.stored_at, self._rules, DIALECTS)
        if reading is not None and reading.definition is not None:
            pattern, terms = reading.definition
            at, subject, sequence = message.stored_at, message.subject, message.sequence
            timetable = stored_timetable(pattern, terms.policies, at, subject, sequence)
            self._known[subject] = StoredSchedule(sequence, timetable, terms)
            self._due[subject] = timetable.first_fire()
            return None
        self._known.pop(message.subject, None)
        return self._our_fire(reading.generated, message) if reading is not None and reading.generated else None

    def _our_fire(self, generated: Generated, message: StoredMessage) -> StoredFire:
        known = self._known.get(generated.schedule)
        if known is not None and not known.timetable.repeats:
            del self._known[generated.schedule]
        delay = 0 if known is None else known.timetable.send_time_of(generated.fire_time) - generated.fire_time
        return self._stored_fire(generated.schedule, message, known, generated.fire_time, delay)

    def _native_fire(self, message: StoredMessage) -> StoredFire | None:
        """Recognise a fire of the server's own scheduler: it names a schedule that was due, and is on its target."""
        schedule = scheduler_of(message.block)
        known, due = self._known.get(schedule), self._due.get(schedule)
        if known is None or due is None or known.terms.target != message.subject or message.stored_at < due:
            return None
        fire = self._stored_fire(schedule, message, known, due)
        self._due[schedule] = following_fire(message.block, ADR51)
        if self._due[schedule] is None:
            del self._known[schedule]
        return fire

    def _stored_fire(
        self, schedule: str, message: StoredMessage, known: StoredSchedule | None, due: int, delay: int = 0
    ) -> StoredFire:
        kind = ScheduleKind.UNKNOWN if known is None else kind_of(known)
        since = due if known is None else known.timetable.stored_at
        return StoredFire(self.stream, schedule, message.subject, kind, due, message.stored_at, since, delay)


def scheduler_of(block: bytes) -> str:
    """Return the schedule that a message names in `Nats-Scheduler`; "" if it names none."""
    return decoded(header_value(block, ADR51.scheduler) or b"")


def fired_schedule_of(block: bytes) -> str:
    """Return the schedule of which a message may be a fire, in either dialect; "" if it is none."""
    return scheduler_of(block) or decoded(header_value(block, PORTABLE.scheduler) or b"")


def following_fire(block: bytes, dialect: Dialect) -> int | None:
    """Return the time (ns) that a fire names in `Nats-Schedule-Next`; None if it names none, such as `purge`."""
    following = parse_rfc3339(decoded(header_value(block, dialect.next) or b""))
    return following if isinstance(following, int) else None


def following_offset(block: bytes, dialect: Dialect) -> int | None:
    """Return the offset from UTC (s) of the time that a fire names as the next one; None if it names none.

    The server writes it as it is in the time zone of the schedule, by its own zone data.
    """
    return offset_in(decoded(header_value(block, dialect.next) or b""))


def kind_of(schedule: StoredSchedule) -> ScheduleKind:
    """Return the kind of a schedule; one with a source is sampling, whatever its pattern."""
    if schedule.terms.source is not None:
        return ScheduleKind.SAMPLING
    base = schedule.timetable.pattern.base
    if isinstance(base, At):
        return ScheduleKind.DELAYED
    return ScheduleKind.INTERVAL if isinstance(base, Every) else ScheduleKind.CRON
