"""What the outcome of a fire means for its schedule.

The rules:

- *Store first, advance second, purge last*: a schedule advances only when its fire is stored.
- A refusal by the guard has the schedule fetched once: another message may be the last one on its subject. Any other
  refusal is retried, as `engine.holding.refusals` says.
- An unknown outcome is repeated under the same identity, so that the server drops what it has.
- That the server has a fire already is believed only if what is stored there is that fire: anybody can write its
  identity. Otherwise it is published again; `engine.firing.identities` says under which identity.
"""

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import AttemptRefused, FireForged, FireUnknown, TargetMapped
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.firing import advancing, fetching, identities, sending, timing
from nats_scheduler.engine.holding.held import Held, flight_of
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import DuplicateFetched, Refused, Unknown
from nats_scheduler.message.generated import WRONG_LAST_SEQUENCE

SILENT_ATTEMPTS = 2
"""The attempts at a fire of which nothing can show that it was stored; after them it is taken for stored.

To go on would be to store it again, once the duplicate window is over.
"""

ANSWERED_ELSEWHERE_ATTEMPTS = 2
"""The attempt at a fire after which it is reported that another stream answers it."""

NO_STREAM_ATTEMPTS = 10
"""The attempt after which it is reported that none takes it: that is after 6 s, when a stream has a leader again."""


# -- cells of the table (`engine.firing.machine`) ---------------------------------------------------------------------


def stored(state: EngineState, held: Held, fire: Fire) -> None:
    """Advance a schedule whose fire is stored."""
    over = state.stored_over
    is_last = fire.next_fire is None and held.ends_by_itself
    if is_last and fire.is_to_other_stream and over.last_on(held) > fire.last:
        over.set_back(held, fire.last)  # as below, but the sequences of two streams cannot be compared
    elif is_last and not fire.is_to_other_stream and over.last_on(held) > fire.stored_as:
        over.set_back(held, fire.last if fire.last < fire.stored_as else 0)  # what was stored over it later stays
    held.fire_is_stored(fire.fire_time, fire.stored_as, fire.stored_at)
    _advance(state, held, fire)


def refused(state: EngineState, held: Held, fire: Fire, refusal: Refused) -> None:
    """Fetch a schedule whose guard refused, or have its fire retried later."""
    if not state.ownership.is_owner:
        timing.leave_to_owner(state, held)
        return
    flight = flight_of(held)
    is_by_guard = refusal.code in WRONG_LAST_SEQUENCE
    flight.note_refusal(fire, by_guard=is_by_guard, blocks=state.limits.blocks_refused)
    if is_by_guard and not flight.was_rechecked:
        state.emit(Report(AttemptRefused(fire, refusal.code, refusal.description, 0)))
        flight.fire = flight.content = None
        flight.was_rechecked = True
        fetching.fetch(state, held)
    else:
        sending.retry_refused(state, held, flight, fire, refusal)


def unknown(state: EngineState, held: Held, fire: Fire, outcome: Unknown) -> None:
    """Repeat a fire of which nothing says whether it is stored."""
    flight = flight_of(held)
    if state.limits.silent and not fire.is_to_other_stream and flight.failures >= SILENT_ATTEMPTS:
        flight.content = None  # it is fetched again: the guard may have refused in silence, since the schedule is gone
        held.fire_is_stored(fire.fire_time, 0, state.now)
        _advance(state, held, fire)
        return
    if not state.ownership.is_owner:
        timing.leave_to_owner(state, held)
        return
    if outcome.may_be_stored:
        flight.may_be_stored, flight.unconcluded = True, state.proposals.begun
    if not outcome.in_process:
        flight.in_process = None  # this attempt may have been received by another leader
    elif identities.try_next(state, held, flight, fire):
        state.emit(Report(FireUnknown(fire, outcome.reason, 0)))
        return
    wait = sending.back_off(state, held, flight)
    state.emit(Report(FireUnknown(fire, outcome.reason, wait)))
    most = ANSWERED_ELSEWHERE_ATTEMPTS if outcome.may_be_stored else NO_STREAM_ATTEMPTS
    if outcome.is_misplaced and flight.failures == most:
        state.emit(Report(TargetMapped(fire.schedule, fire.sequence, fire.target, outcome.reason)))


def forged(state: EngineState, held: Held, read: DuplicateFetched, fault: str) -> None:
    """Send a fire again whose identity another message has, and report that once."""
    flight, fire = flight_of(held), read.fire
    if flight.forgery != read.sequence:
        flight.forgery = read.sequence
        subject = "" if read.message is None else read.message.subject
        state.emit(Report(FireForged(fire.schedule, fire.sequence, fire.fire_time, subject, read.sequence, fault)))
    if state.ownership.is_owner:
        identities.send_despite_forgery(state, held, flight, read)
    else:
        timing.leave_to_owner(state, held)


def not_found(state: EngineState, held: Held, fire: Fire) -> None:
    """Send a fire that another stream does not have, once what is known of its schedule is fetched again.

    One that was not sent before may have become a make-up fire for a later time.
    """
    flight = flight_of(held)
    held.looked_for = fire.fire_time, state.now
    if not state.ownership.is_owner:
        timing.leave_to_owner(state, held)
        return
    if not (flight.may_be_stored or fire.taken):  # built anew, it would have the identity again that is taken
        flight.fire = None
    fetching.fetch(state, held)


def confirmed(state: EngineState, held: Held, fire_time: int, *, is_last: bool) -> None:
    """Advance a schedule of which a fire is seen in the stream, whichever instance stored it."""
    state.ownership.last_fired = held.send_time_of(fire_time)
    advancing.advance(state, held, None if is_last else held.next_fire(fire_time), is_last=is_last)


def _advance(state: EngineState, held: Held, fire: Fire) -> None:
    """Advance a schedule after a fire; the days of its calendars, if it names any, may have changed since it was built.

    What a stored fire says of the end of its schedule counts, and otherwise the days as they are now.
    """
    following = fire.next_fire
    if following is not None and held.calendars:
        following = held.next_fire(fire.fire_time)
    advancing.advance(state, held, following, is_last=fire.next_fire is None)
