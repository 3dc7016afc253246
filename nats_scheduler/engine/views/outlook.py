"""The outlook of a held schedule: its state, and its next fire.

The rule: both follow from what the engine holds and from the time, and nothing is changed.

Cost: about a microsecond; if a repeating schedule is overdue, its next fire is searched, tens of microseconds for a
cron pattern.
"""

from enum import StrEnum
from typing import NamedTuple

from nats_scheduler.engine.events import Ending
from nats_scheduler.engine.holding.flight import DONE, Flight
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifetimes import Lifetimes
from nats_scheduler.message.ages import is_early
from nats_scheduler.schedule.native import fire_after
from nats_scheduler.schedule.patterns import At, Every


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
    if is_early(ends, send_time):
        return Outlook(None, State.EXPIRING)
    usual = State.WAITING if flight is None else _in_flight(flight)
    if send_time > now:
        return Outlook(fire_time, usual)
    if not held.repeats:
        return Outlook(fire_time, _due(usual))
    following = fire_after(held.pattern, held.stored_at, fire_time, now) if by_server else held.next_to_send(now)
    if following is None:
        return Outlook(fire_time, _due(usual)) if held.ends_by_itself else Outlook(None, State.ENDED)
    return Outlook(None, State.EXPIRING) if is_early(ends, held.send_time_of(following)) else Outlook(following, usual)


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
