"""Which fires are missed and have to wait for their turn, so that what comes due on time does not wait behind them.

The rules:

- A fire is missed if it is later than `DEFAULT_GRACE_NS`, counted from its send time, or from the storage of its
  schedule if that was later. What a failover delays, or a burst, is not.
- It concerns a schedule from which nothing was sent yet: what is in flight, or is sent again, goes on.
- A schedule that fires again meanwhile is on time: that fire is sent at its time, and stands for those before it. One
  that sends each missed fire (`X-Missed: all`) has a turn for each, and its fires stay in their order.
- What a policy drops has no turn, nor has what waits for the fire before (`engine.firing.blocking`).

Cost: for each fire that is late, a search for the latest one that is due.
"""

from collections.abc import Sequence

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import CatchingUp
from nats_scheduler.engine.holding.flight import WITH_CONTENT, Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.message.policies import DEFAULT_GRACE_NS, Kept
from nats_scheduler.schedule.instants import SECOND

REPORTED_EVERY_NS = 60 * SECOND
"""How often it is reported that many still wait."""


def waits_for_turn(state: EngineState, held: Held) -> bool:
    """Have a schedule wait for its turn if its fire is missed; return whether it does."""
    flight = held.flight
    if flight is not None and (flight.stage not in WITH_CONTENT or flight.before is not None):
        return False
    if state.now - max(held.send_time, held.stored_at) <= DEFAULT_GRACE_NS or not state.ownership.is_owner:
        return False
    latest = _latest_missed(state, held)
    if latest is None or state.catch_up.need_not_wait(state.now):
        return False
    state.enter(held, Stage.WAITING)
    state.catch_up.wait(held)
    following = held.next_fire(latest) if held.repeats and not _sends_each(held) else None
    if following is None or held.is_settled_at(following) or held.send_time_of(following) >= held.expires:
        state.schedules.cancel_wake(held)
    else:
        state.schedules.wake(held, held.send_time_of(following))
    return True


def take_turns(state: EngineState, most: int) -> Sequence[Held]:
    """Return the schedules whose turn has come, at most `most`, and report how many still wait."""
    catch_up = state.catch_up
    taken = catch_up.take(state.now, most)
    waiting = len(catch_up.waiting)
    is_long = waiting > catch_up.rate and state.now >= catch_up.reported_at + REPORTED_EVERY_NS
    if is_long or (not waiting and catch_up.reported_at):
        catch_up.reported_at = state.now if waiting else 0
        state.emit(Report(CatchingUp(waiting, catch_up.rate)))
    return taken


def _latest_missed(state: EngineState, held: Held) -> int | None:
    """Return the latest fire time that is due, if it is missed and is not dropped."""
    if held.only_expires:
        return None
    latest = held.fire_time if _sends_each(held) else held.latest_to_send(state.now)
    late, policies = state.now - max(held.send_time_of(latest), held.stored_at), held.terms.policies
    is_dropped = policies.missed.kept is Kept.SKIP and late > policies.grace
    return latest if late > DEFAULT_GRACE_NS and not is_dropped else None


def _sends_each(held: Held) -> bool:
    return held.terms.policies.missed.kept is Kept.ALL and held.is_known
