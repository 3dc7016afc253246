"""A survey of what an engine holds: the few schedules by which all of them can be judged.

The rule: a million schedules are not listed to find out what is wrong with them. Those are listed that answer a
question, and of those that are wrong in the same way the first `MAX_OF_A_KIND`, with the number of all.

Rows are looked at in portions, of which SQLite finds the oldest, also for each target and time zone, and those that are
wrong (`engine.views.rows`).
Cost: about a microsecond for each row, and more while it has a target that is not known yet.
Limit: of more than `MAX_TARGETS` targets or time zones the others are not listed.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.table import text_of
from nats_scheduler.engine.views.conditions import Condition, covered
from nats_scheduler.engine.views.outlook import Outlook, State, is_searched
from nats_scheduler.engine.views.rows import Portion, Rows
from nats_scheduler.engine.views.seen import JUDGED, SEARCHED, Question, Seen, Work, taken
from nats_scheduler.engine.views.view import EXPIRES, SHOWN_AS_FAILING, EngineView, ListedSchedule
from nats_scheduler.message.rejection import Failing
from nats_scheduler.message.subjects import is_covered

MAX_OF_A_KIND = 10
"""Schedules of one state that are listed."""

MAX_TARGETS = 256
"""Targets of which a schedule is listed, and as many time zones."""

MAX_GROUPS = 2 * MAX_TARGETS
"""Groups that SQLite returns of one portion: if there are more, not all are listed anyway."""

ROWS_AT_ONCE = 8_192
"""Rows of one portion: SQLite sorts them by their targets."""

MAX_FAILING = 10_000
"""Schedules that fail as other instances know, and that are looked for."""

COUNTED = frozenset({State.EXPIRING, State.FAILING, State.NO_CALENDAR})
"""The states in which something is wrong."""

Failings = Mapping[int, Failing]
"""Why the fires of schedules fail, by sequence."""

NONE_FAILING: Failings = {}


@dataclass(frozen=True, slots=True)
class Survey:
    """The findings of a survey."""

    schedules: Sequence[ListedSchedule]
    """The oldest one; one for each target and time zone; one for each filter; the first ones that are wrong."""
    counts: Mapping[State, int]
    """The number of schedules in each state that is wrong, those that are not listed too."""
    names_all_targets: bool


def survey(view: EngineView, now: int, filters: Sequence[str], failing: Failings) -> Question[Survey]:
    """Survey what is held at `now` (ns); the first schedule that each of the `filters` covers is listed.

    `failing` is what is known of the schedules that other instances fire.
    """
    surveyor = _Surveyor(view, now, tuple(dict.fromkeys(filters)), failing)
    return Question([view.part(surveyor.run)], lambda parts: parts[0])


One = Held | int
"""A schedule that is listed: one that has an object or is due, or the id of a row that only waits."""


class _Surveyor:
    """Keeps what is listed, by the question that it answers."""

    def __init__(self, view: EngineView, now: int, filters: Sequence[str], failing: Failings) -> None:
        self._view = view
        self._now = now
        self._filters = filters
        self._failing = failing
        self._numbers = json.dumps(list(failing)[:MAX_FAILING])
        self._oldest: tuple[int, One] | None = None
        self._by_target: dict[str, One] = {}
        self._by_zone: dict[str | None, One] = {}
        self._by_filter: dict[str, One] = {}
        self._wrong: list[One] = []
        self._counts = dict.fromkeys(COUNTED, 0)
        self._names_all_targets = True

    def run(self, seen: Seen) -> Work[Survey]:
        """Look at all, and return what is listed."""
        yield from seen.each(self._now, Condition(), self._take)
        waiting = self._view.waiting(self._now)
        for portion in seen.rows.all(waiting, ROWS_AT_ONCE):
            yield from self._take_rows(seen.rows, portion, waiting)
        return (yield from self._survey(seen.rows))

    # -- what has an object, and what is due ---------------------------------------------------------------------

    def _outlook(self, held: Held) -> Outlook:
        outlook = self._view.outlook(held, self._now)
        if held.sequence in self._failing and outlook.state in SHOWN_AS_FAILING:
            return Outlook(outlook.next_fire, State.FAILING)
        return outlook

    def _take(self, held: Held) -> int:
        self._note_oldest(held.sequence, held)
        self._note_target(held.terms.target, held)
        self._note_zone(held.pattern.time_zone, held)
        for wanted in self._filters if len(self._by_filter) < len(self._filters) else ():
            if wanted not in self._by_filter and is_covered(held.subject, (wanted,)):
                self._by_filter[wanted] = held
        if (state := self._outlook(held).state) in COUNTED:
            self._note_wrong(state, [held], 1)
        return SEARCHED if is_searched(held, self._now) else 2 * JUDGED

    # -- rows that only wait -------------------------------------------------------------------------------------

    def _take_rows(self, rows: Rows, portion: Portion, waiting: Condition) -> Work[None]:
        """Look at the rows of a portion."""
        what = f"min(sequence), id, count(*) FILTER (WHERE {EXPIRES})"
        ((sequence, number, expiring),) = rows.select(what, portion, waiting)
        if sequence is None:
            return
        self._note_oldest(sequence, number)
        if expiring:
            first = f"LIMIT {self._room_for(State.EXPIRING)}"
            found = [one for (one,) in rows.select("id", portion, waiting.both(Condition(EXPIRES)), first)]
            self._note_wrong(State.EXPIRING, found, expiring)
        yield
        if self._failing:
            named = "sequence IN (SELECT value FROM json_each(:failing))"
            is_failing = Condition(f"{named} AND NOT {EXPIRES}", {"failing": self._numbers})
            found = [one for (one,) in rows.select("id", portion, waiting.both(is_failing))]
            self._note_wrong(State.FAILING, found, len(found))
            yield
        yield from self._take_groups(rows, portion, waiting)
        for wanted in self._filters:
            if wanted not in self._by_filter:
                of_filter = waiting.both(covered("subject", wanted))
                for (number,) in rows.select("id", portion, of_filter, "LIMIT 1"):
                    self._by_filter[wanted] = number
                yield

    def _take_groups(self, rows: Rows, portion: Portion, waiting: Condition) -> Work[None]:
        """Find a row for each target and time zone."""
        if self._names_all_targets:
            new, group = waiting.both(_not_among("target", self._by_target)), f"GROUP BY target LIMIT {MAX_GROUPS}"
            for target, number, _ in rows.select("target, id, min(sequence)", portion, new, group):
                self._note_target(target, number)
            yield
        if len(self._by_zone) < MAX_TARGETS:
            new, group = waiting.both(_not_among("zone", self._by_zone)), f"GROUP BY zone LIMIT {MAX_GROUPS}"
            for zone, number, _ in rows.select("zone, id, min(sequence)", portion, new, group):
                self._note_zone(zone, number)
            yield

    # -- what is listed ------------------------------------------------------------------------------------------

    def _note_oldest(self, sequence: int, one: One) -> None:
        if self._oldest is None or sequence < self._oldest[0]:
            self._oldest = sequence, one

    def _note_target(self, target: str, one: One) -> None:
        if target not in self._by_target:
            if len(self._by_target) < MAX_TARGETS:
                self._by_target[target] = one
            else:
                self._names_all_targets = False

    def _note_zone(self, zone: str | None, one: One) -> None:
        if len(self._by_zone) < MAX_TARGETS:
            self._by_zone.setdefault(zone, one)

    def _room_for(self, state: State) -> int:
        return max(MAX_OF_A_KIND - self._counts[state], 0)

    def _note_wrong(self, state: State, some: Sequence[One], number: int) -> None:
        self._wrong += some[: self._room_for(state)]
        self._counts[state] += number

    def _survey(self, rows: Rows) -> Work[Survey]:
        """Describe what was kept, by sequence, each schedule once."""
        kept = [*self._by_target.values(), *self._by_zone.values(), *self._by_filter.values(), *self._wrong]
        kept += [] if self._oldest is None else [self._oldest[1]]
        listed: dict[int, ListedSchedule] = {}

        def describe(held: Held) -> int:
            listed[held.sequence] = self._view.listed(held, self._outlook(held), self._failing.get(held.sequence))
            return JUDGED

        yield from taken([one for one in kept if not isinstance(one, int)], describe)
        for some in rows.held_with(list(dict.fromkeys(one for one in kept if isinstance(one, int)))):
            yield from taken(some, describe)
        schedules = sorted(listed.values(), key=lambda one: one.sequence)
        return Survey(schedules, self._counts, self._names_all_targets)


def _not_among(column: str, known: Collection[str | None]) -> Condition:
    """Return the condition that a column has another text than those that are known; None is NULL."""
    texts = {f"{column}_{number}": text_of(text) for number, text in enumerate(filter(None, known))}
    others = f"{column} NOT IN ({', '.join(f'CAST(:{name} AS TEXT)' for name in texts)})"
    return Condition(f"{column} IS NOT NULL AND {others}" if None in known else f"ifnull({others}, 1)", texts)
