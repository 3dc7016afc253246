"""The figures of one stream for the operator: what is held, overdue, in flight and to be purged at one moment.

The engine counts its schedules by kind. All else is found by a visit of the schedules that have objects, and by a look
at the first of the others, when it is asked for: so no fire pays for a figure, and figures are true as well while there
is no contact with the stream or no connection.

The rules:

- Nothing is changed. The visit may run in another thread than the engine: what changes meanwhile is seen before or
  after its change.
- A schedule whose fire waits until the one before is finished is blocked, and not overdue.
- A schedule is overdue if a fire of it that this instance has to send is due for longer than `OVERDUE_AFTER_NS` and is
  not stored. What is due for less is in flight: with 1,000 fires a second there is always some.
- An `@at` that was past when it was stored is due from when it was stored.

Cost: a quarter of a microsecond for each schedule that has an object; the work yields after each unit.
"""

from collections.abc import Generator
from dataclasses import dataclass, field
from enum import StrEnum
from operator import attrgetter
from typing import NamedTuple

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.holding.flight import DONE, Flight, Stage
from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.lifetimes import Lifetimes
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.native import fire_after
from nats_scheduler.schedule.patterns import At, Every, PatternKind

# The outlook of a held schedule: its state, and its next fire.
#
# The rule: both follow from what the engine holds and from the time, and nothing is changed.
#
# Cost: about a microsecond; if a repeating schedule is overdue, its next fire is searched, tens of microseconds for a
# cron pattern.


class State(StrEnum):
    """The state of a schedule, as it is shown to people and programs."""

    WAITING = "waiting"
    """Its next fire is to come."""
    OVERDUE = "overdue"
    """It fires once, its time has passed, and its fire is not stored yet."""
    FAILING = "failing"
    """It is due, and the server refuses its fires. A stream alone cannot show that: the owner knows it."""
    UNFINISHED = "unfinished"
    """It is due, and waits until its fire before is finished (`X-Overlap`). A stream alone cannot show that either."""
    FIRED = "fired"
    """It fires once, and has; it is still to be removed."""
    CANCELLED = "cancelled"
    """A message cancelled it; it is still to be removed."""
    EXPIRING = "expiring"
    """Its TTL runs out, or the `max_age` of its stream is over, before its next fire."""
    NO_CALENDAR = "no_calendar"
    """The days of a calendar that it names are not known: it waits for them."""
    EXCEPTED = "excepted"
    """Its calendars leave none of its fire times that are to come."""
    ENDED = "ended"
    """Its pattern has no further fire within the horizon of five years."""
    PAUSED = "paused"
    """It fires nothing until it is resumed."""


class Outlook(NamedTuple):
    """The next fire and the state of a schedule."""

    next_fire: int | None
    """The next fire time (ns since the Unix epoch), None if there is none."""
    state: State


def outlook_of(held: Held, now: int, lifetimes: Lifetimes, *, by_server: bool = False) -> Outlook:
    """Return what becomes of a schedule at `now` (ns since the Unix epoch), on a stream with these lifetimes.

    If it is fired `by_server`, the fires after the one that is due are those of the native scheduler.
    """
    flight = held.flight
    if flight is not None and flight.stage in DONE:
        return Outlook(None, State.CANCELLED if flight.ending is Ending.CANCELLED else State.FIRED)
    if held.no_fire is not None:
        return Outlook(None, State(held.no_fire.value))
    ends, fire_time, send_time = lifetimes.ends(held), held.fire_time, held.send_time
    if ends <= send_time:
        return Outlook(None, State.EXPIRING)
    usual = State.WAITING if flight is None else _in_flight(flight)
    if send_time > now:
        return Outlook(fire_time, usual)
    if not held.repeats:
        return Outlook(fire_time, _due(usual))
    following = fire_after(held.pattern, held.stored_at, fire_time, now) if by_server else held.next_to_send(now)
    if following is None:
        return Outlook(fire_time, _due(usual)) if held.ends_by_itself else Outlook(None, State.ENDED)
    return Outlook(None, State.EXPIRING) if ends <= held.send_time_of(following) else Outlook(following, usual)


def _in_flight(flight: Flight) -> State:
    """Return the state of a schedule whose next fire is in progress."""
    if flight.failing is not None:
        return State.FAILING
    return State.UNFINISHED if flight.is_blocked else State.WAITING


def _due(usual: State) -> State:
    """Return the state of a schedule whose last fire is due."""
    return State.OVERDUE if usual is State.WAITING else usual


def is_searched(held: Held, now: int) -> bool:
    """Return whether the next fire of a schedule has to be searched, which takes longer."""
    return held.send_time <= now and not isinstance(held.pattern, At | Every)


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
