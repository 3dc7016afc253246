"""Fires into another stream than that of their schedule.

No follower receives them, and the guard of a publish cannot name a message of another stream. So:

- A schedule is fetched shortly before each of its fires, as all are on a server without the guard.
- A fire that may be stored without our knowledge is looked for in the stream of its target before it is sent
  (`sending.send`): one of unknown outcome, one that is late, and one that came due before this instance could fire
  it, since an earlier owner may have stored it and written no checkpoint since. What is stored after the look
  is a matter of the duplicate window.
- A later fire of the same schedule counts too: the instance that stored it has dealt with all before it.

Limit: what was removed from the other stream is not found.
"""

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import FireForged
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.firing import confirming
from nats_scheduler.engine.firing.answers import stored_alone
from nats_scheduler.engine.firing.machine import Event, happen
from nats_scheduler.engine.holding.claimed_fires import fault_in_other_stream
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import FireLookedFor, Stored
from nats_scheduler.message.reading import read_generated
from nats_scheduler.message.stored import StoredMessage


def looked_for(state: EngineState, look: FireLookedFor) -> None:
    """Take what the stream of a target has of a fire: it is stored, or is to be sent."""
    fire, held = look.fire, state.awaiting(look.fire)
    if held is None or held.flight is None:
        state.in_flight.conclude(fire)
        return
    latest, message = latest_found(state, held, look)
    if message is not None:
        held.flight.missed_since = _missed_between(held, latest, fire)
    if message is not None and latest == fire.fire_time:
        stored_alone(state, fire, Stored(message.sequence, duplicate=True))
        fire.stored_at = message.stored_at
        return
    state.in_flight.conclude(fire)
    if message is not None:
        held.fire_is_stored(latest, message.sequence, message.stored_at)
    if message is not None and latest > fire.fire_time:
        confirming.advance_past(state, held, latest, message.block)
    else:
        happen(state, held, Event.NOT_FOUND, fire)


def latest_found(state: EngineState, held: Held, look: FireLookedFor) -> tuple[int, StoredMessage | None]:
    """Return the fire time of the latest fire that was found and can be genuine, and it; None if there is none."""
    latest: StoredMessage | None = None
    fire_time = look.first
    for message in look.found:
        generated = read_generated(message.block)
        if generated is None or generated[:2] != (held.subject, held.sequence) or generated.fire_time < fire_time:
            continue
        fault = fault_in_other_stream(held, generated, message)
        if not fault:
            fire_time, latest = generated.fire_time, message
            continue
        claimed = generated.schedule, generated.sequence, generated.fire_time
        state.emit(Report(FireForged(*claimed, message.subject, message.sequence, fault)))
    return fire_time, latest


def _missed_between(held: Held, latest: int, fire: Fire) -> int | None:
    """Return the first fire time (ns) after the `latest` that is stored, for which a fire stands as well; None if none.

    What was missed before that was reported by the instance that stored it.
    """
    first = held.next_fire(latest) if latest < fire.fire_time else None
    return first if first is not None and first < fire.fire_time else None
