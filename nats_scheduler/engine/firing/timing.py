"""When a schedule is looked at next: in time for its fire, with what is due near it, and later by a standby.

The rules:

- The owner fetches a schedule some time before its fire, so that at its time only bytes are sent. What no guard
  protects is fetched shortly before, and a source is read at the due time: it is a sample.
- A standby leaves all to the owner. Each schedule has the same wake there, and is looked at `Ownership.lag` later, so
  that a takeover needs no visit of all.
- Checkpoints rely on it that no schedule is woken after its send time (`Takeover.checkpoint`).

An owner may be alive and unable to fire, which shows only in what it does not store. A removal leaves nothing in the
stream either, so a schedule is fetched before the owner is said not to have fired it:

- A while after its due time, one schedule at a time is fetched; if it is still stored, the owner has not fired it.
- If it was due long ago nothing is noted: its fires may be gone, and the owner knows better.
- Where the fires of the owner cannot be confirmed, it is not judged by them: on streams that do not keep their
  messages, and by schedules whose targets are in other streams.

Cost: an addition for each schedule that begins to wait; one fetch while a schedule seems to be unfired.
"""

from collections.abc import Sequence

from nats_scheduler.engine.firing.purging import LEFT_TO_OWNER_NS
from nats_scheduler.engine.holding.flight import Stage
from nats_scheduler.engine.holding.held import NO_EXPIRY, Held
from nats_scheduler.engine.holding.ownership import UNFIRED_LIMIT_NS
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.engine.inputs import UNGUARDED_LOOK_AHEAD_NS
from nats_scheduler.message.policies import DEFAULT_GRACE_NS
from nats_scheduler.schedule.instants import SECOND

MIN_GROUPS_AHEAD = 4
"""A group is no longer than the look-ahead, divided by this."""

MIN_WAIT_AHEAD_NS = SECOND // 2
"""What is fetched this time (ns) or more before its fire may wait for others that are fetched with it."""

LEFT_WITH_OTHER_TARGET_NS = 10 * LEFT_TO_OWNER_NS
"""The same as `LEFT_TO_OWNER_NS` for repeating schedules whose fires are in other streams.

They are not confirmed, so a standby does not know the next fire of any of them until it is to fire it.
"""

BLOCKED_LOOK_INTERVAL_NS = 300 * SECOND
"""The interval (ns) at which a standby fetches a due schedule whose fires the owner may block or skip."""


# -- the owner ---------------------------------------------------------------------------------------------------------


def await_due(state: EngineState, held: Held, since: int = 0) -> None:
    """Have a schedule fetched in time for its due fire, or ended when its TTL runs out if that comes first.

    `since` (ns) if it was fetched just now, and outlived the age that its stream allows.
    """
    if held.no_fire is not None:
        wake = min(held.over_at, held.expires)  # an edit of a calendar has it looked at before
    else:
        send_time, expires = held.send_time if held.jitters else held.fire_time, held.expires
        wake = expires if expires <= send_time else _fetch_at(state, send_time, ahead_of(state, held))
    if state.lifetimes.max_age:
        wake = min(wake, state.lifetimes.age_check_at(held, since))
    if wake < NO_EXPIRY:
        state.schedules.wake(held, wake)
    else:
        state.schedules.cancel_wake(held)


def ahead_of(state: EngineState, held: Held) -> int:
    """Return how long (ns) before its fire a schedule is fetched: a sample is taken at its due time."""
    if held.terms.source is not None:
        return 0
    longest = state.longest_ahead
    is_close = held.is_to_other_stream or state.stored_over.is_over(held)
    return min(longest, UNGUARDED_LOOK_AHEAD_NS) if is_close else longest


def first_fetch_at(state: EngineState, fire_time: int, source: str | None) -> int:
    """Return when (ns) a new schedule without policies is fetched for its first fire, if that is far."""
    if source is not None and state.ownership.is_owner:
        return fire_time
    return first_fetches(state, [fire_time])[0]


