"""Find the fires among a stream's messages, whether each can be one, and how late it was.

Rule: what is shown is what is stored in the stream. A fire of the sidecar has its fire time in its identity. One of the
server's own scheduler has not; its fire time is the one that its schedule, or the fire before it, named as the next.
Why from the stream and not from the engine's events: a native server sends no events about its fires, and the kind of
a schedule follows from its message, which is always read before its fires.
Cost: each message is parsed once more. Limit: if earlier fires of a native schedule were removed from the stream, the
lateness of the next one counts from an older time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypeAlias

from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.generated import PURGE, is_requested
from nats_scheduler.message.headers import CRLF, decoded, header_value
from nats_scheduler.message.identity import IDENTITY_PREFIX
from nats_scheduler.message.reading import Generated, read_beside, read_generated, read_message
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import FLAG, StreamRules
from nats_scheduler.message.timetable import Timetable, stored_timetable
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import At, Every
from nats_scheduler.schedule.rfc3339 import offset_in, parse_rfc3339

# The check that a stored message can be a fire of a sidecar: any client that may publish there can imitate one.
#
# The rule: a message counts as a fire only if a sidecar could have stored it. A fire is stored on its schedule's own
# target, for one of its fire times, never before that time, and its `Nats-Schedule-Next` is `purge` or a later fire
# time. Any other message is an ordinary one, whatever its `Nats-Msg-Id` is.
#
# Cost: one comparison if it is the fire that is due, which is nearly always so; otherwise a search for the fire time.
# Limit: a client that may publish to the target itself can imitate a fire, from its fire time on, without any
# difference.

MAX_CLOCK_DIFFERENCE_NS = 5 * SECOND
"""The largest time by which a fire may seem to be stored before its fire time.

The clock of the node that stores it may differ from the clock that a sidecar uses, and either may be stepped.
A genuine fire that is not accepted is stored twice, so this is more than any clock should be wrong.
"""

WRONG_TARGET = "it is not on the schedule's target"
TOO_EARLY = "it was stored before its fire time"


def is_too_early(stored_at: int, fire_time: int) -> bool:
    """Return whether a message that was stored at `stored_at` (ns) is too early for the fire of `fire_time` (ns)."""
    return stored_at < fire_time - MAX_CLOCK_DIFFERENCE_NS


def fault_of(generated: Generated, message: StoredMessage, timetable: Timetable, terms: Terms, expected: int) -> str:
    """Return the reason why a message cannot be the fire of a schedule that it claims to be; "" if it can.

    The caller checks that it is on the schedule's target.
    `timetable` and `terms` are those of the schedule; `expected` is the fire time (ns) that is most likely.
    """
    fire_time = generated.fire_time
    if is_too_early(message.stored_at, fire_time):
        return TOO_EARLY
    if fire_time != expected and not timetable.is_fire(fire_time):
        return "its time is no fire time of the schedule"
    # A make-up fire beside a server that fires has the portable names, whatever those of its schedule are.
    following = _line(message.block, terms.dialect.next) or _line(message.block, PORTABLE.next)
    if not _fits(following, fire_time, repeats=timetable.repeats):
        return f"its {terms.dialect.next.decode()} is neither 'purge' nor a later fire time"
    return ""


def names_end(block: bytes, terms: Terms) -> bool:
    """Return whether a fire of a schedule says that it is the last one."""
    return _line(block, terms.dialect.next) == PURGE


def fault_of_following(generated: Generated, message: StoredMessage) -> str:
    """Return why the next fire that a fire names is impossible for any schedule; "" if it is possible."""
    for dialect in DIALECTS:
        following = _line(message.block, dialect.next)
        if following:
            fits = _fits(following, generated.fire_time, repeats=True)
            return "" if fits else f"its {dialect.next.decode()} is none that follows"
    return "it does not say what follows"


def _line(block: bytes, name: bytes) -> bytes:
    """Return the value of a header that the sidecar writes, even if a publisher's header hides it from the server."""
    start = block.find(b"\n" + name + b": ")
    if start < 0:
        return b""
    start += len(name) + 3
    return block[start : block.find(CRLF, start)]


