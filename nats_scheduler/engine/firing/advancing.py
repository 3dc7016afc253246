"""Bring a schedule from a stored or dropped fire to its next one, or to its end.

The rules:

- A schedule advances once its fire is stored, or dropped by a policy: to its next fire, or to its purge.
- What it missed is reported then, with the fire that stands for it.
- One that fires again soon keeps its content in memory, if the guard protects it.
"""

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import Ending, FiresMissed
from nats_scheduler.engine.firing import fetching, purging, sending, timing
from nats_scheduler.engine.firing.purging import LEFT_TO_OWNER_NS
from nats_scheduler.engine.firing.silence import clock_skipped
from nats_scheduler.engine.firing.silence import dropped as note_dropped
from nats_scheduler.engine.holding.contents import size_of
from nats_scheduler.engine.holding.flight import DONE, Stage
from nats_scheduler.engine.holding.held import Held, NoFire, flight_of
from nats_scheduler.engine.holding.in_flight import BURST_IN_FLIGHT
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.message.policies import MAKE_UP_ONCE
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.patterns import PatternKind

CONTENT_KEPT_NS = 10 * SECOND
"""A schedule that fires again within this time keeps its content in memory, if the guard protects it."""


def advance(
    state: EngineState, held: Held, next_fire: int | None, ending: Ending = Ending.FIRED, *, is_last: bool = False
) -> None:
    """Go on after a stored fire: to the next one, or to the purge of a schedule that is done.

    `is_last` if the stored fire says that it is: an edit of a calendar does not change that any more.
    """
    flight = held.flight
    if flight is not None and flight.missed_since is not None:
        _report_missed(state, held, flight.missed_since, held.fire_time)
    if held.replaced_at is not None and held.is_settled_at(next_fire):
        state.end(held, Ending.REPLACED)
    elif next_fire is None:
        if not is_last and _may_be_left(held):
            held.no_fire = NoFire.EXCEPTED
            state.enter(held, Stage.WAITING)
            timing.await_due(state, held)
        elif held.ends_by_itself:
            purging.purge(state, held, ending)
        else:
            state.end(held, Ending.EXHAUSTED)
    else:
        kept = None if flight is None else flight.content
        before, held.fire_time = held.fire_time, next_fire
        if held.kind is PatternKind.CRON:  # others follow no clock, and a fire takes few calls
            clock_skipped(state, held, before)
        if held.unfired_since is not None:
            held.unfired_since = None
        if kept is None or not keep_content(state, held, kept, before):
            state.enter(held, Stage.WAITING)
            timing.await_due(state, held)


def keep_content(state: EngineState, held: Held, content: StoredMessage, before: int) -> bool:
    """Keep the content of a fire for the next one, if that is soon and a guard protects it; return whether it is kept.

    The next fire is built at once, or in a burst in the middle of the time since the fire time `before` (ns).
    """
    pause = held.send_time - held.send_time_of(before)
    if pause > CONTENT_KEPT_NS or not held.may_fire or held.terms.source is not None or not state.ownership.is_owner:
        return False
    if not state.is_guarded(held):
        return False
    if held.flight is not None and held.flight.content_size:
        state.contents.use(held.flight, 0)
    if not state.contents.may_keep(content):
        return False
    state.enter(held, Stage.KEPT)
    flight = flight_of(held)
    flight.content = content
    state.contents.use(flight, size_of(content))
    if len(state.in_flight.fires) <= BURST_IN_FLIGHT:
        sending.make_ready(state, held, flight)
    else:
        state.schedules.wake(held, held.send_time - pause // 2)
    return True


def drop_due(state: EngineState, held: Held) -> None:
    """Go on after the fires that are due at `now` (ns): a policy drops all of them, and none is made up."""
    first = held.fire_time
    if held.flight is not None and held.flight.missed_since is not None:
        first, held.flight.missed_since = held.flight.missed_since, None
    held.fire_time = held.latest_to_send(state.now)
    if held.unreported is None:
        held.unreported = first
    if state.ownership.is_owner:
        _report_dropped(state, held, held.fire_time + 1)
    advance(state, held, held.next_fire(held.fire_time) if held.repeats else None, Ending.MISSED_ITS_TIME)
    if held.sequence in state.later:
        state.look_later(held, state.now + LEFT_TO_OWNER_NS)  # the owner reports it first


def pass_over(state: EngineState, held: Held, next_fire: int | None) -> None:
    """Go on after fires that were not sent: to the next one, or to the purge of a schedule that is done."""
    if next_fire is None and held.ends_by_itself and held.replaced_at is None:
        purging.purge(state, held, Ending.SKIPPED)
    else:
        advance(state, held, next_fire)


def join_late(state: EngineState, held: Held) -> bool:
    """Begin with a schedule that had to wait for a place: what came due meanwhile is not made up.

    It is read first: nobody noticed if it was removed while it waited.
    Returns False if none of its fires is to come.
    """
    if held.send_time <= state.now and held.may_fire:
        following = held.next_to_send(state.now) if held.repeats else None
        if following is None:
            purging.purge(state, held, Ending.MISSED_ITS_TIME)
            return False
        held.fire_time = following
    timing.await_due(state, held)
    fetching.fetch_if_waiting(state, held)
    return True


def took_over(state: EngineState, held: Held, settled_through: int) -> None:
    """Report what was dropped while standing by and the owner before has not settled."""
    if held.unreported is None:
        return
    if held.send_time_of(held.unreported) <= settled_through:
        held.unreported = None
    else:
        is_done = held.flight is not None and held.flight.stage in DONE
        _report_dropped(state, held, held.fire_time + is_done)


def _report_dropped(state: EngineState, held: Held, before: int) -> None:
    """Report that no fire before an instant (ns) is stored of those that were dropped and are not reported."""
    first, held.unreported = held.unreported, None
    assert first is not None, "something was dropped"
    dropped = held.dropped_between(first, before)
    held.dropped += dropped
    _report_missed(state, held, first, None, dropped)
    note_dropped(state, held, first, before - 1, dropped, f"X-Missed: {held.terms.policies.missed}")


def _report_missed(state: EngineState, held: Held, first: int, made_up: int | None, dropped: int = 0) -> None:
    """Report that fires from `first` (ns) on were not stored, and for a schedule with policies how many."""
    was_running = state.running_since is not None and first >= state.running_since
    missed = held.terms.policies.missed
    dropped = dropped if made_up is None else held.dropped_between(first, made_up)
    policy = "" if missed == MAKE_UP_ONCE else f"X-Missed: {missed}"
    event = FiresMissed(held.subject, held.sequence, first, made_up, was_running, dropped, policy)
    state.emit(Report(event))


def _may_be_left(held: Held) -> bool:
    """Return whether an edit of a calendar may leave a later fire of a schedule of which its calendars leave none."""
    if not held.calendars or not held.repeats:
        return False
    return held.next_possible(held.fire_time) is not None
