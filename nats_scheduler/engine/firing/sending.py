"""Send the fires of schedules whose content was fetched, once or again, and wait before the next attempt.

The rules:

- An unknown outcome is repeated with the same fire, and so with the same identity, unless it is found that nothing
  is stored under that; a refusal stored nothing, so the next attempt may stand for later fires too
  (`engine.holding.refusals` says when).
- A fire into another stream is looked for there before it is sent, if it may be stored there already: it was sent
  before, it was due before this instance could fire it, or it is late. What the stream drops as a duplicate ends with
  its window.
- A fire that may be in flight already at the leader of a stream with replicas waits until that is concluded
  (`engine.holding.proposals`).
- Overdue fires of a repeating schedule are collapsed into one make-up fire, the latest that is due. For a schedule with
  policies `engine.holding.held` says which of them is sent.
"""

from collections.abc import Sequence

from nats_scheduler.engine.actions import PublishFires, Report
from nats_scheduler.engine.events import AttemptRefused, FireRefused
from nats_scheduler.engine.fire import Fire, LookForFire
from nats_scheduler.engine.firing.building import PAYLOAD_TOO_LARGE, assembled, refusal_of, too_large
from nats_scheduler.engine.holding.flight import UNKNOWN_BACK_OFF_LIMIT_NS, Flight, Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.in_flight import BURST_IN_FLIGHT
from nats_scheduler.engine.holding.refusals import OF_A_MOMENT
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.generated import report_headers
from nats_scheduler.message.headers import Header
from nats_scheduler.message.rejection import NOT_PERMITTED, Failing
from nats_scheduler.schedule.instants import SECOND

UNLOOKED_LIMIT_NS = 2 * SECOND
"""A fire into another stream that is later than this is looked for.

While two instances hold a schedule, the other one may have stored it meanwhile: the duplicate window may be over.
"""

LOOK_AGE_LIMIT_NS = 3 * SECOND
"""A fire that was looked for longer ago is looked for again; its schedule was read in between."""


def hand_out(state: EngineState) -> PublishFires:
    """Return the order to publish the fires of this step."""
    fires, state.handed_out = state.handed_out, []
    if len(state.in_flight.fires) > BURST_IN_FLIGHT:  # then the next fires come before any purge
        for fire in fires:
            fire.purge_through = 0
    return PublishFires(fires)


# -- the fire ------------------------------------------------------------------------------------------------


def make_ready(state: EngineState, held: Held, flight: Flight) -> None:
    """Build the fire before it is due, so that at its time only bytes are sent."""
    state.enter(held, Stage.READY)
    fire_time = held.fire_time
    flight.fire = _build(state, held, flight, fire_time, held.next_fire(fire_time))
    state.schedules.wake(held, held.send_time_of(fire_time))


def publish(state: EngineState, held: Held, flight: Flight, fire_time: int) -> None:
    """Publish the fire of one fire time, built before nearly always; it stands for all that came due before."""
    if fire_time != held.fire_time and flight.missed_since is None:
        flight.missed_since = held.fire_time
    held.fire_time = fire_time
    if not held.is_known:
        held.is_known = True  # what comes due from now on: nobody else is to store it
    fire = flight.fire
    if fire is None or fire.fire_time != fire_time:
        fire = _build(state, held, flight, fire_time, held.next_fire(fire_time))
    send(state, held, flight, fire)


def send(state: EngineState, held: Held, flight: Flight, fire: Fire) -> None:
    """Hand out a fire, unless it is known that the server would refuse it."""
    if (refusal := flight.refusal or too_large(fire, state.max_payload)) is not None:
        state.oversized_count += refusal.code == PAYLOAD_TOO_LARGE
        retry_refused(state, held, flight, fire, refusal)
        return
    may_be_sent_by_others = state.ownership.may_be_stored(held)
    if state.proposals.is_unconcluded(held, flight, may_be_sent_by_others=may_be_sent_by_others):
        _await_conclusion(state, held, flight, fire)
        return
    state.enter(held, Stage.IN_FLIGHT)
    flight.fire = fire
    if held.is_to_other_stream:
        if _is_to_be_looked_for(state, held, flight, fire):
            state.in_flight.begin(fire)
            first = fire.fire_time if flight.missed_since is None else flight.missed_since
            state.emit(LookForFire(fire, max(fire.fire_time, held.stored_at), first, flight.may_be_stored))
            return
        held.looked_for = None  # it may be stored now
    if fire.next_fire is None or held.terms.source is not None:
        flight.content = flight.source = None  # not what the next fire is built from
    state.in_flight.begin(fire)
    fire.purge_through = fire.last if _is_purged_at_once(state, held, fire) else 0
    state.handed_out.append(fire)


