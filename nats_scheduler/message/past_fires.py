"""Find the fires of one schedule among stored messages that are read from the newest to the oldest.

The newest fires are asked for, and a stream may hold a million messages; `message.fires` reads all of them forwards.

The rules:

- One fire is one message. A fire of a sidecar has its fire time in its identity.
- A fire of the server's own scheduler has not; its fire time is the one that the fire before it named as the next, or
  the first fire time of the schedule that is stored now. So such a fire is known only when an older one has been read.
- A fire that was requested says nothing of the fires before and after it.

Limits: if the schedule was replaced between two fires of the server's, or the fire before was removed, the fire time of
the later one is unknown. A client that may publish to the target can imitate a fire. On a native stream a cancel that
was published to the target looks like a last fire; it counts as one if it was not stored before the fire time.
"""

from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from nats_scheduler.message.dialect import ADR51, DIALECTS
from nats_scheduler.message.fire_faults import fault_of, fault_of_following, is_too_early
from nats_scheduler.message.fires import StoredSchedule, following_fire, scheduler_of
from nats_scheduler.message.generated import PURGE, is_requested
from nats_scheduler.message.headers import encoded, header_value
from nats_scheduler.message.identity import IDENTITY_PREFIX
from nats_scheduler.message.reading import Generated, read_beside, read_generated
from nats_scheduler.message.stored import StoredMessage

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
        self._name = encoded(schedule)
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
            return is_misplaced or bool(fault_of(generated, message, stored.timetable, stored.terms))
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
