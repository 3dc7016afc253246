"""A read-only view of what an engine holds: pages of schedules, counts, one schedule by its subject.

The rules:

- Nothing is changed, in the engine and in what it holds.
- A page is in the order of the next fires, soonest first, then by subject; schedules without a next fire come last.
- A cursor is the place in that order after which the next page begins. So a schedule that is held all the time and does
  not fire between two pages is on exactly one of them; one that fires meanwhile may be listed again, with its later
  fire.
- Pages and counts are work in slices (`engine.views.pages`), and the engine may step between two of them. Each
  schedule is judged once, at the instant that was given.

A page of many schedules is found by the index of their wakes, which are a little earlier than their fires, and is
there after some milliseconds; to count them, or to find those of a rare state, each is looked at, which takes some
microseconds, in units of less than a millisecond.

Two views of one stream can be one (`EngineView.joined`): what the sidecar fires there, and what the server itself
fires. A schedule is in exactly one of them. A message with both spellings of the headers is two schedules on one
subject, because both fire: a page lists both, and a question for its subject is answered by the first view, that of the
sidecar, which alone knows of flights, of failures and of misnamed headers.

Limits: what the server alone knows is not seen, such as a schedule that was removed a moment ago. A page is one longer
than its limit if the last two have the same place, so that a cursor loses neither; if an answer has no room for the
second of them, it is on no page.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import takewhile

from nats_scheduler.engine.events import Ending, HeadersMisnamed
from nats_scheduler.engine.holding.flight import Failing, Flight
from nats_scheduler.engine.holding.held import NO_EXPIRY, NO_WAKE, Held
from nats_scheduler.engine.holding.lifetimes import Lifetimes, PausedSchedule
from nats_scheduler.engine.holding.roster import MAX_INSTANT, Roster
from nats_scheduler.engine.holding.table import Outline, Selection, text_of
from nats_scheduler.engine.reading.inactive import Inactive, Rejected
from nats_scheduler.engine.views.figures import Outlook, State, Timeline, is_searched, outlook_of, waiting_outlook
from nats_scheduler.engine.views.pages import NO_FIRE, Cursor, Sliced, SubjectPage, by_subject
from nats_scheduler.message.ages import is_cut_off
from nats_scheduler.message.definition import Terms
from nats_scheduler.message.subjects import is_covered, is_literal_subject
from nats_scheduler.message.timetable import Timetable, stored_timetable
from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.calendars import KnownCalendars
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.native import at_offset, fire_after
from nats_scheduler.schedule.patterns import Pattern, PatternKind, kind_of

# Visit all schedules that an engine holds, a few at a time, while it goes on.
#
# The rules:
#
# - Each schedule that is held all the time is visited once. One that is added meanwhile may be missed, and one that
#   is removed before its turn is not visited.
# - A schedule that is visited is there to be looked at, until the next one is asked for. Of one that only waits that is
#   what its row says, and of one that has no object and is due a copy.
#
# Cost: a fraction of a microsecond for each schedule that has an object, about two for each other one, half a
# microsecond for one that is not selected.

SEARCHED_PER_UNIT = 16
"""Schedules whose next fire is searched in one unit of work, tens of microseconds each."""


def visit(roster: Roster, now: int, selection: Selection | None = None) -> Iterator[Held | Outline | None]:
    """Yield each schedule that is held, and None after each unit of work."""
    searched = 0
    for part in roster.visit(selection):
        for one in part:
            if isinstance(one, Outline) and one.fire_time > now:
                yield one
            elif (seen := current(roster, one)) is not None:
                if is_searched(seen, now):
                    searched += 1
                    if searched % SEARCHED_PER_UNIT == 0:
                        yield None
                yield seen
        yield None


def current(roster: Roster, one: Held | Outline) -> Held | None:
    """Return a schedule that was visited, to look at; None if it is not held any more."""
    if isinstance(one, Held):
        return one
    held = roster.peek(one.subject)
    return held if held is not None and held.sequence == one.sequence else None


Seen = Held | Outline | PausedSchedule
"""A schedule that was visited."""


def _target(one: Seen) -> str:
    return one.target if isinstance(one, Outline) else one.terms.target


def _kind(one: Seen) -> PatternKind:
    return PatternKind(one.kind) if isinstance(one, Outline) else kind_of(one.pattern)


def _time_zone(one: Seen) -> str | None:
    return one.zone if isinstance(one, Outline) else one.pattern.time_zone


def selected(query: "Query") -> Selection:
    """Return the rows among which are all that a query names."""
    begin, end = ("", None) if query.subject is None else _range_of(query.subject)
    conditions, values = [], list[object]()
    if query.kinds is not None:
        conditions.append(f"kind IN ({', '.join('?' * len(query.kinds))})")
        values += [kind.value for kind in query.kinds]
    if query.target is not None and is_literal_subject(query.target):
        conditions.append("target = CAST(? AS TEXT)")
        values.append(text_of(query.target))
    return Selection(begin, end, " AND ".join(conditions) or "1", *values)


def _in_row(instant: int) -> int:
    """Return the nearest instant (ns) that a row can have."""
    return max(NO_WAKE, min(instant, MAX_INSTANT))


def _range_of(subject: str) -> tuple[str, str | None]:
    """Return the first and the last text that a subject can cover, which may have wildcards."""
    if is_literal_subject(subject):
        return subject, subject
    begin = "".join(f"{token}." for token in takewhile(lambda token: token not in ("*", ">"), subject.split(".")))
    return begin, None if not begin else begin[:-1] + chr(ord(".") + 1)


MAX_PAGE_LENGTH = 1_000
"""Most schedules on a page of a running engine: they are sorted at once."""

MAX_UNSORTED = 512
"""Schedules that may be on a page and are not sorted yet."""

PAUSED_PER_UNIT = 256
"""Paused schedules that are visited in one unit of work."""

FEW_ROWS = 5_000
"""A page of the schedules in a range of subjects that has no more of them is found by a visit of all."""

MAX_AHEAD_NS = 120 * SECOND
"""No schedule is woken earlier than this before its fire (ns), unless it ends before that."""

DESCRIBED_PER_UNIT = 32
"""Schedules of a page that are described in one unit of work."""


SHOWN_AS_FAILING = frozenset({State.WAITING, State.OVERDUE})
"""The states that failing takes the place of; another one, such as that a schedule ends early, stays."""

Failings = Mapping[int, Failing]
"""Why the fires of schedules fail, by sequence."""

NONE_FAILING: Failings = {}


class FiredBy(StrEnum):
    """Who fires a schedule."""

    SIDECAR = "sidecar"
    SERVER = "server"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class ListedSchedule:
    """A schedule, active or paused, that is valid and the last message on its subject."""

    subject: str
    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch, as is `next_fire`."""
    pattern: Pattern
    terms: Terms
    next_fire: int | None
    state: State
    fired_by: FiredBy
    ends: int | None
    """The instant (ns) at which its stream removes it, None where it keeps it."""
    ended_by: Ending | None
    """The cause of that removal, None where it keeps it."""
    failing: Failing | None = None
    """Why the server refuses its fires, None if it does not, or if only the owner knows."""
    unstored: int | None = field(default=None, compare=False)
    """The first fire time (ns) of which no fire was read, also one that has passed; None if a sidecar listed it."""

    @property
    def kind(self) -> PatternKind:
        """The kind of its pattern."""
        return kind_of(self.pattern)

    def fire_after(self, fire: int) -> int | None:
        """Return the fire time after one of its fire times, None if that is the last one."""
        if self.fired_by is FiredBy.SERVER:
            return fire_after(self.pattern, self.stored_at, fire, fire)
        return self.timetable.next_fire(fire)

    def at_offset(self, offset: int, now: int) -> "ListedSchedule":
        """Return the same schedule as a server fires it whose zone data has this offset (s) for its time zone `now`."""
        moved = replace(self, pattern=at_offset(self.pattern, offset))
        is_due = self.next_fire is not None and self.state is State.WAITING
        return replace(moved, next_fire=moved.fire_after(now)) if is_due else moved

    @property
    def is_cut_off(self) -> bool:
        """True if it fires, and the `max_age` of its stream removes it before its last fire."""
        if self.ended_by is not Ending.MAX_AGE or self.ends is None or self.state not in FIRING:
            return False
        return is_cut_off(self.timetable, self.ends)

    def with_calendars(self, known: KnownCalendars) -> "ListedSchedule":
        """Return the same schedule with the days of its calendars, if it names any."""
        pattern = self.pattern
        return replace(self, pattern=pattern.with_calendars(known)) if isinstance(pattern, Bounded) else self

    @property
    def timetable(self) -> Timetable:
        """The timetable of its fires."""
        return stored_timetable(self.pattern, self.terms.policies, self.stored_at, self.subject, self.sequence)

    @property
    def sent(self) -> int | None:
        """The instant (ns) at which its next fire is sent if a jitter delays it, else None."""
        return None if self.next_fire is None else self.timetable.delayed_to(self.next_fire)