def _fits(following: bytes, fire_time: int, *, repeats: bool) -> bool:
    """Return whether `following` can be the `Nats-Schedule-Next` of a fire.

    Any later time is accepted: the exact one depends on the zone files, which may have changed since.
    """
    if following == PURGE:
        return True
    next_fire = parse_rfc3339(decoded(following))
    return repeats and isinstance(next_fire, int) and next_fire > fire_time


# All fires among the messages of a stream, in their order.


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


# Find the fires of one schedule among stored messages that are read from the newest to the oldest.
#
# The rule: one fire is one message. A fire of a sidecar has its fire time in its identity. A fire of the server's own
# scheduler has not; its fire time is the one that the fire before it named as the next, or the first fire time of the
# schedule that is stored now. So such a fire is known only when an older one has been read.
#
# Why backwards, and not with `message.fires`: the newest fires are asked for, and a stream may hold a million
# messages. Cost: a search for two short texts in each message that is not a fire. A fire that was requested says
# nothing of the fires before and after it. Limits: if the schedule was replaced between two fires of the server's, or
# the fire before was removed, the fire time of the later one is unknown. A client that may publish to the target can
# imitate a fire, and on a native stream a cancel that was published to the target looks like a
# last fire; it counts as one if it was not stored before the fire time.

FiredBy: TypeAlias = Literal["sidecar", "server", "request"]

_IDENTITY_PREFIX = IDENTITY_PREFIX.encode()


@dataclass(frozen=True, slots=True)
class PastFire:
    """A generated message; all times are nanoseconds since the Unix epoch."""

    schedule: str
    schedule_sequence: int | None
    """The sequence of the schedule message that it came from; None if the server fired it."""
    target: str
    sequence: int
    fire_time: int | None
    """None if it is unknown, which only happens if the server fired it."""
    stored_at: int
    next_fire: int | None
    """The fire time that it named as the next one, None if it was the last one."""
    by_server: bool
    """True if the scheduler inside the server fired it."""
    delay: int = 0
    """The delay after its fire time with which it was to be sent; 0 also if its schedule is not stored any more."""
    was_requested: bool = False
    """True if it was stored because it was requested, and not because its time had come."""

    @property
    def lateness(self) -> int | None:
        """Return how long after its send time it was stored, by the server's clock (ns); None if that says nothing."""
        if self.fire_time is None or self.was_requested:
            return None
        return self.stored_at - self.fire_time - self.delay

    @property
    def fired_by(self) -> FiredBy:
        """Return why it was stored."""
        if self.was_requested:
            return "request"
        return "server" if self.by_server else "sidecar"


