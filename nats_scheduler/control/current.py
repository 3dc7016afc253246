"""Read the schedule on a subject as it is stored now: active or paused, valid or rejected.

The rule: what the last message on the subject says, read by the same rules as whatever fires it (the sidecar or the
server), and nothing else. `control.store` asks for that message first.
Cost: some microseconds.
Limit: a fire or a cancel that is stored over a schedule leaves it alive. It is not looked for there.
"""

from dataclasses import dataclass

from nats_scheduler.control.errors import NotFoundError, NotPossibleError, SchedulerError
from nats_scheduler.control.store_port import Served
from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.headers import MARKER_REASON, decoded, header_value
from nats_scheduler.message.jitter import stored_timetable
from nats_scheduler.message.paused import paused_name, read_paused, resumed_block
from nats_scheduler.message.policies import policy_header
from nats_scheduler.message.reading import read_beside, read_generated, read_published
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.timetable import Timetable


@dataclass(frozen=True, slots=True)
class Current:
    """A schedule as it is stored."""

    message: StoredMessage
    dialect: Dialect
    verdict: Definition | Rejection
    """Its definition, or the reason why it never fires; if it is paused, as it would be if it was resumed."""
    is_paused: bool
    is_fired_by_server: bool = False

    @property
    def subject(self) -> str:
        """Its subject."""
        return self.message.subject

    @property
    def sequence(self) -> int:
        """The stream sequence of its message."""
        return self.message.sequence

    @property
    def definition(self) -> Definition | None:
        """Its definition, also while it is paused; None if it is rejected."""
        return self.verdict if isinstance(self.verdict, Definition) else None

    @property
    def rejection(self) -> Rejection | None:
        """The reason why it never fires; None if it is valid."""
        return self.verdict if isinstance(self.verdict, Rejection) else None

    @property
    def active_block(self) -> bytes:
        """The header block that it has while it is not paused."""
        return resumed_block(self.message.block, self.dialect) if self.is_paused else self.message.block

    @property
    def pattern(self) -> str:
        """The pattern as it is written."""
        name = paused_name(self.dialect) if self.is_paused else self.dialect.schedule
        return decoded(header_value(self.message.block, name) or b"")

    @property
    def owner(self) -> str | None:
        """The value of `X-Owner`."""
        return self._policy("X-Owner")

    @property
    def note(self) -> str | None:
        """The value of `X-Note`."""
        return self._policy("X-Note")

    def timetable(self, stored_at: int | None = None) -> Timetable:
        """Return when it fires, or would fire if it was stored at `stored_at` (ns); it must be valid.

        Limit: calendars that it names except no days here.
        """
        definition = self.definition
        assert definition is not None, "a rejected schedule has no timetable"
        at = self.message.stored_at if stored_at is None else stored_at
        return stored_timetable(definition.pattern, definition.terms.policies, at, self.subject, self.sequence)

    def _policy(self, name: str) -> str | None:
        value = header_value(self.message.block, policy_header(name, self.dialect))
        return None if value is None else decoded(value)


def read_current(message: StoredMessage, served: Served) -> Current | None:
    """Read the last message on a subject; None if it is no schedule that anything fires on this stream."""
    block = message.block
    if not block or read_generated(block) or read_beside(block):
        return None
    return _read_active(message, served) or _read_paused(message, served)


def is_marker(block: bytes) -> bool:
    """Return whether a message only marks that the server removed another one."""
    return header_value(block, MARKER_REASON) is not None


def _read_active(message: StoredMessage, served: Served) -> Current | None:
    subject, _sequence, stored_at, block, _body = message
    for dialect in served.dialects:
        if header_value(block, dialect.schedule):
            reading = read_published(block, subject, stored_at, served.rules_for(dialect), (dialect,))
            verdict = reading and (reading.rejection or reading.definition)
            return verdict and Current(message, dialect, verdict, False, served.is_fired_by_server(dialect))
    return None


def _read_paused(message: StoredMessage, served: Served) -> Current | None:
    subject, _sequence, stored_at, block, _body = message
    if any(header_value(block, dialect.schedule) for dialect in served.dialects):
        return None
    for dialect in served.dialects:
        paused = read_paused(block, subject, served.rules_for(dialect), (dialect,), stored_at)
        if paused is not None:
            return Current(message, dialect, paused.resumed, True, served.is_fired_by_server(dialect))
    return None


def none_here(message: StoredMessage, served: Served) -> SchedulerError:
    """Return why the last message on a subject is no schedule that could be changed."""
    block, what = message.block, f"the last message on {message.subject} in stream {served.name}"
    if (generated := read_generated(block) or read_beside(block)) is not None:
        return NotPossibleError(f"{what} is a fire of {generated.schedule}: remove it, or give that another target")
    for dialect in DIALECTS:
        if dialect not in served.dialects and (
            header_value(block, dialect.schedule) or header_value(block, paused_name(dialect))
        ):
            name = dialect.schedule.decode()
            return NotPossibleError(f"{what} has {name}, and nothing fires a schedule with that header there")
    return NotFoundError(f"{what} is no schedule")
