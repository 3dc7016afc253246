"""The values that the client returns: schedules, fires and changes, all immutable.

The rule: a time is there twice, as a `datetime` in UTC, which has microseconds, and as integer nanoseconds since the
Unix epoch, as it is stored (`…_ns`).
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Literal

from nats_scheduler.client.times import datetime_of, instant_of
from nats_scheduler.client.when import When
from nats_scheduler.control.changes import Author, Kind
from nats_scheduler.control.changes import Change as ControlChange
from nats_scheduler.control.current import Current
from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.findings import Finding
from nats_scheduler.message.past_fires import FiredBy, PastFire
from nats_scheduler.message.schedule_form import ScheduleForm

Spelling = Literal["adr51", "portable"]


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """A target in another stream, which the operator has to allow (`X-Target`)."""

    subject: str


def elsewhere(subject: str) -> Elsewhere:
    """Name a subject of another stream as the target of a schedule; a sidecar has to fire it."""
    return Elsewhere(subject)


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as it is stored."""

    stream: str
    subject: str
    sequence: int
    """Stream sequence of its message: a version of the schedule. Operations take it as `expected`."""
    stored_at_ns: int
    form: ScheduleForm
    """Its headers as they are written, a field for each: `form.ttl`, `form.policies`, `form.headers`."""
    body: bytes
    is_paused: bool
    rejection: str | None
    """Why it never fires, in a sentence; None if it is valid."""
    spelling: Spelling
    """The spelling of its headers: that of ADR-51, or the portable one."""
    is_fired_by_server: bool
    """True if the server fires it, and not a sidecar."""
    current: Current
    """The message, and what was read in it."""

    @property
    def stored_at(self) -> datetime:
        """The time at which it was stored, by the server's clock, in UTC."""
        return datetime_of(self.stored_at_ns)

    @property
    def pattern(self) -> str:
        """As it is written, such as `@every 1h0m0s`."""
        return self.current.pattern

    @property
    def target(self) -> str:
        """The subject of its fires, in its stream or in another one; "" if a schedule that is rejected has none."""
        elsewhere = dict(self.form.policies).get("X-Target") if self.current.dialect is PORTABLE else None
        return self.form.target or elsewhere or ""

    @property
    def when(self) -> When:
        """Its timing, for storing another schedule with the same words.

        Raises `InvalidScheduleError` if it is rejected.
        """
        named = dict(self.form.policies)
        named.pop("X-Target", None)
        syntax: Literal["crontab", "quartz"] | None = named.pop("X-Syntax", None)  # type: ignore[assignment]
        when = When(self.pattern, self.form.time_zone, syntax, written_policies=tuple(sorted(named.items())))
        when.read(self.stored_at_ns)
        return when

    def next(self, n: int = 1, *, after: datetime) -> list[datetime]:
        """Return the next `n` fire times after a time, in UTC; fewer if it ends before, none if it never fires.

        Those of a paused schedule are what they would be if it was not. Calendars are not known here.
        """
        return [datetime_of(instant) for instant in self.next_ns(n, after=instant_of(after, "after"))]

    def next_ns(self, n: int = 1, *, after: int) -> list[int]:
        """Do what `next` does, in nanoseconds since the Unix epoch."""
        return [] if self.current.definition is None else list(islice(self.current.timetable().each(after), n))


@dataclass(frozen=True, slots=True)
class Fire:
    """A fire that is stored."""

    schedule: str
    """Subject of its schedule."""
    target: str
    sequence: int
    """Stream sequence of the fire."""
    fire_time_ns: int | None
    """The time for which it is; None if that is unknown, which only happens if the server fired it."""
    stored_at_ns: int
    next_fire_ns: int | None
    """The fire time that it names as the next one; None if it is the last."""
    fired_by: FiredBy
    """`sidecar`, `server`, or `request` if a person or a program asked for it (`fire`, `backfill`)."""
    lateness_ns: int | None
    """The time (ns) from its send time to its storage, by the server's clock; None if that says nothing."""

    @property
    def fire_time(self) -> datetime | None:
        """The time for which it is, in UTC."""
        return None if self.fire_time_ns is None else datetime_of(self.fire_time_ns)

    @property
    def stored_at(self) -> datetime:
        """The time at which it was stored, in UTC."""
        return datetime_of(self.stored_at_ns)

    @property
    def next_fire(self) -> datetime | None:
        """The fire time that it names as the next one, in UTC."""
        return None if self.next_fire_ns is None else datetime_of(self.next_fire_ns)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a schedule."""

    kind: Kind
    stream: str
    subject: str
    before: int | None
    """Sequence of the schedule before; None if there was none."""
    sequence: int | None
    """Sequence of the schedule now; None if there is none."""
    at_ns: int
    fire_times_ns: tuple[int, ...]
    """For which times fires were stored."""
    notes: tuple[str, ...]
    """Its consequences, in a sentence each."""
    findings: tuple[Finding, ...]
    """What is wrong with the schedule that was stored, or may be meant otherwise."""
    author: Author

    @property
    def at(self) -> datetime:
        """The time at which it was made, by the server's clock, in UTC."""
        return datetime_of(self.at_ns)

    @property
    def fire_times(self) -> tuple[datetime, ...]:
        """For which times fires were stored, in UTC."""
        return tuple(map(datetime_of, self.fire_times_ns))


def schedule_of(stream: str, current: Current) -> Schedule:
    """Return a schedule that was read."""
    message = current.message
    return Schedule(
        stream=stream,
        subject=message.subject,
        sequence=message.sequence,
        stored_at_ns=message.stored_at,
        form=ScheduleForm.from_block(current.active_block, current.dialect),
        body=message.body or b"",
        is_paused=current.is_paused,
        rejection=None if current.rejection is None else str(current.rejection),
        spelling=current.dialect.name,
        is_fired_by_server=current.is_fired_by_server,
        current=current,
    )


def fire_of(fire: PastFire) -> Fire:
    """Return a fire that was read."""
    return Fire(
        schedule=fire.schedule,
        target=fire.target,
        sequence=fire.sequence,
        fire_time_ns=fire.fire_time,
        stored_at_ns=fire.stored_at,
        next_fire_ns=fire.next_fire,
        fired_by=fire.fired_by,
        lateness_ns=fire.lateness,
    )


def change_of(change: ControlChange) -> Change:
    """Return a change that was made."""
    return Change(
        kind=change.kind,
        stream=change.stream,
        subject=change.subject,
        before=change.before,
        sequence=change.after,
        at_ns=change.at,
        fire_times_ns=change.fires,
        notes=change.notes,
        findings=change.findings,
        author=change.author,
    )