FIRING = frozenset({State.WAITING, State.FAILING, State.UNFINISHED, State.NO_CALENDAR})
"""The states of schedules that have a fire to come while their stream keeps them."""


def soonest_first(listed: ListedSchedule) -> tuple[int, str]:
    """Return the place of a schedule in a list: by next fire, then by subject; those without a next fire last."""
    return NO_FIRE if listed.next_fire is None else listed.next_fire, listed.subject


@dataclass(frozen=True, slots=True)
class Query:
    """Which schedules are wanted; None means any."""

    subject: str | None = None
    """A subject, which may have wildcards; so does `target`. Both have to be valid."""
    target: str | None = None
    states: frozenset[State] | None = None
    kinds: frozenset[PatternKind] | None = None

    def names(self, one: Seen) -> bool:
        """Return whether a schedule is one of those that are wanted, whatever its state is."""
        if not self.names_texts(one.subject, _target(one)):
            return False
        return self.kinds is None or _kind(one) in self.kinds

    def names_texts(self, subject: str, target: str) -> bool:
        """Return whether a subject and a target are among those that are wanted."""
        if self.subject is not None and not is_covered(subject, (self.subject,)):
            return False
        return self.target is None or is_covered(target, (self.target,))


ALL = Query()
"""Every schedule is wanted."""


