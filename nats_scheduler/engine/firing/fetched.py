"""What follows once the content of a schedule was fetched, and when it may have changed since.

The rules:

- What was fetched for another reason than its fire waits again; else its fire is built, or sent if it is due.
- A fire of unknown outcome is repeated with the same bytes: its schedule is still stored.
- A message that is stored over a schedule and leaves it alive is what its guard expects: its fire is built anew.
"""

from nats_scheduler.engine.firing import fetching, sending, timing
from nats_scheduler.engine.firing.due import fire_due
from nats_scheduler.engine.holding.contents import size_of
from nats_scheduler.engine.holding.flight import Flight, Stage
from nats_scheduler.engine.holding.held import Held, flight_of
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import ContentFetched, Unanswered
from nats_scheduler.message.stored import StoredMessage

# -- cells of the table (`engine.firing.machine`) ---------------------------------------------------------------------


def fetched(state: EngineState, held: Held, read: ContentFetched) -> None:
    """Go on with a schedule that is still stored."""
    flight = flight_of(held)
    # A leader with replicas may be behind what was received; there nothing depends on it that what is over it is gone.
    may_be_gone = not (flight.by_sequence or state.limits.blocks_refused)
    if may_be_gone and state.stored_over.forget(held):
        flight.found_over()
    is_early = held.send_time - state.now > timing.ahead_of(state, held) or not held.may_fire
    if flight.fire is None and is_early:
        state.enter(held, Stage.WAITING)  # it was fetched for another reason than its fire
        timing.await_due(state, held, state.now)
    elif not state.ownership.is_owner:
        timing.leave_to_owner(state, held)
        timing.note_unfired(state, held)
    else:
        flight.content, flight.source = read.message, read.source
        flight.read_at = state.now
        size = 0 if read.message is None else size_of(read.message, read.source)
        if flight.fire is None and not state.contents.takes(held, flight, size):
            fetching.fetch(state, held)  # its size was not known: it waits until there is room for it
        else:
            _go_on(state, held, flight)


def not_fetched(state: EngineState, held: Held, unread: Unanswered) -> None:
    """Fetch a schedule again later."""
    flight = flight_of(held)
    state.contents.drop(flight)
    if state.ownership.is_owner:
        if unread.denied:
            state.ownership.deny(unread.reason, state.now)
        sending.back_off(state, held, flight)
    else:
        timing.leave_to_owner(state, held)
        timing.look_soon(state, held)


def found_under(state: EngineState, held: Held, over: StoredMessage) -> None:
    """Fetch a schedule by its sequence: a message that lies over it leaves it alive."""
    flight = flight_of(held)
    if state.stored_over.found(held, over.sequence, is_next=flight.above > 0):
        flight.found_over()
    fetching.fetch(state, held, is_under=True)


def stored_over(state: EngineState, held: Held) -> None:
    """Build the fire of a schedule anew: a message was stored over it that leaves it alive."""
    if held.flight is not None and held.send_time <= state.now:
        fetching.fetch_again(state, held)
    elif held.sequence not in state.later:
        state.enter(held, Stage.WAITING)  # its fire expects less, and is fetched and built anew in time
        timing.await_due(state, held)


def _go_on(state: EngineState, held: Held, flight: Flight) -> None:
    """Go on with a schedule whose content was fetched just now."""
    if flight.fire is not None:
        sending.repeat(state, held, flight, flight.fire)
    elif held.send_time <= state.now and state.may_publish:
        fire_due(state, held, flight)
    else:
        sending.make_ready(state, held, flight)
