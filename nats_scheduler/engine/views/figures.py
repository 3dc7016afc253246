"""The figures of one stream for the operator: what is held, overdue, in flight and to be purged at one moment.

The engine counts its schedules by kind. All else is found by a visit of the schedules that have objects, and by a look
at the first of the others, when it is asked for: so no fire pays for a figure, and figures are true as well while there
is no contact with the stream or no connection.

The rules:

- Nothing is changed. The visit may run in another thread than the engine: what changes meanwhile is seen before or
  after its change.
- A schedule whose fire waits until the one before is finished is blocked, and not overdue. One whose missed fire waits
  for its turn is catching up, and not overdue, as long as there is contact with the stream.
- A schedule is overdue if a fire of it that this instance has to send is due for longer than `OVERDUE_AFTER_NS` and is
  not stored. What is due for less is in flight: with 1,000 fires a second there is always some.
- An `@at` that was past when it was stored is due from when it was stored.

Cost: a quarter of a microsecond for each schedule that has an object; the work yields after each unit.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from operator import attrgetter

from nats_scheduler.engine.holding.flight import DONE, Stage
from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import PatternKind

OBJECTS_PER_UNIT = 512
"""Schedules that are looked at in one unit of work."""

OVERDUE_AFTER_NS = 1 * SECOND
"""A schedule whose fire is due for longer (ns) and is not stored is overdue."""

_fire_time = attrgetter("fire_time")
_flight = attrgetter("flight")


@dataclass(slots=True)
class Figures:
    """The figures of a stream at one moment; instants are nanoseconds since the Unix epoch."""

    in_flight: int = 0
    """Fires that were published and whose outcome is not known."""
    purges_pending: int = 0
    """Schedules that are done and old versions of schedules, still to be purged, also if the server refuses that."""
    held: dict[PatternKind, int] = field(default_factory=lambda: dict.fromkeys(PatternKind, 0))
    """Schedules by kind, whichever instance fires them."""
    paused: int = 0
    """Paused schedules, whichever instance would fire them."""
    blocked: int = 0
    """Schedules whose fires wait until the one before is finished, of a stream that this instance owns."""
    blocked_since: int | None = None
    """Since when the fire is due that waits longest of them, None if there is none."""
    catching_up: int = 0
    """Schedules whose missed fires wait for their turn, of a stream that this instance owns."""
    overdue: int = 0
    """Schedules that are overdue, of a stream that this instance owns."""
    overdue_since: int | None = None
    """Since when the oldest of them is due, None if there is none."""
    next_due: int | None = None
    """The first time that is still to come at which a schedule is due, whichever instance fires it; None if none is."""


class Visit:
    """The visit of one stream's schedules."""

    def __init__(
        self,
        state: EngineState,
        now: int,
    ) -> None:
        """Prepare to find the figures at `now` (ns)."""
        self._state = state
        self._now = now
        self._found = Figures(state.in_flight.count, state.purges.unfinished, paused=len(state.inactive.paused))

    def run(self) -> Generator[None, None, Figures]:
        """Visit what has an object, some at a time, and return the figures."""
        schedules, found = self._state.schedules, self._found
        for kind, count in list(schedules.kinds.items()):
            found.held[kind] = count
        objects = schedules.objects()
        for first in range(0, len(objects), OBJECTS_PER_UNIT):
            self._visit(objects[first : first + OBJECTS_PER_UNIT])
            yield
        if self._state.ownership.is_owner:
            count, since = schedules.unread_due(self._now - OVERDUE_AFTER_NS, self._state.lifetimes.max_age)
            found.overdue += count
            found.overdue_since = since if found.overdue_since is None else min(found.overdue_since, since or self._now)
        for fire_time, expires, stored_at in schedules.next_rows(self._now):
            is_first = found.next_due is None or fire_time < found.next_due
            if is_first and self._state.lifetimes.ends_at(expires, stored_at) > fire_time:
                found.next_due = fire_time
        return found

    def _visit(self, row: list[Held]) -> None:
        found, now = self._found, self._now
        fire_times = list(map(_fire_time, row))  # no schedule is due before its fire time
        has_flights, limit = any(map(_flight, row)), now - OVERDUE_AFTER_NS
        if has_flights:
            found.purges_pending += sum(map(_awaits_purge_order, row))
        if has_flights or min(fire_times) <= limit:
            self._note_overdue([held for held in row if held.flight is not None or held.fire_time <= limit])
        coming = min((fire_time for fire_time in fire_times if fire_time > now), default=None)
        if coming is not None and (found.next_due is None or coming < found.next_due):
            self._note_coming(row)

    def _note_overdue(self, suspects: list[Held]) -> None:
        found = self._found
        for held in suspects:
            if held.flight is not None and held.flight.is_blocked and self._state.ownership.is_owner:
                found.blocked += 1
                found.blocked_since = _earlier(found.blocked_since, held.send_time)
            if self._state.progress.is_live and held.sequence in self._state.catch_up.waiting:
                found.catching_up += 1
                continue
            since = _due_since(held)
            if held.jitters and since > self._now:
                self._note_coming([held])
            if since <= self._now - OVERDUE_AFTER_NS and self._is_to_fire(held) and self._state.ownership.is_owner:
                found.overdue += 1
                found.overdue_since = _earlier(found.overdue_since, since)

    def _note_coming(self, row: list[Held]) -> None:
        found = self._found
        for held in row:
            due = held.send_time
            if due > self._now and (found.next_due is None or due < found.next_due) and self._is_to_fire(held):
                found.next_due = due

    def _is_to_fire(self, held: Held) -> bool:
        """Return whether the next fire of a schedule is still to be stored, and its stream keeps it until then."""
        flight = held.flight
        if held.no_fire is not None:
            return False
        if flight is not None:
            fire = flight.fire
            if flight.stage in DONE or flight.is_blocked or (fire is not None and fire.stored_as):
                return False
        return self._state.lifetimes.ends(held) > held.send_time


def _earlier(known: int | None, instant: int) -> int:
    return instant if known is None else min(known, instant)


def _due_since(held: Held) -> int:
    """Return since when (ns) the first fire that is not stored is due; in the future if none is.

    A fire that is refused is made again, and may stand for a later fire time than the first that was missed.
    """
    flight = held.flight
    missed_since = None if flight is None else flight.missed_since
    return max(held.send_time if missed_since is None else held.send_time_of(missed_since), held.stored_at)


def _awaits_purge_order(held: Held) -> bool:
    """Return whether a schedule is done, and its purge is neither ordered nor queued: it failed or was refused."""
    flight = held.flight
    if flight is None or flight.stage not in (Stage.PURGING, Stage.UNPURGEABLE):
        return False
    return flight.stage is Stage.UNPURGEABLE or held.wake != NO_WAKE
