"""The schedules that are silent, as their patterns show (`engine.firing.silence`), found some thousand at a time.

The rules:

- Nothing is changed, and nothing is taken from what a step noted: each is judged by its pattern, its next fire and the
  time. So a schedule is found too that a mistake, or a clock that was wrong, has left behind.
- What has an object is judged each time. Rows are judged in the order of their wakes, `ROWS_AT_ONCE` for each question,
  which says where the next one goes on: so a round of a million is many questions, and none of them is long.
- A row is left out that fires once, or within the time that is no silence yet.

Cost: some 20 µs for each schedule that is judged, in the thread of views if the rows are in a file.
Limit: one question finds `MAX_FOUND`, the first ones.
"""

from collections.abc import Callable
from typing import NamedTuple

from nats_scheduler.engine.events import ScheduleSilent
from nats_scheduler.engine.firing.silence import silence_of
from nats_scheduler.engine.holding.held import NO_WAKE, Held
from nats_scheduler.engine.holding.schedule_rows import MAX_INSTANT
from nats_scheduler.engine.views.conditions import Condition
from nats_scheduler.engine.views.rows import MAX_ID
from nats_scheduler.engine.views.seen import JUDGED, LEFT_OUT, Question, Seen, Work, taken
from nats_scheduler.engine.views.view import EngineView
from nats_scheduler.message.silence import SILENT_AFTER_NS
from nats_scheduler.schedule.patterns import PatternKind

ROWS_AT_ONCE = 4_096
"""Rows that one question looks at, those too that it leaves out."""

MAX_FOUND = 100
"""Silent schedules that one question finds."""

Place = tuple[int, int]
"""The wake (ns) and the id of a row, behind which others are judged."""

BEGINNING: Place = NO_WAKE, MAX_ID
"""The place before all rows."""


class FoundSilent(NamedTuple):
    """The silent schedules among some, and where the next question goes on, None if nothing is left."""

    events: list[ScheduleSilent]
    following: Place | None


def silent(
    view: EngineView, now: int, able_since: int, after: Place, is_reported: Callable[[ScheduleSilent], bool]
) -> Question[FoundSilent]:
    """Find the silent schedules at `now` (ns) among those that have objects, and the next rows behind a place.

    What came due before `able_since` (ns) could not be fired by this instance. Those that are reported are left out, so
    that they hide no others; that may be asked in another thread.
    """
    limits = {"late": now - SILENT_AFTER_NS, "later": now + SILENT_AFTER_NS}
    suspected = Condition(f"kind <> '{PatternKind.AT.value}' AND (fire_time <= :late OR fire_time >= :later)", limits)

    def work(seen: Seen) -> Work[FoundSilent]:
        found: list[ScheduleSilent] = []

        def judge(held: Held) -> int:
            event = silence_of(held, now, view.lifetimes.ends(held), able_since) if len(found) < MAX_FOUND else None
            if event is not None and not is_reported(event):
                found.append(event)
            return 2 * JUDGED if held.repeats else LEFT_OUT

        yield from taken(seen.objects if after == BEGINNING else (), judge)
        for portion in seen.rows.by_wake(after[0], MAX_INSTANT, ROWS_AT_ONCE, after_id=after[1]):
            for some in seen.rows.held(portion, suspected):
                yield from taken(some, judge)
            if portion.wake is not None:
                return FoundSilent(found, (portion.wake, portion.last))
        return FoundSilent(found, None)

    return Question([view.part(work)], lambda parts: parts[0])
