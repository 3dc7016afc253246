"""Notice a schedule that stores no fires although it was to, as its pattern shows, or of which a policy drops all.

Or a change of the clock skips a fire time, which is reported when the fire time behind it becomes the next one: about a
period before, so that there is time to act, and once, since that happens once.

The rules:

- A schedule is *silent* if it repeats and the fire that is due has not been stored for three of its periods, and for
  five minutes at least; or if it waits for a later fire time than its pattern has next (`message.silence`).
- It is *only dropped* if a policy dropped what was due at least `MIN_DROPS` times in a row, from the first fire to the
  last over `DROPPED_FOR_NS` at least. What came due during an outage is dropped at once, and counts as one time.
- Either is reported again after a day, for as long as it lasts.
- A schedule that is paused, that waits for a calendar, or that its stream ends before, is neither: it is not to fire.

Whether schedules are silent is asked from time to time (`engine.views.silent`); only what is dropped is counted as it
happens. Cost: nothing for a fire that is stored, but a look-up of the offset for one with a time zone; to judge a
schedule that waits, one search for a fire time.
Limit: counting begins anew with the process, and with each takeover.
"""

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import ClockChangeSkipped, ScheduleOnlyDropped, ScheduleSilent
from nats_scheduler.engine.holding.flight import DONE, Flight, Stage
from nats_scheduler.engine.holding.held import DroppedRun, Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.message.silence import Silence, first_skipped, is_silent
from nats_scheduler.schedule.clock_changes import disturbs, skipped_between
from nats_scheduler.schedule.instants import DAY, HOUR
from nats_scheduler.schedule.rfc3339 import format_rfc3339

MIN_DROPS = 3
"""The least number of times in a row that a policy drops what is due."""

DROPPED_FOR_NS = HOUR
"""The shortest time (ns) from the first of these fires to the last."""

REPEATED_AFTER_NS = DAY
"""The time (ns) after which a silence that lasts is reported again."""


def silence_of(held: Held, now: int, ends: int, able_since: int) -> ScheduleSilent | None:
    """Return that a schedule is silent at `now` (ns), and why, or None; its stream ends it at `ends` (ns).

    What came due before this instance was able to fire it counts from then on (`able_since`, ns).
    """
    if not held.repeats or held.no_fire is not None or ends <= held.send_time:
        return None
    flight, waits_for = held.flight, held.fire_time
    if flight is not None and flight.stage in DONE:
        return None
    first = waits_for if flight is None or flight.missed_since is None else flight.missed_since
    due = held.send_time_of(first)
    if due > now:
        skipped = first_skipped(held, waits_for, now)
        if skipped is None or not held.may_fire:
            return None
        reason = f"it waits for its fire of {format_rfc3339(waits_for)}, as after a clock that was wrong"
        return ScheduleSilent(held.subject, held.sequence, skipped, Silence.CLOCK, reason)
    following = held.next_fire(first) if held.may_fire else None
    since = max(due, able_since, held.previous_stored_at)  # a backlog that is sent one by one is no silence
    if following is None or not is_silent(now - since, following - first):
        return None
    return ScheduleSilent(held.subject, held.sequence, first, *_cause(flight))


def _cause(flight: Flight | None) -> tuple[Silence, str]:
    """Return why a fire that is due is not stored, by what is in progress for it."""
    if flight is not None and flight.failing is not None:
        reason = f"its fires are refused: {flight.failing.description} ({flight.failing.code})"
        return Silence.REFUSED, reason
    if flight is not None and flight.is_blocked:
        return Silence.OVERLAP, "the fire before it is unfinished"
    if flight is not None and flight.stage is Stage.BACKING_OFF:
        return Silence.UNANSWERED, "no answer says that its fire is stored"
    stage = "waiting" if flight is None else flight.stage.value
    return Silence.UNKNOWN, f"its fire is due, and nothing says why it is not stored; it is {stage}"


def dropped(state: EngineState, held: Held, first: int, last: int, count: int, policy: str) -> None:
    """Report a schedule if a policy drops all its fires; it has just dropped `count`, from `first` to `last` (ns)."""
    run = held.dropped_run or DroppedRun(first)
    held.dropped_run = run
    run.times, run.fires = run.times + 1, run.fires + count
    is_told = run.reported_at and last - run.reported_at < REPEATED_AFTER_NS
    if not is_told and run.times >= MIN_DROPS and last - run.first >= DROPPED_FOR_NS:
        run.reported_at = last
        state.emit(Report(ScheduleOnlyDropped(held.subject, held.sequence, run.first, run.fires, policy)))


def clock_skipped(state: EngineState, held: Held, before: int) -> None:
    """Report the fire times that changes of the clock skip between an instant (ns) and the next fire of a schedule.

    Nothing is reported by what does not fire, nor while the stream is read: that was said when it was new.
    """
    zone = held.pattern.time_zone
    if zone is None or not (state.ownership.is_owner and state.progress.is_live):
        return
    for skipped in skipped_between(held.pattern, before, held.fire_time):
        if disturbs(held.pattern, skipped):
            state.emit(Report(ClockChangeSkipped(held.subject, held.sequence, zone, skipped, held.fire_time)))
