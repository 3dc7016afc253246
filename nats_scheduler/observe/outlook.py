"""The next fires of a schedule as it is after a change, or would be: what its policies and changes of the clock leave.

A program that changes a schedule shows them without asking again, and before anything is stored.
Limit: days of calendars are not known here, and when a fire is sent that a jitter delays depends on the sequence that
the schedule gets, so a dry run does not say it.
"""

from collections.abc import Generator
from itertools import islice

from typing_extensions import TypedDict

from nats_scheduler.control.current import Current
from nats_scheduler.message.policies import policy_words
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.observe.documents import (
    MarkedFireDocument,
    Rows,
    SkippedDocument,
    Time,
    marked_fire_documents,
    skipped_documents,
)
from nats_scheduler.schedule.clock_changes import with_clock_changes
from nats_scheduler.schedule.explain import explain_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339

FIRES_AHEAD = 5
"""Fires that an answer names."""


class OutlookDocument(TypedDict):
    """When a schedule fires next."""

    words: str
    """In plain words, its policies included."""
    time_zone: str | None
    after: Time
    """The instant after which the fires lie, but for one of `@at` whose time has passed: that fires at once."""
    fires: Rows[MarkedFireDocument]
    skipped: Rows[SkippedDocument]
    """The local times that are skipped before the last of the fires."""
    ends: bool
    """True if nothing fires after those."""
    unknown_calendar: str | None
    """A calendar on whose days it does not fire either: they are not known to what answers."""


def outlook(found: Current, now: int) -> Generator[None, None, OutlookDocument | None]:
    """Find the next fires of a schedule from an instant (ns) on; None while it is paused, or if it is rejected."""
    definition = found.definition
    if definition is None or found.is_paused:
        return None
    is_stored = found.sequence > 0
    timetable = found.timetable() if is_stored else Timetable(definition.pattern, found.message.stored_at)
    pattern, fires = timetable.pattern, list[int]()
    after = max(now, timetable.stored_at)
    for fire in islice(timetable.each(after if timetable.repeats else None), FIRES_AHEAD + 1):
        fires.append(fire)
        yield
    entries = with_clock_changes(pattern, after, fires[:FIRES_AHEAD])
    words = "" if found.is_fired_by_server else policy_words(definition.terms.policies)
    return {
        "words": explain_pattern(pattern, timetable.stored_at) + words,
        "time_zone": pattern.time_zone,
        "after": format_rfc3339(after),
        "fires": marked_fire_documents(timetable, entries),
        "skipped": skipped_documents(entries),
        "ends": len(fires) <= FIRES_AHEAD,
        "unknown_calendar": pattern.unknown_calendar,
    }
