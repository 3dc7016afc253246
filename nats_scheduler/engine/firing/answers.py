"""Find the schedule that an answer, a request or a wake concerns, and have it happen to that (`engine.firing.machine`).

The rules:

- An answer for a schedule that is not held any more, for an earlier version, an earlier fire, or an earlier question
  changes nothing.
- During a burst only what the next fires need is done at once. What was stored is reported, and what is done is purged,
  after it.
- What may have been removed is fetched before it fires, if its content was fetched already; all else will be.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from functools import partial

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import NO_VALID_SCHEDULE, FireLostToReplacement, FireStored
from nats_scheduler.engine.fire import CheckFinished, FetchContent, FetchDuplicate, Fire
from nats_scheduler.engine.firing import blocking, confirming, fetching, purging
from nats_scheduler.engine.firing.machine import Event, happen, may_happen
from nats_scheduler.engine.holding.claimed_fires import fault_of_duplicate
from nats_scheduler.engine.holding.flight import DONE, Stage
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.in_flight import BURST_IN_FLIGHT, BURST_LIMIT_NS
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import (
    ContentFetched,
    DuplicateFetched,
    FinishAnswer,
    FiresStored,
    PublishConcluded,
    PurgeConcluded,
    Refused,
    RemovalRequested,
    SchedulesPurged,
    Stored,
    Unanswered,
)
from nats_scheduler.message.fires import following_fire
from nats_scheduler.message.generated import WRONG_LAST_SEQUENCE
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_literal_subject

ADVANCE_AT_ONCE_NS = 2 * BURST_LIMIT_NS
"""A schedule that fires again within this time advances at once: no burst that it is part of may delay that."""

MAX_REPORTS_PER_STEP = 256
"""The most stored fires that are reported in one step after a burst, so that what is due does not have to wait."""


# -- contents ----------------------------------------------------------------------------------------------------------


def content_fetched(state: EngineState, read: ContentFetched) -> StoredMessage | None:
    """Take what was fetched for a schedule; returns a message that was found above it, which may be its end."""
    held = _fetching(state, read.schedule, read.sequence)
    if held is None:
        return None
    if read.message is None or read.message.sequence < held.sequence:
        if held.replaced_at is not None and not state.lifetimes.was_asked(held.subject, held.sequence, held.stored_at):
            state.lose(held, "its message is not stored any more")
            return None
        state.end(held, state.lifetimes.why_gone(held, state.now))
        return None
    if read.message.sequence > held.sequence:
        return read.message
    if read.above is None:
        current = None if held.replaced_at is None else state.schedules.on(held.subject)
        if current is not None and current.sequence > state.progress.last_read:
            not_received(state, held)
        else:
            happen(state, held, Event.FETCHED, read)
    return read.above


def found_above(state: EngineState, held: Held, found: StoredMessage, *, may_leave_alive: bool) -> bool:
    """Fetch a schedule below a message that was found above it, if that leaves it alive; return whether it does."""
    is_alive = may_leave_alive or state.stored_over.knows(held, found.sequence)
    if is_alive:
        happen(state, held, Event.FOUND_UNDER, found)
    return is_alive


def not_received(state: EngineState, held: Held) -> None:
    """Fetch a version that was replaced again later, since not all below its replacement is received.

    What is stored between the two may take what is owed.
    """
    question = FetchContent(held.subject, held.sequence, held.terms.source)
    happen(state, held, Event.NOT_FETCHED, Unanswered(question, "what replaced it is not received yet"))


def content_not_fetched(state: EngineState, request: FetchContent, unread: Unanswered) -> None:
    """Take it that the content of a schedule could not be fetched."""
    if (held := _fetching(state, request.schedule, request.sequence)) is not None:
        happen(state, held, Event.NOT_FETCHED, unread)


def _fetching(state: EngineState, schedule: str, sequence: int) -> Held | None:
    """Return the schedule whose content is answered now; None if it does not wait for that answer any more."""
    held = state.in_stage(schedule, sequence, Stage.FETCHING)
    if held is None or held.flight is None:
        return None
    held.flight.reads -= 1
    return None if fetching.is_outdated(held.flight) else held


# -- what may have changed ---------------------------------------------------------------------------------------------


def stored_over(state: EngineState, held: Held, sequence: int) -> None:
    """Take it that a message was stored over a schedule and leaves it alive; what is done it does not concern."""
    flight = held.flight
    if flight is not None and flight.stage in DONE:
        return
    if not state.stored_over.note(held, sequence if state.ownership.reads_all else state.stored_over.last_on(held)):
        return
    if flight is not None:
        flight.found_over()
    # A guard that expects less refuses what is in flight, and it is fetched again.
    if may_happen(held, Event.STORED_OVER):
        happen(state, held, Event.STORED_OVER)


def doubt(state: EngineState, some: Iterable[Held]) -> None:
    """Have schedules fetched again before they fire that may have been removed."""
    state.guard.each(some, partial(_doubt, state))


def _doubt(state: EngineState, held: Held) -> None:
    if may_happen(held, Event.DOUBTED):
        happen(state, held, Event.DOUBTED)


def removal_requested(state: EngineState, request: RemovalRequested) -> None:
    """Doubt what a request may have removed, and retry what was refused.

    A request for many subjects concerns those that no guard protects: the server refuses the fires of what it has
    removed of the others, and to fetch all of them at each request would cost more than the request.
    """
    conditions_changed(state)
    if request.filter is not None and is_literal_subject(request.filter):
        # The purges of other instances are received too, in bursts.
        purging.requested_on(state, request.filter, request.below)
    elif request.sequence is not None:
        purging.requested_of(state, state.later.get(request.sequence), None)
    elif request.filter is not None and request.below is not None:
        purging.requested_jointly(state, request.filter, request.below)
    active = state.active_in(request)
    is_wide = request.sequence is None and not (request.filter is not None and is_literal_subject(request.filter))
    doubt(state, fetching.unprotected(state, active) if is_wide else active)


def contact_regained(state: EngineState) -> None:
    """Doubt samples, which have aged, and, without the guard, what may have been removed during the outage."""
    if state.running_since is None:
        state.running_since = state.now
    state.ownership.in_contact_since = state.now
    conditions_changed(state)
    state.purges.purge_returned(state.now)
    doubt(state, fetching.unprotected(state, state.active.values()))


def conditions_changed(state: EngineState) -> None:
    """Retry soon what was refused: the stream, or our permissions on it, may have changed."""
    if state.refusals.held:
        state.refusals.retry_soon(state.now)


# -- fires -------------------------------------------------------------------------------------------------------------


def publish_concluded(state: EngineState, conclusion: PublishConcluded) -> None:
    """Take the outcome of a fire."""
    fire, outcome = conclusion.fire, conclusion.outcome
    held = state.awaiting(fire)
    if isinstance(outcome, Stored):
        if outcome.duplicate and held is not None:
            state.emit(FetchDuplicate(fire, outcome.sequence, outcome.stream))  # in flight until that is read
        else:
            stored_alone(state, fire, outcome)
        return
    state.in_flight.conclude(fire)
    if held is not None:
        happen(state, held, Event.REFUSED if isinstance(outcome, Refused) else Event.UNKNOWN, fire, outcome)
    elif isinstance(outcome, Refused) and outcome.code in WRONG_LAST_SEQUENCE:
        rejected = state.inactive.rejected.get(fire.schedule)
        if rejected is not None and rejected.sequence > fire.sequence and state.ownership.is_owner:
            lost = FireLostToReplacement(fire.schedule, fire.sequence, fire.fire_time, NO_VALID_SCHEDULE)
            state.emit(Report(lost))


def duplicate_fetched(state: EngineState, read: DuplicateFetched) -> None:
    """Take what is stored under the sequence of which the server says that it is this fire."""
    fire, held = read.fire, state.awaiting(read.fire)
    fault = "" if held is None else fault_of_duplicate(held, read, moved=confirming.is_moved(state, held))
    if held is None or not fault:
        if held is not None and held.calendars and read.message is not None:
            # Another instance may have stored it by other days.
            fire.next_fire = following_fire(read.message.block, held.terms.dialect)
        stored_alone(state, fire, Stored(read.sequence, duplicate=True))
        return
    state.in_flight.conclude(fire)
    happen(state, held, Event.FORGED, read, fault)


def fires_stored(state: EngineState, stored: FiresStored) -> None:
    """Take it that fires are stored."""
    fires = stored.fires
    state.stored_count += len(fires)
    state.unreported.extend(fires)
    if state.refusals.held:
        _end_refusals(state, fires)
    for fire, sequence in zip(fires, stored.sequences, strict=True):
        fire.stored_as, fire.stored_at = sequence, state.now
    state.guard.each(fires, partial(_go_on_after, state))
    state.in_flight.conclude(*fires)  # not before: fires that are stored together are a burst too
    if fires and not fires[0].is_to_other_stream:  # such a fire is concluded alone, and is not confirmed
        state.progress.expect(fires)
        if state.expiry is not None:  # it notes what is not received again
            state.expiry.fires_stored(fire for fire in fires if not state.progress.is_read_by_headers(fire))
    for fire in fires:
        fire.block = fire.body = b""  # never sent again, and it may wait to be reported and confirmed
        held = state.active.get(fire.sequence)
        if held is not None and held.flight is not None and held.flight.fire is fire:
            state.contents.drop(held.flight)


def _go_on_after(state: EngineState, fire: Fire) -> None:
    """Do what cannot wait after a fire that is stored."""
    if fire.is_to_roll_up:  # before its schedule is purged: until then it says that this is to be done
        purging.roll_up(state, fire.target, fire.stored_as - 1)
    if fire.purge_through:
        _advance_while_purged(state, fire)
    elif fire.next_fire is not None and fire.next_fire < fire.stored_at + ADVANCE_AT_ONCE_NS:
        _advance_after(state, fire)
    else:
        fire.advances_later = True

    if fire.is_watched and not fire.is_to_other_stream:
        state.watch(fire, fire.target, fire.stored_as, fire.stored_at, fire.block)


def report_stored(state: EngineState) -> bool:
    """Report fires that were stored, and advance after them; returns whether there are more, False in a burst."""
    unreported = state.unreported
    if len(state.in_flight.fires) > BURST_IN_FLIGHT and state.in_flight.is_burst(len(unreported), state.now):
        return False

    if len(unreported) <= MAX_REPORTS_PER_STEP:
        some, state.unreported = unreported, deque()
    else:
        some = deque(unreported.popleft() for _ in range(MAX_REPORTS_PER_STEP))
    state.guard.each(some, partial(_report, state))
    return bool(state.unreported)


def _report(state: EngineState, fire: Fire) -> None:
    """Report a fire that was stored, and advance its schedule if that could wait."""
    state.emit(Report(FireStored(fire, fire.stored_as, fire.was_stored_before)))
    if fire.is_to_other_stream:
        held = state.schedules.exactly(fire.schedule, fire.sequence)
        confirming.report_confirmed(state, fire, held, fire.target, fire.stored_as, fire.stored_at)
    if fire.advances_later:
        _advance_after(state, fire)


def stored_alone(state: EngineState, fire: Fire, outcome: Stored) -> None:
    """Take it that a fire is stored, of which the acknowledgement has its schedule not purged."""
    fire.was_stored_before, fire.purge_through = outcome.duplicate, 0
    fires_stored(state, FiresStored((fire,), (outcome.sequence,)))


def _advance_after(state: EngineState, fire: Fire) -> None:
    """Advance the schedule of a fire that is stored, if it still waits for that."""
    if (held := state.awaiting(fire)) is not None:
        happen(state, held, Event.STORED, fire)


def _advance_while_purged(state: EngineState, fire: Fire) -> None:
    """Advance the schedule of a last fire, which is being purged since its acknowledgement."""
    state.purges.outstanding += 1
    state.purges.under_way = fire
    try:
        _advance_after(state, fire)
    finally:
        state.purges.under_way = None


def _end_refusals(state: EngineState, fires: Sequence[Fire]) -> None:
    """Note which refused fires are stored: another fire of the same schedule says nothing about them."""
    for fire in fires:
        if fire.sequence in state.refusals.held and state.awaiting(fire) is not None:
            state.refusals.stored(fire.sequence, state.now)


# -- what was asked about the fire before, and purges ------------------------------------------------------------------


def finish_answered(state: EngineState, answer: FinishAnswer, request: CheckFinished) -> None:
    """Take what was found out about the fire before that of a schedule, or about one that is to be done in time."""
    if state.deadlines is not None and state.deadlines.answered(request, answer, state.now):
        return
    held = state.schedules.exactly(request.schedule, request.sequence)
    if held is None or held.flight is None:
        return
    if may_happen(held, Event.FINISH_ANSWERED):
        happen(state, held, Event.FINISH_ANSWERED, request, answer)
    else:
        blocking.answered_too_soon(held.flight, request)


def purge_concluded(state: EngineState, conclusion: PurgeConcluded) -> None:
    """Take the conclusion of a purge."""
    schedule, through = conclusion.schedule, conclusion.through
    if conclusion.failure is None:
        _purged(state, schedule, through)
        return
    purging.conclude(state, schedule, through)
    held = purging.purging(state, schedule, through)
    if conclusion.refused or conclusion.denied:
        state.purges.rolled_up(schedule, through)
    purging.report_failed(state, conclusion, held)
    if held is not None:
        happen(state, held, Event.NOT_PURGED, conclusion)


def schedules_purged(state: EngineState, purged: SchedulesPurged) -> None:
    """Take it that schedules were purged."""
    for schedule, through in zip(purged.schedules, purged.throughs, strict=True):
        _purged(state, schedule, through)


def _purged(state: EngineState, schedule: str, through: int) -> None:
    """Take it that a subject was purged up to a sequence: a schedule, or a target that is rolled up."""
    purging.conclude(state, schedule, through)
    state.purges.rolled_up(schedule, through)
    if (held := purging.purging(state, schedule, through)) is not None:
        happen(state, held, Event.PURGED)
