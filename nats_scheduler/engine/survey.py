"""A survey of what an engine holds: the few schedules by which all of them can be judged, found in one visit.

The rule: a million schedules are not listed to find out what is wrong with them. Those are listed that answer a
question, and of those that are wrong in the same way the first `MAX_OF_A_KIND`, with the number of all.

Cost: about two microseconds for each schedule that is held, in slices (`engine.sliced`).
Limit: of more than `MAX_TARGETS` targets or time zones the others are not listed.
"""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass

from nats_scheduler.engine.held import Held
from nats_scheduler.engine.outlook import Outlook, State
from nats_scheduler.engine.sliced import Sliced
from nats_scheduler.engine.view import DESCRIBED_PER_UNIT, EngineView, Failings, ListedSchedule
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.schedule.patterns import time_zone_of

MAX_OF_A_KIND = 10
"""Schedules of one state that are listed."""

MAX_TARGETS = 256
"""Targets of which a schedule is listed, and as many time zones."""

SURVEYED_PER_UNIT = 32
"""Schedules that are judged in one unit of work."""

Visited = tuple[Held, Outlook]

COUNTED = frozenset({State.EXPIRING, State.FAILING, State.NO_CALENDAR})
"""The states in which something is wrong."""


@dataclass(frozen=True, slots=True)
class Survey:
    """What was found."""

    schedules: Sequence[ListedSchedule]
    """The oldest one; one for each target and time zone; one for each filter; the first ones that are wrong."""
    counts: Mapping[State, int]
    """How many are in each state that is wrong, those that are not listed too."""
    names_all_targets: bool


def survey(view: EngineView, now: int, filters: Sequence[str], failing: Failings) -> Sliced[Survey]:
    """Survey what is held at `now` (ns); the first schedule that each of the `filters` covers is listed.

    `failing` is what is known of the schedules that other instances fire.
    """
    return Sliced(_survey(view, now, filters, failing))


class _Surveyor:
    """Keeps what is listed, by the question that it answers."""

    def __init__(self, filters: Sequence[str]) -> None:
        self._filters = filters
        self._oldest: Visited | None = None
        self._by_target: dict[str, Visited] = {}
        self._by_zone: dict[str | None, Visited] = {}
        self._by_filter: dict[str, Visited] = {}
        self._wrong: list[Visited] = []
        self.counts = dict.fromkeys(COUNTED, 0)
        self.names_all_targets = True

    def take(self, one: Visited) -> None:
        """Keep a schedule if it answers a question."""
        held, outlook = one
        if self._oldest is None or held.sequence < self._oldest[0].sequence:
            self._oldest = one
        if held.terms.target not in self._by_target:
            if len(self._by_target) < MAX_TARGETS:
                self._by_target[held.terms.target] = one
            else:
                self.names_all_targets = False
        if len(self._by_zone) < MAX_TARGETS:
            self._by_zone.setdefault(time_zone_of(held.pattern), one)
        if outlook.state in COUNTED:
            self.counts[outlook.state] += 1
            if self.counts[outlook.state] <= MAX_OF_A_KIND:
                self._wrong.append(one)
        if len(self._by_filter) < len(self._filters):
            self._match(one)

    def _match(self, one: Visited) -> None:
        for wanted in self._filters:
            if wanted not in self._by_filter and is_covered(one[0].subject, (wanted,)):
                self._by_filter[wanted] = one

    def listed(self) -> list[Visited]:
        """Return what was kept, by sequence, each schedule once."""
        kept = [*self._by_target.values(), *self._by_zone.values(), *self._by_filter.values(), *self._wrong]
        kept += [] if self._oldest is None else [self._oldest]
        return sorted({one[0].sequence: one for one in kept}.values(), key=lambda one: one[0].sequence)


def _survey(view: EngineView, now: int, filters: Sequence[str], failing: Failings) -> Generator[None, None, Survey]:
    surveyor, number = _Surveyor(tuple(dict.fromkeys(filters))), 0
    for one in view.each(now, failing):
        if one is not None:
            surveyor.take(one)
            number += 1
        if one is None or number % SURVEYED_PER_UNIT == 0:
            yield
    listed: list[ListedSchedule] = []
    for number, (held, outlook) in enumerate(surveyor.listed()):
        if number % DESCRIBED_PER_UNIT == 0:
            yield
        described = view.described(held, outlook, failing)
        listed += [] if described is None else [described]
    return Survey(listed, surveyor.counts, surveyor.names_all_targets)