def first_fetches(state: EngineState, fire_times: Sequence[int]) -> list[int]:
    """Return the same for each of many without a source: as `_fetch_at` of times beyond the look-ahead."""
    ahead = state.longest_ahead
    group = min(state.limits.read_group, ahead // MIN_GROUPS_AHEAD) or 1
    most = ahead - MIN_WAIT_AHEAD_NS  # that a fetch may wait for others
    return [at - ahead + (later if (later := (ahead - at) % group) <= most else 0) for at in fire_times]


def _fetch_at(state: EngineState, send_time: int, ahead: int) -> int:
    """Return when (ns) to fetch for a fire at `send_time` (ns): `ahead` before it, with what is due near it."""
    if not state.ownership.is_owner:
        return first_fetch_at(state, send_time, None)  # the lag of a standby is counted from the longest look-ahead
    group = min(state.limits.read_group, ahead // MIN_GROUPS_AHEAD)
    instant = max(send_time - ahead, state.now)
    together = instant + -instant % group if group else instant
    return together if send_time - together >= MIN_WAIT_AHEAD_NS else send_time - ahead


# -- a standby ---------------------------------------------------------------------------------------------------------


def leave(state: EngineState, held: Held) -> None:
    """Leave a schedule to another owner: what is in flight is concluded here, and not repeated."""
    flight = held.flight
    if flight is None or flight.stage in (Stage.READY, Stage.KEPT, Stage.BLOCKED, Stage.BACKING_OFF):
        state.enter(held, Stage.WAITING)
        await_due(state, held)


def leave_to_owner(state: EngineState, held: Held) -> None:
    """Leave a schedule to the owner, and look at it after a while."""
    state.enter(held, Stage.WAITING)
    wait = limit_of(held) if held.fires_each_time else BLOCKED_LOOK_INTERVAL_NS
    state.look_later(held, max(held.send_time, state.now) + wait)


def limit_of(held: Held) -> int:
    """Return how long (ns) after its due time a standby fetches a schedule, to notice that it is gone."""
    return LEFT_WITH_OTHER_TARGET_NS if held.is_to_other_stream and held.repeats else LEFT_TO_OWNER_NS


def due_since(state: EngineState, held: Held) -> int:
    """Return since when (ns) a fire may be confirmed here: the schedule is due and stored, and there is contact."""
    return max(held.send_time, held.stored_at, state.ownership.in_contact_since)


def wait_for_owner(state: EngineState, held: Held) -> bool:
    """Leave a due schedule to the owner for a while; returns False if it is to be fetched now."""
    ownership, due, now = state.ownership, due_since(state, held), state.now
    if not held.fires_each_time:
        state.look_later(held, due + LEFT_TO_OWNER_NS)
        return True
    is_settled = ownership.unfired or ownership.last_fired >= held.send_time
    if is_settled or held.is_to_other_stream or not ownership.reads_all:
        state.look_later(held, due + limit_of(held))
    elif now < due + UNFIRED_LIMIT_NS:
        state.look_later(held, due + UNFIRED_LIMIT_NS)
    elif _is_asking(state):
        state.look_later(held, now + UNFIRED_LIMIT_NS)
    else:
        ownership.asked_about = held
        return False
    return True


def note_unfired(state: EngineState, held: Held) -> None:
    """Note that a schedule is stored although its due time has passed: the owner has not fired it."""
    # What is due for longer may wait for its turn there (`engine.firing.catching_up`).
    since, until = due_since(state, held) + UNFIRED_LIMIT_NS, max(held.send_time, held.stored_at) + DEFAULT_GRACE_NS
    if state.ownership.reads_all and held.fires_each_time and since <= state.now < until:
        state.ownership.blame(held)


def look_soon(state: EngineState, held: Held) -> None:
    """Look soon again at a schedule that could not be fetched: the owner may not have fired it."""
    if state.now < due_since(state, held) + LEFT_TO_OWNER_NS:
        state.look_later(held, state.now + UNFIRED_LIMIT_NS)


def _is_asking(state: EngineState) -> bool:
    held = state.ownership.asked_about
    return held is not None and state.in_stage(held.subject, held.sequence, Stage.FETCHING) is held