@dataclass(frozen=True, slots=True)
class Page:
    """Some schedules, soonest first."""

    schedules: list[ListedSchedule]
    following: Cursor | None
    """Where the next page begins, None if this is the last one."""


@dataclass(slots=True)
class Counts:
    """The numbers of held schedules, by state and by kind; what is not held is not named."""

    total: int = 0
    states: dict[State, int] = field(default_factory=dict)
    kinds: dict[PatternKind, int] = field(default_factory=dict)

    def add(self, state: State, kind: PatternKind) -> None:
        """Count one schedule."""
        self.total += 1
        self.states[state] = self.states.get(state, 0) + 1
        self.kinds[kind] = self.kinds.get(kind, 0) + 1


class EngineView:
    """A view of what one engine holds; each call sees it as it is then."""

    def __init__(
        self,
        roster: Roster,
        lifetimes: Lifetimes,
        inactive: Inactive,
        fired_by: FiredBy,
        beside: "EngineView | None" = None,
    ) -> None:
        """Look at the parts of an engine whose schedules are fired by `fired_by`, and at what is `beside` it."""
        self._roster = roster
        self._lifetimes = lifetimes
        self._inactive = inactive
        self._fired_by = fired_by
        self._beside = beside

    @property
    def _views(self) -> "tuple[EngineView, ...]":
        """The views of both engines. They are not kept: a view that holds itself would never seem to be unused."""
        return (self,) if self._beside is None else (self, self._beside)

    def joined(self, beside: "EngineView") -> "EngineView":
        """Return this view and one of what others fire on the same stream as one."""
        return EngineView(self._roster, self._lifetimes, self._inactive, self._fired_by, beside)

    def schedule(self, subject: str, now: int) -> ListedSchedule | None:
        """Return the schedule that is held or paused on a subject, as it is at `now` (ns)."""
        for view in self._views:
            if (held := view._roster.peek(subject) or view._paused(subject, now)) is not None:
                return view._listed(held, view._outlook(held, now, NONE_FAILING))
        return None

    def rejection(self, subject: str) -> Rejected | None:
        """Return the rejected schedule on a subject."""
        return next((one for view in self._views if (one := view._inactive.rejected.get(subject)) is not None), None)

    def misnaming(self, subject: str) -> HeadersMisnamed | None:
        """Return the message on a subject if its headers are misnamed."""
        return self._inactive.misnamed.get(subject)

    def flight(self, subject: str) -> Flight | None:
        """Return what is in progress for the schedule on a subject: to look at, not to change."""
        held = self._roster.peek(subject)
        return None if held is None else held.flight

    def page(
        self,
        now: int,
        query: Query = ALL,
        *,
        limit: int | None = MAX_PAGE_LENGTH,
        after: Cursor | None = None,
    ) -> Sliced[Page]:
        """Find the first `limit` schedules after a cursor that a query wants, as they are at `now` (ns).

        Without a limit all are found, and sorted at once: for an engine that fires nothing.
        """
        assert limit is None or 1 <= limit <= MAX_PAGE_LENGTH, f"limit of {limit}: 1 to {MAX_PAGE_LENGTH} was expected"
        return Sliced(self._page(now, query, limit, after or Cursor(-NO_FIRE, "")))

    def counts(self, now: int, query: Query = ALL) -> Sliced[Counts]:
        """Count the schedules that a query wants, as they are at `now` (ns)."""
        return Sliced(self._counts(now, query))

    def add_to(self, timeline: Timeline, stream: str) -> Generator[None, None, None]:
        """Add all schedules to a timeline, as those of a stream of this name; yield after each unit of work."""
        for view in self._views:
            for one in visit(view._roster, timeline.now):
                if one is None:
                    yield
                elif not timeline.leaves_out(one.fire_time) and (held := current(view._roster, one)) is not None:
                    timeline.add(stream, held, view._lifetimes)

    def rejected_page(self, query: Query, limit: int, after: str) -> Sliced[SubjectPage[Rejected]]:
        """Find the first `limit` rejected schedules after a subject, by subject, with those of a query."""

        def is_wanted(one: Rejected) -> bool:
            return query.names_texts(one.subject, one.target)

        return Sliced(by_subject([view._inactive.rejected for view in self._views], is_wanted, limit, after))

    def misnamed_page(self, query: Query, limit: int, after: str) -> Sliced[SubjectPage[HeadersMisnamed]]:
        """Do the same for messages whose headers are misnamed; they have no target."""

        def is_wanted(one: HeadersMisnamed) -> bool:
            return query.target is None and query.names_texts(one.subject, "")

        return Sliced(by_subject([self._inactive.misnamed], is_wanted, limit, after))

    @property
    def rejected_count(self) -> int:
        """The number of rejected schedules."""
        return sum(len(view._inactive.rejected) for view in self._views)

    @property
    def misnamed_count(self) -> int:
        """The number of messages whose headers are misnamed, at most 10,000."""
        return len(self._inactive.misnamed)

    # -- visits --------------------------------------------------------------------------------------------------

    def each(self, now: int, failing: Failings = NONE_FAILING) -> "Iterator[Found | None]":
        """Yield each schedule that is held, to look at, and what becomes of it; None after each unit of work."""
        for held in visit(self._roster, now):
            yield None if held is None else Found(self, held, self._outlook(held, now, failing))

    def described(
        self, found: "Iterable[Found]", failing: Failings = NONE_FAILING
    ) -> Generator[None, None, list[ListedSchedule]]:
        """Describe schedules that were visited, but those that ended meanwhile; yield after each unit of work."""
        schedules = []
        for number, one in enumerate(found):
            if number % DESCRIBED_PER_UNIT == 0:
                yield
            subject, sequence, view = one.held.subject, one.held.sequence, one.view
            held = view._roster.peek(subject) or view._inactive.paused.get(subject)
            if held is not None and held.sequence == sequence:
                known = failing.get(sequence) if view is self else None
                schedules.append(view._listed(held, one.outlook, known))
        return schedules

    def visit_all(self, now: int, selection: Selection | None = None) -> Iterator[Seen | None]:
        """Yield each schedule that is held or paused, and None after each unit of work."""
        yield from visit(self._roster, now, selection)
        for number, subject in enumerate(list(self._inactive.paused)):
            if number % PAUSED_PER_UNIT == 0:
                yield None
            if (paused := self._paused(subject, now)) is not None:
                yield paused

    def _paused(self, subject: str, now: int) -> PausedSchedule | None:
        """Return the paused schedule on a subject; the server may remove one later than at the end of its lifetime."""
        paused = self._inactive.paused.get(subject)
        return None if paused is None or self._lifetimes.ends(paused) <= now else paused

    def _outlook(self, held: Seen, now: int, failing: Failings = NONE_FAILING) -> Outlook:
        if isinstance(held, PausedSchedule):
            return Outlook(None, State.PAUSED)
        if isinstance(held, Outline):
            outlook = waiting_outlook(held, self._lifetimes)
        else:
            outlook = outlook_of(held, now, self._lifetimes, by_server=self._fired_by is FiredBy.SERVER)
        if failing and held.sequence in failing and outlook.state in SHOWN_AS_FAILING:
            return Outlook(outlook.next_fire, State.FAILING)
        return outlook

    def _counts(self, now: int, query: Query) -> Generator[None, None, Counts]:
        counts = Counts()
        for view in self._views:
            for held in view.visit_all(now, selected(query)):
                if held is None:
                    yield
                elif query.names(held):
                    state = view._outlook(held, now).state
                    if query.states is None or state in query.states:
                        counts.add(state, _kind(held))
        return counts

    def _page(self, now: int, query: Query, limit: int | None, after: Cursor) -> Generator[None, None, Page]:
        first = _First(now, query, limit, after)
        for view in self._views:
            yield from view._find_first(first)
        found = first.sorted()
        end = len(found) if limit is None else min(limit, len(found))
        while end < len(found) and found[end].place == found[end - 1].place:
            end += 1  # a cursor behind the first of the two would lose the other
        schedules = yield from self.described(found[:end])
        return Page(schedules, found[end - 1].place if end < len(found) else None)

    def _find_first(self, first: "_First") -> Generator[None, None, None]:
        """Find the first schedules of this view, and yield after each unit of work."""
        rows, table = selected(first.query), self._roster.table
        if first.limit is None or not table.are_many(rows, FEW_ROWS):
            yield from self._find_among(first, rows)
            return
        yield from self._find_among(first, Selection("", "", "0"))  # those that have objects, or are paused
        for begin, end in ((NO_WAKE, first.now), (max(first.now, first.after.fire - MAX_AHEAD_NS), MAX_INSTANT)):
            for some, through in self._roster.visit_by_wake(_in_row(begin), end):
                for one in some:
                    seen = one if one.fire_time > first.now else current(self._roster, one)
                    if seen is not None:
                        first.take(self, seen, has_fire=True)
                yield
                if end == MAX_INSTANT and first.is_full(through):
                    return
        rows.condition += " AND (expires <= fire_time OR stored_at + ? <= fire_time)"
        rows.values.append(self._lifetimes.max_age or MAX_INSTANT)
        yield from self._find_among(first, rows, has_fire=False)

    def _find_among(
        self, first: "_First", rows: Selection, *, has_fire: bool | None = None
    ) -> Generator[None, None, None]:
        for one in self.visit_all(first.now, rows):
            if one is None:
                first.trim()
                yield
            elif has_fire is None or isinstance(one, Outline):
                first.take(self, one, has_fire=has_fire)

    def _listed(self, held: Held | PausedSchedule, outlook: Outlook, failing: Failing | None = None) -> ListedSchedule:
        flight = None if isinstance(held, PausedSchedule) else held.flight
        ends = self._lifetimes.ends(held)
        ended_by = None if ends >= NO_EXPIRY else Ending.EXPIRED if ends == held.expires else Ending.MAX_AGE
        return ListedSchedule(
            held.subject,
            held.sequence,
            held.stored_at,
            held.pattern,
            held.terms,
            outlook.next_fire,
            outlook.state,
            self._fired_by,
            None if ended_by is None else ends,
            ended_by,
            failing if flight is None or flight.failing is None else flight.failing,
            None if isinstance(held, PausedSchedule) else held.fire_time,
        )


