"""Fetch the content of a schedule: before each fire, and again whenever something may have changed it.

The rules:

- A schedule is fetched before each fire, but for one whose content is kept.
- Only the answer to the last question counts: it was asked after whatever may have changed the schedule.
- The first time, what a guard protects is fetched by its sequence: the guard checks again whether it is the last
  message on its subject. One with a message over it is fetched below that.
- What waits for room in memory is asked for when there is some (`engine.holding.contents`).
"""

from collections.abc import Iterable
from functools import partial

from nats_scheduler.engine.fire import FetchContent
from nats_scheduler.engine.holding.flight import Flight, Stage
from nats_scheduler.engine.holding.held import Held, flight_of
from nats_scheduler.engine.holding.state import EngineState


def fetch(state: EngineState, held: Held, *, is_under: bool = False, may_wait: bool = False) -> None:
    """Have what is stored of a schedule fetched, with others that follow if it `may_wait`; the answer decides."""
    state.enter(held, Stage.FETCHING)
    flight = flight_of(held)
    is_first = flight.reads == flight.failures == 0 and not flight.was_rechecked
    flight.content = flight.source = None
    state.contents.drop(flight)
    # With a message over it, it is fetched below that: if that is gone, the guard refuses, or it does no harm.
    is_under = is_under or held.replaced_at is not None or (is_first and state.stored_over.is_over(held))
    by_sequence = is_first and held.terms.source is None and state.is_guarded(held)
    flight.by_sequence = is_under or by_sequence
    flight.above = state.stored_over.last_on(held) if is_under else 0
    flight.may_wait = may_wait and (flight.may_wait or not flight.waits_for_room)
    if not flight.waits_for_room and state.contents.begins(held, flight):
        _ask(state, held)


def fetch_if_waiting(state: EngineState, held: Held) -> None:
    """Find out whether a schedule that only waits is still stored."""
    if held.flight is None:
        fetch(state, held)


def fetch_what_has_room(state: EngineState) -> None:
    """Ask for the contents that waited for room, as far as there is room now."""
    state.guard.each(state.contents.granted(), partial(_ask, state))


def _ask(state: EngineState, held: Held) -> None:
    flight = flight_of(held)
    flight.reads += 1
    is_plain = flight.by_sequence and not flight.above
    state.emit(FetchContent(held.subject, held.sequence, held.terms.source, is_plain, flight.above, flight.may_wait))


def is_outdated(flight: Flight) -> bool:
    """Return whether the content was asked for again since the question that is answered now."""
    return flight.reads > 0 or flight.waits_for_room


def fetch_again(state: EngineState, held: Held) -> None:
    """Fetch a schedule again that may have changed, before it fires."""
    flight = flight_of(held)
    if flight.stage is not Stage.FETCHING:
        flight.fire = None
    fetch(state, held)


def unprotected(state: EngineState, some: Iterable[Held]) -> list[Held]:
    """Return the schedules whose fires the server would store although they, or their sources, are gone."""
    return [held for held in some if not state.is_guarded(held) or held.terms.source is not None]