def _is_purged_at_once(state: EngineState, held: Held, fire: Fire) -> bool:
    """Return whether its schedule may be purged as soon as a fire is acknowledged: it is the last one.

    A roll-up of the target comes before that, and so does what is owed of an earlier version.
    """
    if fire.next_fire is not None or not held.ends_by_itself or state.schedules.owed_on(held.subject):
        return False
    return not (fire.is_to_other_stream or held.terms.rollup)


def _await_conclusion(state: EngineState, held: Held, flight: Flight, fire: Fire) -> None:
    """Send a fire that may be stored already when that is known; one that we have not sent is built anew then."""
    state.enter(held, Stage.BACKING_OFF)
    state.schedules.cancel_wake(held)
    flight.fire = fire if flight.may_be_stored else None
    flight.content = flight.source = None  # it is read again
    state.contents.drop(flight)
    state.proposals.wait(held, fire, state.now)


def repeat(state: EngineState, held: Held, flight: Flight, fire: Fire) -> None:
    """Repeat a fire of unknown outcome whose schedule is still stored."""
    if state.may_publish:
        send(state, held, flight, fire)
    else:
        state.enter(held, Stage.BACKING_OFF)
        state.schedules.wake(held, state.now)


def _is_to_be_looked_for(state: EngineState, held: Held, flight: Flight, fire: Fire) -> bool:
    """Return whether a fire may be stored in another stream without our knowledge: sent before, by us or others."""
    is_late = state.now - max(held.send_time, held.stored_at) > UNLOOKED_LIMIT_NS
    if not (is_late or flight.may_be_stored or state.ownership.may_be_stored(held)):
        return False
    able_since = state.ownership.able_since
    return not held.was_looked_for(fire.fire_time, max(able_since, state.now - LOOK_AGE_LIMIT_NS))


def _build(state: EngineState, held: Held, flight: Flight, fire_time: int, next_fire: int | None) -> Fire:
    assert flight.content is not None, "a fire is built only after its content was read"
    last, limits = state.stored_over.last_on(held), state.limits
    # A refusal would block the identity for minutes, and what lands comes at the same instants as the fire.
    guard = (
        limits.guard and not held.is_to_other_stream and not (limits.blocks_refused and state.stored_over.is_over(held))
    )
    taken = flight.number_of(fire_time)
    parts = flight.content, flight.source, fire_time, next_fire
    report = _report_of(held, flight, fire_time)
    by_purge = state.rules.rolls_up_by_purge and not held.is_to_other_stream
    fire = assembled(held, *parts, guard=guard, last=last, taken=taken, report=report, rolls_up_by_purge=by_purge)
    flight.refusal = refusal_of(fire, held.terms.source, state.rules.restrictions)
    return fire


# -- what failed ---------------------------------------------------------------------------------------------


def retry_refused(state: EngineState, held: Held, flight: Flight, fire: Fire, outcome: Refused) -> None:
    """Have a fire that was refused built and sent again later, when its schedule is woken.

    One that is owed of a version that was replaced is lost: to correct what is refused may be why it was.
    """
    if held.replaced_at is not None and outcome.code not in OF_A_MOMENT:
        state.emit(Report(AttemptRefused(fire, outcome.code, outcome.description, 0)))
        state.lose(held, f"it was refused: {outcome.description} ({outcome.code})")
        return
    flight.fire = flight.content = None
    state.contents.drop(flight)
    if outcome.code == NOT_PERMITTED:
        state.ownership.deny(f"{outcome.description}: {fire.target}", state.now)
    state.enter(held, Stage.BACKING_OFF)
    flight.failures += 1
    wait = state.refusals.schedule_retry(held, outcome.code, flight.failures, state.now)
    state.emit(Report(AttemptRefused(fire, outcome.code, outcome.description, wait)))
    if flight.failing is None or flight.failing.code != outcome.code:
        flight.failing = Failing(outcome.code, outcome.description, state.now)
        state.emit(Report(FireRefused(fire, outcome.code, outcome.description, wait)))


def back_off(state: EngineState, held: Held, flight: Flight) -> int:
    """Retry after an unknown outcome, or a fetch that failed; returns the wait (ns)."""
    wait = flight.back_off(UNKNOWN_BACK_OFF_LIMIT_NS)
    state.enter(held, Stage.BACKING_OFF)
    state.schedules.wake(held, state.now + wait)
    return wait


def _report_of(held: Held, flight: Flight, fire_time: int) -> Sequence[Header]:
    """Return what the fire of a fire time says of itself and of the fire before it, if its schedule asks for that."""
    if not held.terms.policies.report:
        return ()
    missed = held.dropped_before(fire_time, flight.missed_since)
    return report_headers(held.pattern, fire_time, held.previous_fire, missed)
