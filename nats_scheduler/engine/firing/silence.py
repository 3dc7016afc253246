"""Notice a schedule that stores no fires although it was to: what is due is not stored, or a policy drops all of it.

Or a change of the clock skips a fire time, which is reported when the fire time behind it becomes the next one: about a
period before, so that there is time to act, and once, since that happens once.

The rules:

- A schedule is *silent* if it repeats and the fire that is due has not been stored for three of its periods, and for
  `SILENT_AFTER_NS` at least, because the server refuses it, its fire before is unfinished, or nothing answers.
- It is *only dropped* if a policy dropped what was due at least `MIN_DROPS` times in a row, from the first fire to the
  last over `DROPPED_FOR_NS` at least. What came due during an outage is dropped at once, and counts as one time.
- Either is reported again after `REPEATED_AFTER_NS`, for as long as it lasts.
- A schedule that is paused, or that waits for a calendar, is neither: its fires are not due.

Cost: nothing for a schedule that waits for its time, and a look-up of the offset for one with a time zone that
advances. One that is not stored is judged when it is tried again, so that nothing is searched.
Limit: counting begins anew with the process, and with each takeover.
"""

from nats_scheduler.engine.actions import Report
from nats_scheduler.engine.events import ClockChangeSkipped, ScheduleOnlyDropped, ScheduleSilent
from nats_scheduler.engine.holding.flight import Stage
from nats_scheduler.engine.holding.held import DroppedRun, Held
from nats_scheduler.engine.holding.state import EngineState
from nats_scheduler.schedule.clock_changes import disturbs, skipped_between
from nats_scheduler.schedule.instants import DAY, HOUR, MINUTE

SILENT_PERIODS = 3
"""A schedule that stores no fire for this number of its periods is silent."""

SILENT_AFTER_NS = 5 * MINUTE
"""The shortest silence (ns) that is reported: a failover or a full stream may last as long as many short periods."""

MIN_DROPS = 3
"""The least number of times in a row that a policy drops what is due."""

DROPPED_FOR_NS = HOUR
"""The shortest time (ns) from the first of these fires to the last."""

REPEATED_AFTER_NS = DAY
"""The time (ns) after which a silence that lasts is reported again."""

UNSTORED = (Stage.BACKING_OFF, Stage.BLOCKED)
"""The stages in which a fire that is due is not stored, until it is tried again."""


def is_silent(unstored_for: int, period: int) -> bool:
    """Return whether a schedule is silent whose fire was due this long (ns) ago, a period (ns) before the next one."""
    return unstored_for >= max(SILENT_PERIODS * period, SILENT_AFTER_NS)


def tried_again(state: EngineState, held: Held, now: int) -> None:
    """Report a schedule whose fire was not stored and is tried again at `now` (ns), if it is silent."""
    flight = held.flight
    if flight is None or flight.stage not in UNSTORED or not (held.repeats and state.ownership.is_owner):
        return
    first = held.fire_time if flight.missed_since is None else flight.missed_since
    following = held.next_fire(first) if now - first >= SILENT_AFTER_NS and held.may_fire else None
    if following is None or not is_silent(now - held.send_time_of(first), following - first):
        return
    if flight.silence_reported_at and now - flight.silence_reported_at < REPEATED_AFTER_NS:
        return
    flight.silence_reported_at = now
    reason = "no answer says that its fire is stored"
    if flight.failing is not None:
        reason = f"its fires are refused: {flight.failing.description} ({flight.failing.code})"
    elif flight.is_blocked:
        reason = "the fire before it is unfinished"
    state.emit(Report(ScheduleSilent(held.subject, held.sequence, first, reason)))


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