class PastFires:
    """Reads messages in the reverse order of their stream, and returns the fires of one schedule among them."""

    def __init__(
        self,
        schedule: str,
        *,
        is_native: bool,
        stored: StoredSchedule | None,
        is_moved: bool = False,
        is_to_other_stream: bool = False,
    ) -> None:
        """Look for the fires of the schedule on this subject; `stored` is None if it is not stored any more.

        If fires are moved (`is_moved`), the stream stores them on another subject than their target. If the messages
        are those of another stream than the schedule's (`is_to_other_stream`), their sequences say nothing about its
        own.
        """
        self._schedule = schedule
        self._name = schedule.encode("utf-8", "surrogateescape")
        self._is_native = is_native
        self._stored = stored
        self._is_moved = is_moved
        self._is_elsewhere = is_to_other_stream
        self._open: PastFire | None = None
        """A fire of the server's whose fire time is not known yet."""

    @property
    def awaits_older(self) -> bool:
        """True if a fire was read whose fire time an older message may show."""
        return self._open is not None

    def read(self, message: StoredMessage) -> list[PastFire]:
        """Read the next older message; return the fires that are complete now, the newer one first."""
        block = message.block
        if self._name not in block:
            return []
        fire = self._of_sidecar(message)
        if fire is None:
            fire = self._of_server(message) if self._is_native and _IDENTITY_PREFIX not in block else None
        if fire is None:
            return []
        if fire.was_requested:  # it is between the others, and says nothing of them
            return [fire]
        before = self._closed(fire)
        if not fire.by_server:
            return [*before, fire]
        self._open = fire
        return before

    def rest(self, *, is_all: bool) -> list[PastFire]:
        """Return the fire that waits for an older one; `is_all` if there is no older message."""
        fire, self._open = self._open, None
        if fire is None:
            return []
        first = self._first_fire_before(fire, 0) if is_all else None
        return [replace(fire, fire_time=first)] if first is None or first <= fire.stored_at else []

    def _closed(self, older: PastFire) -> list[PastFire]:
        """Return the open fire with the fire time that follows from the fire before it; nothing if it is no fire."""
        fire, self._open = self._open, None
        if fire is None:
            return []
        due = self._first_fire_before(fire, older.sequence)
        if due is None:
            due = older.next_fire
        if due is not None and due <= fire.stored_at:
            return [replace(fire, fire_time=due)]
        # Before that time a schedule that replaced the earlier one may have fired. A last fire that early is a cancel.
        return [fire] if fire.next_fire is not None or older.next_fire is None else []

    def _first_fire_before(self, fire: PastFire, after: int) -> int | None:
        """Return the first fire time of the stored schedule, if it was stored between two sequences."""
        if self._stored is None or not after < self._stored.sequence < fire.sequence:
            return None
        return self._stored.timetable.first_fire()

    def _of_sidecar(self, message: StoredMessage) -> PastFire | None:
        block = message.block
        generated, beside = read_generated(block), None
        if generated is None:
            generated = beside = read_beside(block)
        if generated is None or generated.schedule != self._schedule:
            return None
        if self._fault(generated, message) if beside is None else self._fault_of_any(generated, message):
            return None
        following = next((found for one in DIALECTS if (found := following_fire(message.block, one)) is not None), None)
        return PastFire(
            schedule=self._schedule,
            schedule_sequence=generated.sequence,
            target=message.subject,
            sequence=message.sequence,
            fire_time=generated.fire_time,
            stored_at=message.stored_at,
            next_fire=following,
            by_server=False,
            delay=self._delay_of(generated),
            was_requested=beside is not None or is_requested(block),
        )

    def _delay_of(self, generated: Generated) -> int:
        """Return how long after its fire time the fire of a sidecar was to be sent."""
        stored = self._stored
        if stored is None or stored.sequence != generated.sequence:
            return 0
        return stored.timetable.send_time_of(generated.fire_time) - generated.fire_time

    def _fault(self, generated: Generated, message: StoredMessage) -> bool:
        """Return whether a message cannot be the fire that it claims to be."""
        stored = self._stored
        if self._fault_of_any(generated, message):
            return True
        if stored is not None and stored.sequence == generated.sequence:
            is_misplaced = not self._is_moved and message.subject != stored.terms.target
            likely = stored.timetable.first_fire() or 0
            return is_misplaced or bool(fault_of(generated, message, stored.timetable, stored.terms, likely))
        return bool(fault_of_following(generated, message))

    def _fault_of_any(self, generated: Generated, message: StoredMessage) -> bool:
        """Return whether a message cannot be a fire, requested or not: it is older than its schedule, or too early."""
        is_older = not self._is_elsewhere and generated.sequence >= message.sequence
        return is_older or is_too_early(message.stored_at, generated.fire_time)

    def _of_server(self, message: StoredMessage) -> PastFire | None:
        if scheduler_of(message.block) != self._schedule:
            return None
        following = following_fire(message.block, ADR51)
        if following is None and header_value(message.block, ADR51.next) != PURGE:
            return None
        return PastFire(
            schedule=self._schedule,
            schedule_sequence=None,
            target=message.subject,
            sequence=message.sequence,
            fire_time=None,
            stored_at=message.stored_at,
            next_fire=following,
            by_server=True,
        )
