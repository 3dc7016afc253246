"""Purge the messages of schedules that are done, and of versions that were replaced.

The rules:

- *Purge last*: a schedule that is done stays held, and fires nothing, until the server has purged it.
- The owner of the stream purges. A standby holds a schedule that is done until the owner's request is received on the
  API, so that memory follows what the stream holds; if none is received, it is purged here after a while, since to
  purge twice is harmless.
- A roll-up that the fire itself cannot do (`StreamRules.rolls_up_by_purge`) is a purge of the target below the fire.
  The schedule is purged after it: until then a restart finds the fire and its schedule, and does it again. A standby
  keeps them until the owner's request is received, or until it is the owner itself.
- A schedule is purged as soon as its last fire is acknowledged: a worker that receives the fire may store the next
  schedule on the same subject. So the fire itself names that purge (`Fire.purge_through`), and the port begins it.
- Purges wait while a burst lasts: fires go first, because the server purges more slowly than it stores.
"""

from nats_scheduler.engine.actions import PurgeSchedule, Report
from nats_scheduler.engine.events import Ending, PurgeFailed
from nats_scheduler.engine.holding.flight import DONE, REFUSED_BACK_OFF_LIMIT_NS, Stage
from nats_scheduler.engine.holding.held import Held, flight_of
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import PurgeConcluded, Version
from nats_scheduler.message.subjects import subject_matches
from nats_scheduler.schedule.instants import SECOND

LEFT_TO_OWNER_NS = 30 * SECOND
"""A schedule that is left to the owner and has been due for this time (ns) is taken for gone, and is fetched; one that
has been done for this time is purged."""

OWED_LOOK_INTERVAL_NS = 1 * SECOND
"""The interval (ns) at which a schedule that is done looks whether a version below it still owes a fire."""

MAX_PURGES_PER_STEP = 256
"""The most purges that are ordered in one step, so that what is due does not have to wait."""


def version_of(held: Held) -> Version:
    """Return the message of a schedule."""
    return Version(held.sequence, held.stored_at)


# -- a schedule that is done -----------------------------------------------------------------------------------------


def purge(state: EngineState, held: Held, ending: Ending = Ending.FIRED) -> None:
    """Purge a schedule that is done if the stream is ours, or else wait until its owner does.

    One that was replaced is purged by what replaced it.
    """
    if held.replaced_at is not None:
        state.end(held, Ending.REPLACED)
    elif state.ownership.is_owner:
        purge_here(state, held, ending)
    else:
        _leave_to_owner(state, held, ending)


def _leave_to_owner(state: EngineState, held: Held, ending: Ending) -> None:
    """Keep a schedule that is done until its owner has requested its purge."""
    state.enter(held, Stage.DONE_BY_OWNER)
    flight_of(held).ending = ending
    if state.purges.take_request(held.subject, held.sequence, state.now):
        end_purged_by_owner(state, held)
    else:
        since = state.now or held.send_time  # rows are begun with before the first step
        state.look_later(held, since + LEFT_TO_OWNER_NS)


def purge_here(state: EngineState, held: Held, ending: Ending) -> None:
    """Purge a schedule that is done, whichever instance owns the stream."""
    state.enter(held, Stage.PURGING)
    state.schedules.cancel_wake(held)
    flight_of(held).ending = ending
    purge_subject(state, held)


def purge_subject(state: EngineState, held: Held) -> None:
    """Have a schedule purged, and with it what was stored over it before it was done, as the server does.

    What is still owed of versions below it comes first: they would be purged with it.
    """
    if state.schedules.owed_on(held.subject):
        state.look_later(held, state.now + OWED_LOOK_INTERVAL_NS)
        return
    purges, through = state.purges, state.stored_over.last_on(held)
    if purges.under_way is not None and purges.under_way.purge_through == through:
        return
    request = PurgeSchedule(held.subject, through, None, version_of(held))
    roll_up = purges.roll_ups.get(held.terms.target) if held.terms.rollup else None
    if roll_up is None:
        purges.enqueue(request)
    else:
        roll_up.behind.append(request)
        purges.order_roll_up(held.terms.target, roll_up)


def end_purged_by_owner(state: EngineState, held: Held) -> None:
    """End a schedule that is done, and whose purge the owner has requested."""
    through = state.stored_over.last_on(held)
    state.purges.requested_by_owner.append((held.subject, through, version_of(held)))
    state.end(held, flight_of(held).ending)


# -- the cells of the table (`engine.firing.machine`) ----------------------------------------------------------------


def woken_purging(state: EngineState, held: Held) -> None:
    """Purge a schedule again, of which that failed."""
    purge_subject(state, held)