class _First:
    """The first schedules after a cursor that a query wants, as far as they were found."""

    def __init__(self, now: int, query: Query, limit: int | None, after: Cursor) -> None:
        self.now, self.query, self.limit, self.after = now, query, limit, after
        self._found: list[Found] = []
        self._last = Cursor(NO_FIRE + 1, "")
        """What has a later place is not among them."""

    def take(self, view: EngineView, one: Seen, *, has_fire: bool | None = None) -> None:
        """Take a schedule if it is among them; with `has_fire` only one that has a next fire, or has none."""
        if not self.query.names(one):
            return
        found = Found(view, one, view._outlook(one, self.now))
        if has_fire is not None and has_fire is (found.outlook.next_fire is None):
            return
        is_wanted = self.query.states is None or found.outlook.state in self.query.states
        if is_wanted and self.after < found.place <= self._last:
            self._found.append(found)

    def trim(self) -> None:
        """Discard what is not among them, if that is much."""
        if self.limit is not None and len(self._found) > self.limit + MAX_UNSORTED:
            self._sort()

    def is_full(self, through: int) -> bool:
        """Return whether nothing that fires at an instant (ns) or later can be among them."""
        if self.limit is None or len(self._found) <= self.limit:
            return False
        self._sort()
        return self._last.fire < through

    def sorted(self) -> "list[Found]":
        """Return them in their order, and the one behind them."""
        self._found.sort(key=_place)
        return self._found

    def _sort(self) -> None:
        """Keep as many as are wanted and one more, and all that have its place."""
        assert self.limit is not None, "all are wanted otherwise"
        self._found.sort(key=_place)
        self._last = self._found[self.limit].place
        self._found = [one for one in self._found if one.place <= self._last]


