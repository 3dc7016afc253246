"""The identity under which a fire is sent again if its own one cannot be had.

Two things keep a fire from an identity. A forged message has it (`engine.holding.claimed_fires`); or the server keeps
it although no message has it: "in process".
As the server does: the leader of a stream with replicas records an identity when it receives a message, before it
checks and proposes it. What is refused then leaves its identity in process until the duplicate window ends, also if
another client sent it (`test_a_blocked_identity_of_a_fire_only_delays_it`).

The rules:

- All instances take the same way from one identity to the next (`message.identity.number_after`). So a fire that
  one of them stored under another identity is a duplicate for the next one, which comes the same way.
- An identity is given up only if no message that the server has received can be stored under it any more. A refusal
  by the guard shows that. "In process" does not: the replicas may still be agreeing on the message. But a message
  that was received before is applied before one that was received later. So the leader is asked to apply all that
  it has accepted, and an identity that is in process after that belongs to nothing that is still to come
  (`test_what_was_accepted_before_is_applied_before`).
- For a short time nothing is asked, because most of what is in process is being stored by another instance.
- A fire that is refused for another reason than the guard, such as a full stream, begins with its first identity
  again. It may be refused for longer than the server keeps that, and then the first one is free again for every
  instance. Each such refusal blocks an identity, so the next one is tried later each time.

Cost: nothing for a fire that is stored at once; three requests to the server for each identity that is given up.
Limit: another leader does not have the identities that the one before kept, and an instance that has not received a
fire with another identity stores it again then. So it may if it sends the first identity at the end of the window.
"""

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.firing import sending
from nats_scheduler.engine.firing.building import refusal_of, with_another_identity
from nats_scheduler.engine.holding.claimed_fires import free_soon
from nats_scheduler.engine.holding.flight import UNKNOWN_BACK_OFF_LIMIT_NS, Flight, InProcess, Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.proposals import PROOF_AGE_LIMIT_NS
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import DuplicateFetched, ProposalsApplied, Unanswered
from nats_scheduler.message.identity import number_after
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

IN_PROCESS_NS = 250 * MILLISECOND
"""The time (ns) for which the first identity of a fire may be in process before the leader is asked: replicas agree
sooner."""

IN_PROCESS_LIMIT_NS = 2 * SECOND
"""The longest such time; it doubles with each refusal. *Live* promises that fires resume within 3 s."""

MAX_GIVEN_UP_AT_ONCE = 8
"""After this number of identities of a fire in a row the leader is asked as late as for the first one."""


# -- a forged message has it ---------------------------------------------------------------------------------


def send_despite_forgery(state: EngineState, held: Held, flight: Flight, read: DuplicateFetched) -> None:
    """Send a fire whose identity another message has: under another one, or under its first one once it is free.

    Another one is sent now or not at all: later, the first one may be free.
    """
    fire = read.fire
    wait = free_soon(read, state.lifetimes.duplicate_window, state.now)
    number = flight.number_of(fire.fire_time)  # not 0 if a refusal has blocked the first one
    if wait is None and state.may_publish:
        number = number_after(fire.taken, fire.sequence, read.sequence)
    fire = _renumbered(state, flight, fire, number)
    if wait is None:
        sending.repeat(state, held, flight, fire)
    else:
        state.enter(held, Stage.BACKING_OFF)
        state.schedules.wake(held, state.now + max(wait, flight.back_off(UNKNOWN_BACK_OFF_LIMIT_NS)))


# -- the server keeps it in process --------------------------------------------------------------------------


def try_next(state: EngineState, held: Held, flight: Flight, fire: Fire) -> bool:
    """Take the answer that an identity is in process; returns whether the fire is sent under the next one now."""
    if fire.is_to_other_stream:
        return False
    found = flight.in_process
    is_first = found is None or found.fire is not fire
    if found is None or found.fire is not fire:
        found = flight.in_process = InProcess(fire, since=state.now)
    is_next = 0 < flight.given_up <= MAX_GIVEN_UP_AT_ONCE
    limit = 0 if is_next else min(IN_PROCESS_NS << min(flight.refusals, 20), IN_PROCESS_LIMIT_NS)
    is_proven = found.is_applied and state.now - found.asked_at <= PROOF_AGE_LIMIT_NS
    if not is_first and state.now - found.since >= limit:
        is_proven = is_proven or state.proposals.proves(state.now)
    if is_proven and state.may_publish:
        flight.give_up_identity(fire)
        flight.given_up += 1
        fire = _renumbered(state, flight, fire, flight.number_of(fire.fire_time))
        sending.repeat(state, held, flight, fire)
        return True
    found.is_applied = False
    if not found.is_asked and state.now - found.since >= limit:
        found.is_asked, found.asked_at = True, state.now
        state.proposals.ask_about(found, state.now)
    return False


def proposals_applied(state: EngineState, answer: ProposalsApplied | Unanswered) -> None:
    """Send fires once more, now that all is applied that came before: the answers decide."""
    for found in state.proposals.answered(answer, state.now):
        _apply(state, found, isinstance(answer, ProposalsApplied))
    state.proposals.ask_next(state.now)


def _apply(state: EngineState, found: InProcess, is_confirmed: bool) -> None:
    held = state.active.get(found.fire.sequence)
    flight = None if held is None else held.flight
    if held is None or flight is None or flight.in_process is not found:
        return
    # What is in flight may have been answered before.
    is_to_be_sent = flight.fire is found.fire and flight.stage in (Stage.BACKING_OFF, Stage.FETCHING)
    found.is_applied = is_confirmed and is_to_be_sent
    found.is_asked = False
    if found.is_applied and flight.stage is Stage.BACKING_OFF:
        state.schedules.wake(held, state.now)


def _renumbered(state: EngineState, flight: Flight, fire: Fire, number: int) -> Fire:
    """Return the fire with the identity of this number, under which it is sent from now on."""
    flight.fire = fire = with_another_identity(fire, number)
    flight.refusal = refusal_of(fire, None, state.rules.restrictions)
    return fire
