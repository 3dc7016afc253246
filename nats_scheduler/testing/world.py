"""A test world for schedules: a stream, a sidecar's engine, and a clock, all in this process and without waiting.

Publish a schedule as an application would, let time pass, and check what was stored:

    world = ScheduleWorld(subjects=["orders.>"])
    world.publish("orders.remind", {"Nats-Schedule": "@every 1h", "Nats-Schedule-Target": "orders.reminder"}, b"hello")
    world.advance("24h")
    assert len(world.generated) == 24

The rule: the engine of the sidecar runs here. The world only executes its actions, and jumps from one instant at which
something is due to the next.
Plain calls, no event loop.

Cost: about 0.1 ms a fire. Limit: one sidecar, whose reading and storing takes no time unless a network says so.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nats_scheduler.control.errors import RefusedError, UnknownOutcomeError
from nats_scheduler.engine.actions import Action, PublishFires, PurgeSchedule, RemoveExpired, Report, WakeAt
from nats_scheduler.engine.events import Event, ScheduleRejected
from nats_scheduler.engine.inputs import (
    NOTHING_SETTLED,
    CalendarsRead,
    ContactLost,
    DrainRequested,
    Input,
    OwnershipChanged,
    Refused,
    RemovalRequested,
    ServerLimits,
    Unknown,
)
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.headers import decoded, header_items, with_headers
from nats_scheduler.message.policies import DEFAULT_CATCH_UP_RATE
from nats_scheduler.message.reading import read_message
from nats_scheduler.message.rejection import FAILED, Rejection
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.calendars import KnownCalendars, read_calendar
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.testing.manual_clock import START, ManualClock
from nats_scheduler.testing.memory_contact import MemoryContact
from nats_scheduler.testing.memory_stream import MemoryStream
from nats_scheduler.testing.network import Perfect


@dataclass(frozen=True, slots=True)
class GeneratedMessage:
    """The message that a fire stored, in a form that tests can compare, and which fire of which schedule it is."""

    subject: str
    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch, by the stream's clock."""
    headers: tuple[tuple[str, str], ...]
    """In order, duplicates too."""
    body: bytes
    schedule: str
    """The subject of the schedule."""
    schedule_sequence: int
    """The stream sequence of the version of the schedule that fired."""
    fire_time: int
    """Its fire time (ns)."""

    def header(self, name: str) -> str | None:
        """Return the value of the first header with this name; None if there is none."""
        return next((value for known, value in self.headers if known == name), None)


CHECKPOINT_INTERVAL_NS = 1 * SECOND
"""The interval at which the sidecar writes a checkpoint, as the real one does."""

MAX_TURNS = 1_000_000
"""After this many steps without time passing, something is wrong."""

Instant = int | str
"""Nanoseconds since the Unix epoch, or RFC 3339 such as `2026-01-01T00:00:00Z`."""

Duration = int | str
"""Nanoseconds, or a duration such as `1h30m`."""

Headers = Mapping[str, str] | Sequence[tuple[str, str]] | bytes
"""Names and values in order, or the raw block."""