class Found:
    """A schedule that was visited, and its place on a page."""

    __slots__ = ("held", "outlook", "place", "view")

    def __init__(self, view: EngineView, held: Seen, outlook: Outlook) -> None:
        self.view = view
        self.held = held
        self.outlook = outlook
        self.place = Cursor(NO_FIRE if outlook.next_fire is None else outlook.next_fire, held.subject)


def _place(one: Found) -> Cursor:
    return one.place


# A survey of what an engine holds: the few schedules by which all of them can be judged, found in one visit.
#
# The rule: a million schedules are not listed to find out what is wrong with them. Those are listed that answer a
# question, and of those that are wrong in the same way the first `MAX_OF_A_KIND`, with the number of all.
#
# Cost: about two microseconds for each schedule that is held, in slices (`engine.views.pages`).
# Limit: of more than `MAX_TARGETS` targets or time zones the others are not listed.

MAX_OF_A_KIND = 10
"""Schedules of one state that are listed."""

MAX_TARGETS = 256
"""Targets of which a schedule is listed, and as many time zones."""

SURVEYED_PER_UNIT = 32
"""Schedules that are judged in one unit of work."""

COUNTED = frozenset({State.EXPIRING, State.FAILING, State.NO_CALENDAR})
"""The states in which something is wrong."""


