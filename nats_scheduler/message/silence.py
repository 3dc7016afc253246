"""How long a repeating schedule may store nothing until it is said to be silent, as its pattern shows.

The rule: what is judged are the fire times of the pattern, and not what was computed when they came; so what nobody
thought of shows too. The engine judges what it holds (`engine.firing.silence`), a finding what is listed.
"""

from enum import StrEnum

from nats_scheduler.message.timetable import Timetable, first_fire_of
from nats_scheduler.schedule.instants import MINUTE

SILENT_PERIODS = 3
"""A schedule that stores no fire for this number of its periods is silent."""

SILENT_AFTER_NS = 5 * MINUTE
"""The shortest silence (ns) that is reported: a failover or a full stream may last as long as many short periods."""

CLOCKS_APART_NS = 1 * MINUTE
"""What is skipped within this time (ns) is not noticed: the nodes of a cluster have clocks of their own."""


class Silence(StrEnum):
    """Why a schedule is silent."""

    REFUSED = "refused"
    """The server refuses its fires."""
    OVERLAP = "overlap"
    """The fire before is unfinished (`X-Overlap`)."""
    UNANSWERED = "unanswered"
    """No answer says that its fire is stored."""
    REPUBLISHED = "republished"
    """It is stored again and again with the same pattern, each time before it fires."""
    CLOCK = "clock"
    """It waits for a later fire time than its next one: a clock was wrong when it was stored, or when it fired."""
    UNKNOWN = "unknown"
    """Its fire is due, and nothing shows why it is not stored: probably a mistake of the sidecar."""


def is_silent(unstored_for: int, period: int) -> bool:
    """Return whether a schedule is silent whose fire was due this long (ns) ago, a period (ns) before the next one."""
    return unstored_for >= max(SILENT_PERIODS * period, SILENT_AFTER_NS)


def restarted_for(timetable: Timetable, unfired_since: int) -> int:
    """Return for how long (ns) a schedule is silent that was to fire at an instant (ns) before it was stored again.

    Less than 0 if it is not: fewer than three of its periods have passed until it was stored. No minimum is needed,
    because nothing but its publisher keeps it from firing.
    """
    first = timetable.first_fire() if timetable.stored_at > unfired_since else None
    following = None if first is None else timetable.next_fire(first)
    if first is None or following is None:
        return -1
    return timetable.stored_at - unfired_since - SILENT_PERIODS * (following - first)


def first_skipped(timetable: Timetable, waits_for: int, now: int) -> int | None:
    """Return the first fire time that a schedule skips at `now` (ns) which waits for another one; None if none.

    Nothing skips a fire time that is to come, so it waits for one that a wrong clock showed. A schedule that is stored
    in the future counts as stored now. What comes within `SILENT_AFTER_NS` is not said to be skipped.
    """
    if waits_for < now + SILENT_AFTER_NS:
        return None
    after = now + CLOCKS_APART_NS
    is_stored = timetable.stored_at <= after
    first = timetable.next_to_send(after) if is_stored else first_fire_of(timetable.pattern, after)
    return first if first is not None and waits_for - first >= SILENT_AFTER_NS else None