class ScheduleWorld:
    """One stream and the sidecar that serves it."""

    def __init__(
        self,
        subjects: Sequence[str] = (">",),
        *,
        start: Instant = START,
        config: Mapping[str, Any] | None = None,
        guard: bool = True,
        dialects: Sequence[Dialect] = DIALECTS,
        network: Perfect | None = None,
        calendars: Mapping[str, str] | None = None,
        catch_up_rate: int = DEFAULT_CATCH_UP_RATE,
    ) -> None:
        """Begin at `start`; `config` adds to the stream's JSON configuration, `guard=False` is a server 2.10.

        `calendars` are texts by name, as the command `nats-scheduler calendar` writes them; `catch_up_rate` is the
        setting, of this stream.
        """
        self.clock = ManualClock(_instant(start))
        basis = {"name": "WORLD", "subjects": list(subjects), "allow_msg_ttl": True, "allow_rollup_hdrs": True}
        self.stream = MemoryStream({**basis, **(config or {})}, self.clock.now, guard=guard)
        self.others: list[MemoryStream] = []
        """The other streams of the account, for targets there (`X-Target`): see `add_stream`."""
        self.generated: list[GeneratedMessage] = []
        """Every message that a fire stored, in the order of storage, including those that were removed since."""
        self.events: list[Event] = []
        """The events that the sidecar reported, in order."""
        self.network = network
        """Decides about the requests of contacts that begin from now on."""
        self.checkpoint = NOTHING_SETTLED
        """The last checkpoint that the sidecar has written."""
        self._calendars = dict(calendars or {})
        self._catch_up_rate = catch_up_rate
        self._dialects = tuple(dialects)
        self._contacts: list[MemoryContact] = []
        self._checkpoint_at = 0
        self.stream.listen(self._stored)
        self._inbox: list[Input] = []
        self._wake: int | None = None
        self.engine: StreamEngine
        self._boot()

    # -- what an application does --------------------------------------------------------------------------------

    def publish(self, subject: str, headers: Headers = b"", body: bytes = b"", *, at: Instant | None = None) -> int:
        """Store a message, now or at `at`, and return its sequence; raises `RefusedError`, or `UnknownOutcomeError`."""
        if at is not None:
            self.advance_to(at)
        outcome = self.stream.publish(subject, _block(headers), body)
        if isinstance(outcome, Refused):
            raise RefusedError(outcome.status, outcome.code, outcome.description, subject)
        if isinstance(outcome, Unknown):
            raise UnknownOutcomeError(f"{subject}: {outcome.reason}")
        self.settle()
        return outcome.sequence

    def add_stream(self, name: str, subjects: Sequence[str], config: Mapping[str, Any] | None = None) -> MemoryStream:
        """Create another stream in the account, which the sidecar does not serve; `config` as for the world."""
        basis = {"name": name, "subjects": list(subjects), "allow_msg_ttl": True, "allow_rollup_hdrs": True}
        stream = MemoryStream({**basis, **(config or {})}, self.clock.now, guard=self.stream.guard)
        stream.listen(self._stored)
        self.others.append(stream)
        return stream

    def delete(self, sequence: int) -> None:
        """Delete one message, as `nats stream rmm` does."""
        self.stream.delete(sequence)
        self._pass_on(RemovalRequested(sequence=sequence))

    def purge(self, matching: str = ">") -> None:
        """Remove every message whose subject matches, as `nats stream purge --subject` does."""
        self.stream.purge(matching)
        self._pass_on(RemovalRequested(filter=matching))

    def set_calendar(self, name: str, text: str) -> None:
        """Give a calendar other days, or make it."""
        self._calendars[name] = text
        self._pass_on(CalendarsRead(self._known_calendars()))

    def delete_calendar(self, name: str) -> None:
        """Delete a calendar."""
        del self._calendars[name]
        self._pass_on(CalendarsRead(self._known_calendars()))

    # -- time ----------------------------------------------------------------------------------------------------

    @property
    def now(self) -> int:
        """The time in this world (ns since the Unix epoch)."""
        return self.clock.now()

    def advance(self, duration: Duration) -> None:
        """Let time pass, and do everything that is due meanwhile."""
        self._pass(_duration(duration), self.settle)

    def advance_to(self, instant: Instant) -> None:
        """Let time pass until an instant, which is not in the past."""
        self.advance(_instant(instant) - self.now)

    def step_clock(self, duration: int) -> None:
        """Step the wall clock by `duration` ns, forwards or backwards, without time passing."""
        self.clock.set(self.now + duration)
        self._step()
        self.settle()

    def settle(self) -> None:
        """Do everything that is due by now."""
        for _ in range(MAX_TURNS):
            self._deliver()
            if not self._inbox and not self._is_due():
                return
            self._step()
        raise AssertionError(f"there is still something to do after {MAX_TURNS} turns without time passing")

    def _is_due(self) -> bool:
        return self._wake is not None and self._wake <= self.now

    # -- what happens to the sidecar -----------------------------------------------------------------------------

    def restart(
        self, after: Duration = 0, *, with_checkpoint: bool = True, calendars: Mapping[str, str] | None = None
    ) -> None:
        """Kill the sidecar, let time pass without it, and start another one; `calendars` are edited meanwhile."""
        self._contacts[-1].end("the sidecar was killed")
        self._wake = None
        self._pass(_duration(after), self._deliver)
        self._calendars.update(calendars or {})
        if not with_checkpoint:
            self.checkpoint = NOTHING_SETTLED
        self._boot()

    def lose_contact(self) -> None:
        """Cut the connection; the sidecar continues, and the outcome of every fire in flight is unknown."""
        self._contacts[-1].end("the connection was cut")
        self._pass_on(ContactLost("the connection was cut"))

    def regain_contact(self) -> None:
        """Connect again."""
        self._connect()
        self.settle()

    def drain(self) -> None:
        """Ask the sidecar to end, as SIGTERM does: it starts no more fires."""
        self._pass_on(DrainRequested())

    # -- what the sidecar holds ----------------------------------------------------------------------------------

    def next_fire(self, schedule: str) -> int | None:
        """Return when the schedule on a subject fires next (ns); None if none is held, or if a calendar holds it."""
        held = self.engine.held.on(schedule)
        return None if held is None or not held.may_fire else held.fire_time

    def rejection(self, schedule: str) -> Rejection | None:
        """Return why the last message on a subject is rejected as a schedule; None if it is not."""
        rejected = self.engine.inactive.rejected.get(schedule)
        return None if rejected is None else rejected.rejection

    # -- machinery -----------------------------------------------------------------------------------------------

    def _boot(self) -> None:
        self._wake = None
        # A new list: inputs for the sidecar before it are lost.
        self._inbox = [CalendarsRead(self._known_calendars()), OwnershipChanged(True, self.checkpoint)]
        rules, guard = self.stream.rules, self.stream.guard
        limits = ServerLimits(guard=guard)
        removes_expired = rules.allow_msg_ttl and not guard
        self.engine = StreamEngine(
            rules, self._dialects, limits, removes_expired=removes_expired, catch_up_rate=self._catch_up_rate
        )
        self._connect()
        self.settle()

    def _known_calendars(self) -> KnownCalendars:
        return KnownCalendars({name: read_calendar(name, text.encode()) for name, text in self._calendars.items()})

    def _connect(self) -> None:
        self._contacts = [contact for contact in self._contacts if contact.next_delivery() is not None]
        contact = MemoryContact(self.stream, self._inbox.append, self.clock, self.network, others=self.others)
        contact.begin_following(self.engine.last_read)
        self._contacts.append(contact)

    def _pass(self, duration: int, turn: Callable[[], None]) -> None:
        """Let time pass (ns), with a turn now and at each instant at which something is due."""
        end = self.clock.monotonic() + duration
        while True:
            turn()
            left, wait = end - self.clock.monotonic(), self._until_next()
            if wait is None or wait > left:
                self.clock.advance(left)
                return
            self.clock.advance(wait)

    def _deliver(self) -> None:
        for contact in self._contacts:
            contact.deliver()

    def _pass_on(self, received: Input) -> None:
        self._inbox.append(received)
        self.settle()

    def _until_next(self) -> int | None:
        waits = [contact.next_delivery() for contact in self._contacts]
        if self._wake is not None:
            waits.append(max(self._wake - self.now, 0))
        return min((wait for wait in waits if wait is not None), default=None)

    def _step(self) -> None:
        inputs = self._inbox[:]
        self._inbox.clear()
        self._wake = None
        self._carry_out(self.engine.step(self.now, inputs))
        if self.engine.is_live and self.clock.monotonic() >= self._checkpoint_at:
            self._checkpoint_at = self.clock.monotonic() + CHECKPOINT_INTERVAL_NS
            self.checkpoint = self.engine.checkpoint(self.now)

    def _carry_out(self, actions: Sequence[Action]) -> None:
        contact = self._contacts[-1]
        for action in actions:
            if isinstance(action, PublishFires):
                contact.publish(action.fires)
            elif isinstance(action, PurgeSchedule):
                contact.purge(action)
            elif isinstance(action, RemoveExpired):
                contact.remove(action)
            elif isinstance(action, WakeAt):
                self._wake = action.instant
            elif isinstance(action, Report):
                self._note(action.event)
            else:
                contact.ask(action)

    def _note(self, event: Event) -> None:
        self.events.append(event)
        is_mistake = isinstance(event, ScheduleRejected) and event.rejection.code == FAILED.code
        assert not is_mistake, f"a mistake of nats-scheduler, not of the schedule: {event}"

    def _stored(self, message: StoredMessage) -> None:
        reading = read_message(message.block, message.subject, message.stored_at, self.stream.rules, self._dialects)
        if reading is not None and reading.generated is not None:
            headers = tuple((decoded(name), decoded(value)) for name, value in header_items(message.block))
            schedule, sequence, fire_time = reading.generated[:3]
            stored = (message.subject, message.sequence, message.stored_at, headers, message.body or b"")
            self.generated.append(GeneratedMessage(*stored, schedule, sequence, fire_time))


def _block(headers: Headers) -> bytes:
    if isinstance(headers, bytes):
        return headers
    items = headers.items() if isinstance(headers, Mapping) else headers
    return with_headers(b"", [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in items])


def _instant(given: Instant) -> int:
    return given if isinstance(given, int) else _valid(parse_rfc3339(given))


def _duration(given: Duration) -> int:
    return given if isinstance(given, int) else _valid(parse_duration(given))


def _valid(parsed: int | Invalid) -> int:
    if isinstance(parsed, Invalid):
        raise ValueError(str(parsed))
    return parsed
