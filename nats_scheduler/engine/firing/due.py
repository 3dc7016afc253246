"""What happens to a schedule when its time has come: it is fetched, its fire is sent, or it is left to the owner.

The rules:

- A standby leaves all to the owner. It fetches a schedule only if no fire of it is confirmed for long, or purges it if
  it is done, so that nothing stays held that the stream does not hold.
- A fire that is due is sent, unless its fire before may be unfinished (`X-Overlap`), or a policy drops it (`X-Missed`).
- An attempt that failed is repeated with the same fire if a guard protects it; else the schedule is fetched again.
"""

from nats_scheduler.engine.fire import CheckFinished
from nats_scheduler.engine.firing import advancing, blocking, fetching, sending, timing
from nats_scheduler.engine.firing.purging import LEFT_TO_OWNER_NS
from nats_scheduler.engine.firing.timing import MIN_WAIT_AHEAD_NS
from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.engine.holding.held import Held, flight_of
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import UNGUARDED_LOOK_AHEAD_NS, FinishAnswer
from nats_scheduler.message.policies import Kept

UNGUARDED_CONTENT_AGE_LIMIT_NS = 2 * UNGUARDED_LOOK_AHEAD_NS
"""Content that was fetched longer ago is fetched again before it is published where no guard checks it."""

ATTEMPTS_PER_FETCH = 7
"""After this number of attempts without an answer the content is fetched again, guard or not."""


# -- cells of the table (`engine.firing.machine`) ---------------------------------------------------------------------


def woken_waiting(state: EngineState, held: Held) -> None:
    """Fetch a schedule for its fire, or leave it to the owner."""
    now, ends = state.now, state.lifetimes.ends(held)
    since = ends if ends < held.send_time else timing.due_since(state, held)
    if _drop_as_owner(state, held):
        return
    if state.ownership.is_owner or now >= since + LEFT_TO_OWNER_NS:
        fetching.fetch(state, held, may_wait=held.send_time - now >= MIN_WAIT_AHEAD_NS)
    elif ends < held.send_time:
        state.look_later(held, since + LEFT_TO_OWNER_NS)
    elif not timing.wait_for_owner(state, held):
        fetching.fetch(state, held)


def woken_with_content(state: EngineState, held: Held) -> None:
    """Send a fire that is due, or build it if it is not."""
    flight = flight_of(held)
    if not state.ownership.is_owner:
        timing.leave(state, held)
    elif state.now < held.send_time:
        sending.make_ready(state, held, flight)
    elif not state.is_guarded(held) and state.now - flight.read_at > UNGUARDED_CONTENT_AGE_LIMIT_NS:
        fetching.fetch_again(state, held)  # no guard checks it, and the process did not run for a time: it may be gone
    else:
        fire_due(state, held, flight)


def woken_blocked(state: EngineState, held: Held) -> None:
    """Ask again whether the fire before is finished."""
    if state.ownership.is_owner:
        blocking.ask_again(state, held, flight_of(held))
    else:
        timing.leave(state, held)


def woken_backing_off(state: EngineState, held: Held) -> None:
    """Make another attempt."""
    flight = flight_of(held)
    if not state.ownership.is_owner:
        timing.leave(state, held)
        return
    # If nothing is acknowledged, the guard refuses in silence: without a fetch that would never end.
    fetches = flight.failures % ATTEMPTS_PER_FETCH == 0
    if flight.fire is not None and state.is_guarded(held) and not fetches:
        sending.send(state, held, flight, flight.fire)
    else:
        fetching.fetch(state, held)


def await_answer(_state: EngineState, _held: Held) -> None:
    """Do nothing: an answer is outstanding, and decides."""


def finish_answered(state: EngineState, held: Held, request: CheckFinished, answer: FinishAnswer) -> None:
    """Send the fire that is blocked, if its fire before is finished, or go on after it, or ask again later."""
    if not state.ownership.is_owner:
        timing.leave_to_owner(state, held)
        return
    verdict = blocking.answered(state, held, request, answer)
    if verdict is blocking.Verdict.GO_AHEAD:
        _go_ahead(state, held, flight_of(held))
    elif verdict is blocking.Verdict.SKIPPED:
        advancing.pass_over(state, held, held.next_fire(held.fire_time))


# -- a fire that is due ------------------------------------------------------------------------------------------------


def fire_due(state: EngineState, held: Held, flight: Flight) -> None:
    """Send the fire of a schedule that is due, block it, or go on after it if its policies drop it."""
    if not held.fires_each_time and blocking.block(state, held, flight):
        return
    due: int | None = held.fire_time
    if not flight.has_waited:  # or else for the fire before: so none of what is due was missed
        fire = flight.fire
        is_built = fire is not None and fire.fire_time == due
        following = fire.next_fire if fire is not None and is_built else held.next_fire(held.fire_time)
        due = held.due_fire(following, state.now)
    if due is None:
        advancing.drop_due(state, held)
    else:
        sending.publish(state, held, flight, due)


def _go_ahead(state: EngineState, held: Held, flight: Flight) -> None:
    """Send a fire that was blocked; it is fetched again if it had to wait, or if its content may be old."""
    may_change = held.terms.source is not None or not state.is_guarded(held)
    is_old = state.now - flight.read_at > UNGUARDED_CONTENT_AGE_LIMIT_NS
    if flight.content is None or (may_change and is_old):
        flight.fire = None
        fetching.fetch(state, held)
    elif state.may_publish:
        fire_due(state, held, flight)
    else:
        sending.make_ready(state, held, flight)


def _drop_as_owner(state: EngineState, held: Held) -> bool:
    """Go on after fires that the owner drops, which stores nothing that would show it; return whether it does."""
    may_drop = held.terms.policies.missed.kept is Kept.SKIP
    if not may_drop or state.ownership.is_owner or state.now < held.send_time:
        return False
    if held.is_to_other_stream or held.due_fire(None, state.now) is not None:
        return False  # of fires in another stream it is not known here which are stored
    advancing.drop_due(state, held)
    return True