def woken_done_by_owner(state: EngineState, held: Held) -> None:
    """Purge a schedule that the owner did not purge, or whose request was not received."""
    purge_here(state, held, flight_of(held).ending)


def purged(state: EngineState, held: Held) -> None:
    """End a schedule that was purged."""
    if not state.limits.guard:  # such a server, 2.10, undoes its last purges if it is killed
        state.purges.keep_purged(held.subject, held.sequence, held.stored_at, state.now)
    state.end(held, flight_of(held).ending)


def not_purged(state: EngineState, held: Held, conclusion: PurgeConcluded) -> None:
    """Purge a schedule again later, or keep it for good if the server never does it."""
    if conclusion.denied:
        state.ownership.deny(conclusion.failure or "", state.now)
    if conclusion.refused:
        state.enter(held, Stage.UNPURGEABLE)
        state.schedules.cancel_wake(held)  # another request to purge it may have failed before
        state.look_later(held, None)
    else:
        state.look_later(held, state.now + flight_of(held).back_off(REFUSED_BACK_OFF_LIMIT_NS))


# -- conclusions -----------------------------------------------------------------------------------------------------


def purging(state: EngineState, schedule: str, through: int) -> Held | None:
    """Return the schedule whose purge up to a sequence was concluded, None if it is not held any more."""
    held = state.schedules.on(schedule)
    if held is None or held.flight is None or held.flight.stage is not Stage.PURGING:
        return None
    return held if state.stored_over.last_on(held) == through else None


def conclude(state: EngineState, schedule: str, through: int) -> None:
    """Note that a purge is concluded."""
    state.purges.outstanding -= 1
    state.purges.ordered.pop((schedule, through), None)


def report_failed(state: EngineState, conclusion: PurgeConcluded, held: Held | None) -> None:
    """Report a purge that failed, of a schedule that is purging, or of versions that are not held."""
    schedule, through, failure = conclusion.schedule, conclusion.through, conclusion.failure or ""
    state.emit(Report(PurgeFailed(schedule, through, failure, conclusion.refused)))
    if held is None and not conclusion.refused:
        state.purges.keep_old_versions(conclusion, state.now)


def release(state: EngineState) -> bool:
    """Order the purges that wait, unless a burst lasts; returns whether there are more."""
    purges = state.purges
    if state.in_flight.is_burst(len(purges.queue), state.now):
        return False
    if purges.old_versions and state.progress.is_open and state.now >= purges.old_versions_retry_at:
        purges.retry_old_versions()
    for _ in range(min(MAX_PURGES_PER_STEP, len(purges.queue))):
        state.emit(purges.queue.popleft())
    return bool(purges.queue)


# -- roll-ups --------------------------------------------------------------------------------------------------------


def roll_up(state: EngineState, target: str, through: int) -> None:
    """Have a target purged up to a sequence, since a fire is stored behind that."""
    state.purges.roll_up(target, through, at_once=state.ownership.is_owner)


def take_over(state: EngineState) -> None:
    """Roll up what the owner before may not have rolled up."""
    state.purges.forget_joint()
    for target, one in state.purges.roll_ups.items():
        state.purges.order_roll_up(target, one)


# -- the purges of the owner, as a standby receives them ---------------------------------------------------------------


def requested_on(state: EngineState, subject: str, below: int | None) -> None:
    """Note a request to purge a subject below this sequence, or all of it."""
    known = state.purges.roll_ups.get(subject)
    if known is not None and not known.is_ordered and (below is None or known.through < below):
        state.purges.rolled_up(subject, known.through)
    requested_of(state, state.schedules.on(subject), below)


def requested_of(state: EngineState, held: Held | None, below: int | None) -> None:
    """End a schedule that is done, when the owner requests to purge what is below this sequence.

    The request may be received before the fire that it follows.
    """
    if held is None or state.ownership.is_owner or not (below is None or held.sequence < below):
        return
    if held.flight is not None and held.flight.stage in DONE:
        end_purged_by_owner(state, held)
    elif state.now >= held.send_time - SECOND:
        state.purges.note_early(held.sequence)


def requested_jointly(state: EngineState, wanted: str, below: int) -> None:
    """End the schedules that are done, when the owner purges all that a filter matches below this sequence.

    What it matches is done, or will be as soon as its fire is confirmed: the owner purges jointly nothing else.
    """
    if state.ownership.is_owner:
        return
    state.purges.note_joint(wanted, below, state.now)
    for held in list(state.later.values()):
        is_done = held.flight is not None and held.flight.stage is Stage.DONE_BY_OWNER and held.sequence < below
        if is_done and subject_matches(held.subject, wanted):
            end_purged_by_owner(state, held)
