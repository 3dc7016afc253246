"""The fires of schedules as they are seen in the stream, whichever instance has stored them.

The rules:

- A fire that was acknowledged here is ours. Any other message that claims to be a fire is believed only if it can be
  one (`engine.holding.claimed_fires`): anybody can write what a fire says.
- A schedule advances past the fire time of each fire that is seen, acknowledged or not.
- An older fire changes nothing, unless a policy needs the last one that is stored.
"""

from functools import partial

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import FireConfirmed, FireForged, TargetMapped
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.firing import purging
from nats_scheduler.engine.firing.machine import Event, happen
from nats_scheduler.engine.holding.claimed_fires import fault_of_generated
from nats_scheduler.engine.holding.deadlines import DONE_WITHIN
from nats_scheduler.engine.holding.flight import DONE
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.message.fire_faults import names_end
from nats_scheduler.message.generated import is_requested
from nats_scheduler.message.reading import Generated, read_generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND


def confirm(state: EngineState, generated: Generated, message: StoredMessage, *, is_matched: bool) -> bool:
    """Take a message that claims to be a fire of ours for it; returns whether it can be.

    One that `is_matched` with an acknowledgement is ours; one of ours that is not expected any more, after a lost
    acknowledgement or contact, is not. One that changes nothing is accepted. Only the owner reports.
    """
    held = state.schedules.exactly(generated.schedule, generated.sequence)
    owner_reports = state.progress.is_live and state.ownership.is_owner
    fault = ""
    if held is not None and not is_matched:
        _roll_up_again(state, held, generated, message)
        if held.is_news(generated.fire_time):
            fault = fault_of_generated(held, generated, message, moved=is_moved(state, held))
    if fault:
        if owner_reports:
            claimed = generated.schedule, generated.sequence, generated.fire_time
            state.emit(Report(FireForged(*claimed, message.subject, message.sequence, fault)))
        return False
    if owner_reports and (is_matched or state.stored_over.may_be_in_time(held, generated, message)):
        report_confirmed(state, generated, held, *message[:4])
    if held is not None:
        state.guard.each((held,), partial(_go_on, state, generated, message))
    if (held is None or held.terms.policies.done_within) and DONE_WITHIN in message.block:
        state.watch(generated, *message[:4])
    return True


def _go_on(state: EngineState, generated: Generated, message: StoredMessage, held: Held) -> None:
    """Advance a schedule past a fire that was received."""
    held.fire_is_stored(generated.fire_time, message.sequence, message.stored_at)
    advance_past(state, held, generated.fire_time, message.block)


def confirm_own(state: EngineState, fire: Fire) -> bool:
    """Do what `confirm` does for a fire that was acknowledged, and build nothing for it but the event.

    Does nothing, and returns False, if its schedule is not held.
    """
    held = state.schedules.exactly(fire.schedule, fire.sequence)
    if held is None:
        return False
    if state.progress.is_live and state.ownership.is_owner:
        report_confirmed(state, fire, held, fire.target, fire.stored_as, fire.stored_at)
    held.fire_is_stored(fire.fire_time, fire.stored_as, fire.stored_at)
    advance_past(state, held, fire.fire_time, b"")
    return True


def advance_past(state: EngineState, held: Held, fire_time: int, block: bytes) -> None:
    """Advance a schedule whose fire is stored, unless it is further or done; `block` is empty if not known."""
    is_last = bool(held.calendars) and _is_named_last(held, fire_time, block)
    if fire_time < held.confirmed_from and not is_last:
        return
    if held.flight is None or held.flight.stage not in DONE:
        happen(state, held, Event.CONFIRMED, fire_time, is_last=is_last)


def _is_named_last(held: Held, fire_time: int, block: bytes) -> bool:
    """Return whether the stored fire of a schedule with a calendar says that it is the last one."""
    if block:
        return names_end(block, held.terms)
    fire = None if held.flight is None else held.flight.fire  # it was acknowledged, and its headers were dropped
    return fire is not None and fire.fire_time == fire_time and fire.next_fire is None


def watch_older(state: EngineState, message: StoredMessage) -> None:
    """Have a fire watched that lies under the last message on its subject, if it says when it is to be done."""
    generated = read_generated(message.block) if DONE_WITHIN in message.block else None
    if generated is not None:
        state.watch(generated, *message[:4])


def is_moved(state: EngineState, held: Held) -> bool:
    """Return whether the stream stores the fires of a schedule on another subject than their target."""
    return state.stored_over.moves.moves(held.terms.target)


def _roll_up_again(state: EngineState, held: Held, generated: Generated, message: StoredMessage) -> None:
    """Have the target rolled up by a fire whose sender may not have done it: others sent it, or it was ours before.

    Anybody can write what a fire says, so an old one is judged too.
    """
    is_owed = state.rules.rolls_up_by_purge and held.terms.rollup and not held.is_to_other_stream
    if is_owed and not fault_of_generated(held, generated, message, moved=is_moved(state, held)):
        purging.roll_up(state, message.subject, message.sequence - 1)


def report_confirmed(
    state: EngineState,
    fire: Fire | Generated,
    held: Held | None,
    subject: str,
    sequence: int,
    stored_at: int,
    block: bytes = b"",
) -> None:
    """Report a fire that is stored; `held` is its schedule, None if it is held no longer.

    A fire is overdue if it was due before it could be fired in time, so that it says nothing about punctuality: if
    its send time is before its schedule was stored (an `@at` in the past), or before this instance could fire. A
    fire that another instance stored before that is not overdue. A fire that this instance blocked until the one
    before was finished is, and so is one that was requested later. What delayed the fire of a schedule that is held
    no longer is known only if this instance sent it.
    """
    if held is None:
        known_since = fire.schedule_stored_at
        send_time = fire.fire_time + fire.delay
    else:
        known_since = held.stored_at
        send_time = held.send_time_of(fire.fire_time)
    overdue = send_time < known_since or send_time < state.ownership.able_since <= stored_at
    waited = held is not None and held.waited_fire == fire.fire_time
    late = overdue or waited or (stored_at - send_time > SECOND and is_requested(block))
    times = fire.fire_time, send_time, stored_at
    state.emit(Report(FireConfirmed(fire.schedule, subject, *times, sequence, late, known_since, waited)))


def report_mapped(state: EngineState) -> None:
    """Report the targets of which it is news that a mapping moves their fires."""
    for fire, subject in state.progress.mapped:
        reason = f"its fires are stored on {subject}, so the account has a mapping"
        state.emit(Report(TargetMapped(fire.schedule, fire.sequence, fire.target, reason)))
    state.progress.mapped.clear()