@dataclass(frozen=True, slots=True)
class Survey:
    """The findings of a survey."""

    schedules: Sequence[ListedSchedule]
    """The oldest one; one for each target and time zone; one for each filter; the first ones that are wrong."""
    counts: Mapping[State, int]
    """The number of schedules in each state that is wrong, those that are not listed too."""
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
        self._oldest: Found | None = None
        self._by_target: dict[str, Found] = {}
        self._by_zone: dict[str | None, Found] = {}
        self._by_filter: dict[str, Found] = {}
        self._wrong: list[Found] = []
        self.counts = dict.fromkeys(COUNTED, 0)
        self.names_all_targets = True

    def take(self, one: Found) -> None:
        """Keep a schedule if it answers a question."""
        held, outlook = one.held, one.outlook
        if self._oldest is None or held.sequence < self._oldest.held.sequence:
            self._oldest = one
        target = _target(held)
        if target not in self._by_target:
            if len(self._by_target) < MAX_TARGETS:
                self._by_target[target] = one
            else:
                self.names_all_targets = False
        if len(self._by_zone) < MAX_TARGETS:
            self._by_zone.setdefault(_time_zone(held), one)
        if outlook.state in COUNTED:
            self.counts[outlook.state] += 1
            if self.counts[outlook.state] <= MAX_OF_A_KIND:
                self._wrong.append(one)
        if len(self._by_filter) < len(self._filters):
            self._match(one)

    def _match(self, one: Found) -> None:
        for wanted in self._filters:
            if wanted not in self._by_filter and is_covered(one.held.subject, (wanted,)):
                self._by_filter[wanted] = one

    def listed(self) -> list[Found]:
        """Return what was kept, by sequence, each schedule once."""
        kept = [*self._by_target.values(), *self._by_zone.values(), *self._by_filter.values(), *self._wrong]
        kept += [] if self._oldest is None else [self._oldest]
        return sorted({one.held.sequence: one for one in kept}.values(), key=lambda one: one.held.sequence)


def _survey(view: EngineView, now: int, filters: Sequence[str], failing: Failings) -> Generator[None, None, Survey]:
    surveyor, number = _Surveyor(tuple(dict.fromkeys(filters))), 0
    for one in view.each(now, failing):
        if one is not None:
            surveyor.take(one)
            number += 1
        if one is None or number % SURVEYED_PER_UNIT == 0:
            yield
    listed = yield from view.described(surveyor.listed(), failing)
    return Survey(listed, surveyor.counts, surveyor.names_all_targets)
