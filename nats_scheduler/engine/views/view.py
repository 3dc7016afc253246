"""A read-only view of what an engine holds: pages of schedules, counts, one schedule by its subject.

The rules:

- Nothing is changed, in the engine and in what it holds.
- A page is in the order of the next fires, soonest first, then by subject, byte for byte; schedules without a next fire
  come last. It may be in another order (`Order`), which no index has.
- A cursor is the place in that order after which the next page begins. So a schedule that is held all the time and does
  not fire between two pages is on exactly one of them; one that fires meanwhile may be listed again, with its later
  fire.
- Pages and counts are questions (`engine.views.seen`): each schedule is judged once, at the instant that was given.
  Rows that only wait are found, ordered and counted by SQLite; what has an object or is due is judged in Python.

A page of many schedules is found by the index of their wakes, which are a little earlier than their fires. Where that
finds too few among the first thousands, because few are wanted or because very many fire at one instant, all rows are
looked at once.

Two views of one stream can be one (`EngineView.joined`): what the sidecar fires there, and what the server itself
fires. A schedule is in exactly one of them. A message with both spellings of the headers is two schedules on one
subject, because both fire: a page lists both, and a question for its subject is answered by the first view, that of the
sidecar, which alone knows of flights, of failures and of misnamed headers.

Cost: some milliseconds for a page, up to half a second for each million rows where all are looked at, as in another
order than that of the next fires; two seconds if the owner of each has to be read.
Limits: what the server alone knows is not seen, such as a schedule that was removed a moment ago. A page is one longer
than its limit if the last two have the same place, so that a cursor loses neither; if an answer has no room for the
second of them, it is on no page.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import NamedTuple, TypeVar

from nats_scheduler.engine.events import Ending, HeadersMisnamed
from nats_scheduler.engine.holding.flight import Flight
from nats_scheduler.engine.holding.held import NO_EXPIRY, NO_WAKE, Held
from nats_scheduler.engine.holding.inactive import Inactive, Rejected
from nats_scheduler.engine.holding.lifetimes import Lifetimes, PausedSchedule
from nats_scheduler.engine.holding.schedule_rows import MAX_INSTANT, DefinitionReader
from nats_scheduler.engine.holding.scheduled import Schedules
from nats_scheduler.engine.views.conditions import Condition, containing, covered, owned
from nats_scheduler.engine.views.cursors import NO_FIRE, Cursor, SubjectPage, by_subject
from nats_scheduler.engine.views.outlook import Outlook, State, is_searched, outlook_of
from nats_scheduler.engine.views.rows import Rows
from nats_scheduler.engine.views.seen import (
    EFFORT_PER_UNIT,
    JUDGED,
    LEFT_OUT,
    SEARCHED,
    Part,
    Question,
    Seen,
    Work,
    taken,
)
from nats_scheduler.engine.views.timeline import Timeline
from nats_scheduler.message.ages import Removal, is_cut_off
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.findings import Finding
from nats_scheduler.message.jitter import stored_timetable
from nats_scheduler.message.rejection import Failing
from nats_scheduler.message.schedule_findings import (
    End,
    KnownSchedule,
    header_misnamed,
    schedule_findings,
    schedule_rejected,
)
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_covered
from nats_scheduler.message.timetable import Timetable
from nats_scheduler.schedule.bounds import Bounded
from nats_scheduler.schedule.calendars import KnownCalendars
from nats_scheduler.schedule.instants import MINUTE, SECOND
from nats_scheduler.schedule.native import at_offset, fire_after
from nats_scheduler.schedule.patterns import Pattern, PatternKind, kind_of

MAX_PAGE_LENGTH = 1_000
"""Most schedules on a page of a running engine: they are sorted at once."""

MAX_UNSORTED = 512
"""Schedules that may be on a page and are not sorted yet."""

MORE_BY_WAKE = 64
"""Rows that are looked at by their wakes at once, besides those that a page has."""

MAX_BY_WAKE = 4_096
"""Rows that are looked at by their wakes, before all are looked at by their ids."""

PAUSED_PER_UNIT = EFFORT_PER_UNIT // JUDGED
"""Paused schedules that are judged in one unit of work."""

DESCRIBED_PER_UNIT = 32
"""Schedules of a page that are described in one unit of work."""

MAX_AHEAD_NS = 120 * SECOND
"""No schedule is woken earlier than this before its fire (ns), unless it ends before that."""

_ENDS = "ifnull(expires <= fire_time, 0) OR (:max_age > 0 AND stored_at + :max_age <= fire_time)"
EXPIRES = f"(expires IS NOT -1 AND ({_ENDS}))"
"""Whether a row is removed before its fire, as `Lifetimes.ends_at` says."""

IS_DUE_LATER = "fire_time > :now"
"""Whether a row only waits."""

P = TypeVar("P")

SHOWN_AS_FAILING = frozenset({State.WAITING, State.OVERDUE})
"""The states that failing takes the place of; another one, such as that a schedule ends early, stays."""


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
    unfired_since: int | None = None
    """The fire time (ns) that the first of its versions was to have, if each was replaced before it fired."""

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

    def known(self, rules: StreamRules, server: Capabilities | None, at: int) -> KnownSchedule:
        """Return what is known of it `at` an instant (ns) on a stream with these rules."""
        return KnownSchedule(
            self.terms,
            self.timetable,
            rules,
            server,
            at,
            is_stored=True,
            is_by_server=_IS_BY_SERVER[self.fired_by],
            end=self._end(at),
            lacks_calendar=self.state is State.NO_CALENDAR,
            refusal=self.failing,
            is_paused=self.state is State.PAUSED,
            next_fire=self.next_fire if self.state is State.WAITING else None,
            unfired_since=self.unfired_since,
        )

    def _end(self, at: int) -> End | None:
        """Return the end that its stream makes of it, None where it keeps it, and while it is paused."""
        if self.ends is None or self.state is State.PAUSED:
            return None
        removal = Removal(self.ends, self.ended_by is Ending.MAX_AGE)
        if self.state is not State.EXPIRING:
            return End(removal, None, self.is_cut_off)
        due = self.fire_after(at) if self.timetable.repeats else self.timetable.first_fire()
        return End(removal, due, cuts_off=False)

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


def findings_on(
    listed: ListedSchedule | None,
    rejected: Rejected | None,
    misnamed: HeadersMisnamed | None,
    rules: StreamRules,
    server: Capabilities,
    at: int,
) -> list[Finding]:
    """Return what is found about the last message on a subject `at` an instant (ns), as far as it is one of these."""
    found = [] if rejected is None else [schedule_rejected(rejected.rejection.shortened())]
    found += [] if misnamed is None else [header_misnamed(misnamed.headers)]
    return found if listed is None else [*found, *schedule_findings(listed.known(rules, server, at))]


_IS_BY_SERVER = {FiredBy.SIDECAR: False, FiredBy.SERVER: True, FiredBy.NONE: None}

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
    contains: str | None = None
    """A part of the subject, byte for byte; `target_contains` is one of the target."""
    target_contains: str | None = None
    owner: str | None = None
    """The value of `X-Owner`."""

    def names(self, one: "Held | PausedSchedule") -> bool:
        """Return whether a schedule is one of those that are wanted, whatever its state is."""
        if self.kinds is not None and kind_of(one.pattern) not in self.kinds:
            return False
        if self.owner is not None and one.terms.policies.owner != self.owner:
            return False
        return self.names_texts(one.subject, one.terms.target)

    def names_texts(self, subject: str, target: str) -> bool:
        """Return whether a subject and a target are among those that are wanted."""
        is_named = _is_named(subject, self.subject, self.contains)
        return is_named and _is_named(target, self.target, self.target_contains)

    def wants(self, state: State) -> bool:
        """Return whether schedules in a state are wanted."""
        return self.states is None or state in self.states

    @property
    def condition(self) -> Condition:
        """What is true of the rows that `names` is true of."""
        wanted = Condition()
        if self.subject is not None:
            wanted = covered("subject", self.subject)
        if self.target is not None:
            wanted = wanted.both(covered("target", self.target)._replace(subjects="1"))
        for column, part in (("subject", self.contains), ("target", self.target_contains)):
            if part is not None:
                wanted = wanted.both(containing(column, part))
        if self.owner is not None:
            wanted = wanted.both(owned(self.owner))
        if self.kinds is not None:
            names = {f"kind_{number}": kind.value for number, kind in enumerate(sorted(self.kinds))}
            wanted = wanted.both(Condition(f"kind IN ({', '.join(f':{name}' for name in names)})", names))
        return wanted


def _is_named(text: str, pattern: str | None, part: str | None) -> bool:
    """Return whether a pattern, if there is one, covers a text that contains a part, if there is one."""
    if pattern is not None and not is_covered(text, (pattern,)):
        return False
    return part is None or _key(part) in _key(text)


ALL = Query()
"""Every schedule is wanted."""


class Order(StrEnum):
    """The order of a page."""

    NEXT_FIRE = "next_fire"
    SUBJECT = "subject"
    TARGET = "target"

    def place(self, fire: int, subject: str, target: str) -> tuple[int, bytes]:
        """Return the place of a schedule with a next fire (ns), or `NO_FIRE`."""
        if self is Order.NEXT_FIRE:
            return fire, _key(subject)
        return 0, _key(subject) if self is Order.SUBJECT else b"\0".join((_key(target), _key(subject)))

    def cursor_of(self, listed: ListedSchedule) -> Cursor:
        """Return the cursor behind a schedule."""
        return _cursor(self.place(soonest_first(listed)[0], listed.subject, listed.terms.target))


_KEY_IN_ROW = {
    Order.SUBJECT: "CAST(subject AS BLOB)",
    Order.TARGET: "CAST(CAST(target AS BLOB) || x'00' || CAST(subject AS BLOB) AS BLOB)",
}
"""What SQLite makes of a row for the orders that are of texts alone."""


def _cursor(place: tuple[int, bytes]) -> Cursor:
    return Cursor(place[0], place[1].decode("utf-8", "surrogateescape"))


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

    def add(self, state: State, kind: PatternKind, number: int = 1) -> None:
        """Count some schedules."""
        self.total += number
        self.states[state] = self.states.get(state, 0) + number
        self.kinds[kind] = self.kinds.get(kind, 0) + number


class Candidate(NamedTuple):
    """A schedule that may be on a page, by its place there."""

    fire: int
    """Its next fire (ns), or `NO_FIRE`; 0 in another order."""
    key: bytes
    """Its subject, or what it is ordered by."""
    one: "Held | PausedSchedule | int"
    """The schedule, or the id of its row if it only waits."""
    outlook: Outlook | None = None
    """Its next fire and its state; None if only its row says them."""

    @property
    def place(self) -> tuple[int, bytes]:
        """Its place."""
        return self.fire, self.key


class First:
    """The first schedules after a cursor that are wanted, as far as they were found."""

    def __init__(self, limit: int | None, after: Cursor) -> None:
        """Find one more than the limit, or all."""
        self.limit = limit
        self.after = after.fire, _key(after.subject)
        self._found: list[Candidate] = []
        self._last = NO_FIRE + 1, b""
        """What has a later place is not among them."""

    def take(self, one: Candidate) -> None:
        """Take a schedule if it is among them."""
        if self.after < one.place <= self._last:
            self._found.append(one)
            if self.limit is not None and len(self._found) > self.limit + MAX_UNSORTED:
                self._sort(self.limit)

    def leaves_out(self, fire: int) -> bool:
        """Return whether a schedule cannot be among them whose next fire is not before an instant (ns)."""
        return fire > self._last[0]

    def is_full(self, through: int) -> bool:
        """Return whether nothing that fires at an instant (ns) or later can be among them."""
        if self.limit is None or len(self._found) <= self.limit:
            return False
        self._sort(self.limit)
        return self._last[0] < through

    def sorted(self) -> list[Candidate]:
        """Return them in their order, and the one behind them."""
        self._found.sort(key=_place)
        return self._found if self.limit is None else self._found[: self.limit + 1]

    def clear(self) -> None:
        """Begin anew."""
        self._found, self._last = [], (NO_FIRE + 1, b"")

    def _sort(self, limit: int) -> None:
        self._found.sort(key=_place)
        del self._found[limit + 1 :]
        self._last = self._found[-1].place


def _place(one: Candidate) -> tuple[int, bytes]:
    return one.place


def _key(subject: str) -> bytes:
    return subject.encode("utf-8", "surrogateescape")


def _in_row(instant: int) -> int:
    """Return the nearest instant (ns) that a row can have."""
    return max(-MAX_INSTANT, min(instant, MAX_INSTANT))


Listed = tuple[tuple[int, bytes], ListedSchedule]
"""A schedule, behind its place."""


class EngineView:
    """A view of what one engine holds; each call sees it as it is then."""

    def __init__(
        self,
        schedules: Schedules,
        lifetimes: Lifetimes,
        inactive: Inactive,
        fired_by: FiredBy,
        read: DefinitionReader,
        beside: "EngineView | None" = None,
    ) -> None:
        """Look at the parts of an engine whose schedules are fired by `fired_by`, and at what is `beside` it.

        `read` reads the headers of rows, and is called in another thread than the engine's.
        """
        self._schedules = schedules
        self.lifetimes = lifetimes
        self._inactive = inactive
        self._fired_by = fired_by
        self._read = read
        self._beside = beside

    @property
    def _views(self) -> "tuple[EngineView, ...]":
        """The views of both engines. They are not kept: a view that holds itself would never seem to be unused."""
        return (self,) if self._beside is None else (self, self._beside)

    def joined(self, beside: "EngineView") -> "EngineView":
        """Return this view and one of what others fire on the same stream as one."""
        return EngineView(self._schedules, self.lifetimes, self._inactive, self._fired_by, self._read, beside)

    def schedule(self, subject: str, now: int) -> ListedSchedule | None:
        """Return the schedule that is held or paused on a subject, as it is at `now` (ns)."""
        for view in self._views:
            if (held := view._schedules.peek(subject) or view._paused(subject, now)) is not None:
                return view.listed(held, view.outlook(held, now))
        return None

    def rejection(self, subject: str) -> Rejected | None:
        """Return the rejected schedule on a subject."""
        return next((one for view in self._views if (one := view._inactive.rejected.get(subject)) is not None), None)

    def misnaming(self, subject: str) -> HeadersMisnamed | None:
        """Return the message on a subject if its headers are misnamed."""
        return self._inactive.misnamed.get(subject)

    def flight(self, subject: str) -> Flight | None:
        """Return what is in progress for the schedule on a subject: to look at, not to change."""
        held = self._schedules.peek(subject)
        return None if held is None else held.flight

    def page(
        self,
        now: int,
        query: Query = ALL,
        *,
        limit: int | None = MAX_PAGE_LENGTH,
        after: Cursor | None = None,
        order: Order = Order.NEXT_FIRE,
    ) -> Question[Page]:
        """Find the first `limit` schedules after a cursor of this order that a query wants, as they are at `now` (ns).

        Without a limit all are found, and sorted at once: for an engine that fires nothing.
        """
        assert limit is None or 1 <= limit <= MAX_PAGE_LENGTH, f"limit of {limit}: 1 to {MAX_PAGE_LENGTH} was expected"
        begin = after or Cursor(-NO_FIRE, "")
        return Question(
            [view.part(partial(view._page, now, query, First(limit, begin), order)) for view in self._views],
            partial(_merged_page, limit),
        )

    def counts(self, now: int, query: Query = ALL) -> Question[Counts]:
        """Count the schedules that a query wants, as they are at `now` (ns)."""
        return Question([view.part(partial(view._counts, now, query)) for view in self._views], _merged_counts)

    def add_to(self, timeline: Timeline, stream: str) -> Question[None]:
        """Add all schedules to a timeline, as those of a stream of this name."""
        parts = [view.part(partial(view._add_to, timeline, stream)) for view in self._views]
        return Question(parts, lambda _nothing: None)

    def rejected_page(self, query: Query, limit: int, after: str) -> Work[SubjectPage[Rejected]]:
        """Find the first `limit` rejected schedules after a subject, by subject; of these no owner is known."""

        def is_wanted(one: Rejected) -> bool:
            return query.owner is None and query.names_texts(one.subject, one.target)

        return by_subject([view._inactive.rejected for view in self._views], is_wanted, limit, after)

    def misnamed_page(self, query: Query, limit: int, after: str) -> Work[SubjectPage[HeadersMisnamed]]:
        """Do the same for messages whose headers are misnamed; they have no target either."""

        def is_wanted(one: HeadersMisnamed) -> bool:
            is_by_subject = query.owner is None and query.target is None and query.target_contains is None
            return is_by_subject and query.names_texts(one.subject, "")

        return by_subject([self._inactive.misnamed], is_wanted, limit, after)

    @property
    def rejected_count(self) -> int:
        """The number of rejected schedules."""
        return sum(len(view._inactive.rejected) for view in self._views)

    @property
    def misnamed_count(self) -> int:
        """The number of messages whose headers are misnamed, at most 10,000."""
        return len(self._inactive.misnamed)

    # -- questions to one engine ---------------------------------------------------------------------------------

    def part(self, work: Callable[[Seen], Work[P]]) -> Part[P]:
        """Return the part of a question that this view alone answers."""
        return Part(self._schedules.table, self._see, work)

    def _see(self) -> Seen:
        schedules = self._schedules
        objects, ids, first_wake = schedules.at_this_moment()
        rows = Rows(schedules.table, schedules.written.total(), ids, first_wake, self._read)
        return Seen(objects, rows, list(self._inactive.paused.values()))

    def waiting(self, now: int) -> Condition:
        """Return what is true of rows that only wait at `now` (ns); its values are those of `EXPIRES` too."""
        return Condition(IS_DUE_LATER, {"now": now, "max_age": self.lifetimes.max_age})

    def outlook(self, held: Held | PausedSchedule, now: int) -> Outlook:
        """Return the next fire and the state of a schedule at `now` (ns)."""
        if isinstance(held, PausedSchedule):
            return Outlook(None, State.PAUSED)
        return outlook_of(held, now, self.lifetimes, by_server=self._fired_by is FiredBy.SERVER)

    def listed(self, held: Held | PausedSchedule, outlook: Outlook, failing: Failing | None = None) -> ListedSchedule:
        """Describe a schedule, which may be `failing` as others know."""
        flight = None if isinstance(held, PausedSchedule) else held.flight
        ends = self.lifetimes.ends(held)
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
            None if isinstance(held, PausedSchedule) else held.unfired_since,
        )

    def _paused(self, subject: str, now: int) -> PausedSchedule | None:
        """Return the paused schedule on a subject."""
        paused = self._inactive.paused.get(subject)
        return paused if paused is not None and self._is_paused(paused, now) else None

    def _is_paused(self, paused: PausedSchedule, now: int) -> bool:
        """Return whether a schedule is paused still: the server may remove it later than at the end of its lifetime."""
        return self.lifetimes.ends(paused) > now

    def _each(
        self,
        seen: Seen,
        now: int,
        query: Query,
        take: Callable[[Held | PausedSchedule, Outlook], object],
        leaves_out: Callable[[int], bool] = lambda _fire: False,
    ) -> Work[None]:
        """Judge what has an object, what is due, and what is paused; give to `take` what a query wants.

        `leaves_out` says whether those may be left out that fire at an instant (ns) or later.
        """

        def judge(held: Held) -> int:
            if leaves_out(held.fire_time) or not query.names(held):
                return LEFT_OUT
            outlook = self.outlook(held, now)
            if query.wants(outlook.state):
                take(held, outlook)
            return SEARCHED if is_searched(held, now) else JUDGED

        yield from seen.each(now, query.condition, judge)
        for number, paused in enumerate(seen.paused if query.wants(State.PAUSED) else ()):
            if number % PAUSED_PER_UNIT == 0:
                yield
            if self._is_paused(paused, now) and query.names(paused):
                take(paused, Outlook(None, State.PAUSED))

    # -- counts --------------------------------------------------------------------------------------------------

    def _counts(self, now: int, query: Query, seen: Seen) -> Work[Counts]:
        counts = Counts()
        yield from self._each(seen, now, query, lambda one, outlook: counts.add(outlook.state, kind_of(one.pattern)))
        columns = [f"count(*) FILTER (WHERE kind = '{kind.value}')" for kind in PatternKind]
        what = f"count(*) FILTER (WHERE {EXPIRES}), {', '.join(columns)}"
        wanted = self.waiting(now).both(query.condition)
        expiring = wanted.both(Condition(EXPIRES))
        for portion in seen.rows.all(wanted):
            ((ending, *numbers),) = seen.rows.select(what, portion, wanted)
            of_kind = dict(seen.rows.select("kind, count(*)", portion, expiring, "GROUP BY kind")) if ending else {}
            for kind, number in zip(PatternKind, numbers, strict=True):
                some = of_kind.get(kind.value, 0)
                for state, count in ((State.WAITING, number - some), (State.EXPIRING, some)):
                    if count and query.wants(state):
                        counts.add(state, kind, count)
            yield
        return counts

    # -- pages ---------------------------------------------------------------------------------------------------

    def _page(self, now: int, query: Query, first: First, order: Order, seen: Seen) -> Work[list[Listed]]:
        def take(one: Held | PausedSchedule, outlook: Outlook) -> None:
            fire = NO_FIRE if outlook.next_fire is None else outlook.next_fire
            first.take(Candidate(*order.place(fire, one.subject, one.terms.target), one, outlook))

        if order is not Order.NEXT_FIRE:
            yield from self._each(seen, now, query, take)
            yield from self._first_by_text(now, query, first, order, seen)
            return (yield from self._described(now, first.sorted(), order, seen))
        if first.limit is None:
            yield from self._all_rows(now, query, take, seen)
        elif query.wants(State.WAITING):
            yield from self.first_waiting(now, query, first, seen)
        yield from self._each(seen, now, query, take, first.leaves_out)
        if first.limit is not None and query.wants(State.EXPIRING) and not first.is_full(NO_FIRE):
            yield from self._first_expiring(now, query, first, first.limit, seen)
        return (yield from self._described(now, first.sorted(), order, seen))

    def _all_rows(
        self, now: int, query: Query, take: Callable[[Held | PausedSchedule, Outlook], object], seen: Seen
    ) -> Work[None]:
        """Find all rows that only wait."""

        def judge(held: Held) -> int:
            outlook = self.outlook(held, now)
            if query.wants(outlook.state):
                take(held, outlook)
            return JUDGED

        wanted = self.waiting(now).both(query.condition)
        for portion in seen.rows.all(wanted):
            for some in seen.rows.held(portion, wanted):
                yield from taken(some, judge)

    def first_waiting(self, now: int, query: Query, first: First, seen: Seen) -> Work[None]:
        """Find the first rows that only wait, as their ids."""
        (fire, key), limit = first.after, first.limit
        assert limit is not None, "all are wanted otherwise"
        if fire >= NO_FIRE:
            return
        later = "(fire_time > :fire OR fire_time = :fire AND subject > CAST(:after AS TEXT))"
        values = {"fire": _in_row(fire), "after": key}
        wanted = self.waiting(now).both(query.condition).both(Condition(f"{later} AND NOT {EXPIRES}", values))
        what, rows = "fire_time, subject, id", seen.rows
        if wanted.subjects == "1" or not rows.are_few(wanted):
            at_once, looked_at = limit + MORE_BY_WAKE, 0
            for portion in rows.by_wake(_in_row(max(now, fire) - MAX_AHEAD_NS), MAX_INSTANT, at_once):
                _take_rows(first, rows.select(what, portion, wanted))
                if portion.wake is None or first.is_full(portion.wake):
                    return
                looked_at += at_once
                if looked_at >= MAX_BY_WAKE:
                    break
                yield
            first.clear()
        for portion in rows.all(wanted):
            order = f"ORDER BY fire_time, subject LIMIT {limit + 1}"
            _take_rows(first, rows.select(what, portion, wanted, order))
            yield

    def _first_expiring(self, now: int, query: Query, first: First, limit: int, seen: Seen) -> Work[None]:
        """Find the first rows that end before they fire, as their ids."""
        fire, key = first.after
        later = Condition(f"{EXPIRES} AND subject > CAST(:after AS TEXT)", {"after": key if fire == NO_FIRE else b""})
        wanted = self.waiting(now).both(query.condition).both(later)
        for portion in seen.rows.all(wanted):
            order = f"ORDER BY subject LIMIT {limit + 1}"
            _take_rows(first, seen.rows.select(f"{NO_FIRE_OF_ROW}, subject, id", portion, wanted, order))
            yield

    def _first_by_text(self, now: int, query: Query, first: First, order: Order, seen: Seen) -> Work[None]:
        """Find the first rows that only wait in an order of texts, as their ids, whether they end before or not."""
        states = [query.wants(State.WAITING), query.wants(State.EXPIRING)]
        if not any(states):
            return
        ending = Condition() if all(states) else Condition(EXPIRES if states[1] else f"NOT {EXPIRES}")
        key = _KEY_IN_ROW[order]
        wanted = self.waiting(now).both(query.condition).both(ending)
        wanted = wanted.both(Condition(f"{key} > :after_key", {"after_key": first.after[1]}))
        behind = "" if first.limit is None else f"ORDER BY 2 LIMIT {first.limit + 1}"
        for portion in seen.rows.all(wanted):
            for _rank, found, number in seen.rows.select(f"0, {key}, id", portion, wanted, behind):
                first.take(Candidate(0, found, number))
            yield

    def _described(self, now: int, found: Sequence[Candidate], order: Order, seen: Seen) -> Work[list[Listed]]:
        """Describe schedules that were found, but those that ended meanwhile."""
        numbers = [one.one for one in found if isinstance(one.one, int)]
        read: dict[int, Held] = {}
        for some in seen.rows.held_with(numbers):
            read |= {held.row: held for held in some}
            yield
        listed: list[Listed] = []
        for candidate in found:
            one, outlook = candidate.one, candidate.outlook
            if isinstance(one, int):
                row = read.get(one)
                if row is None or order.place(0, row.subject, row.terms.target)[1] != candidate.key:
                    continue
                one = row
            listed.append((candidate.place, self.listed(one, outlook or self.outlook(one, now))))
            if len(listed) % DESCRIBED_PER_UNIT == 0:
                yield
        return listed

    # -- timelines -----------------------------------------------------------------------------------------------

    def _add_to(self, timeline: Timeline, stream: str, seen: Seen) -> Work[None]:
        now, end, rows = timeline.now, timeline.end, seen.rows
        first = First(timeline.most, Cursor(-NO_FIRE, ""))
        yield from self.first_waiting(now, ALL, first, seen)
        for one in first.sorted():
            timeline.note(one.fire, one.key.decode("utf-8", "surrogateescape"), stream)

        def add(held: Held) -> int:
            return SEARCHED if timeline.add(stream, held, self.lifetimes) and is_searched(held, now) else JUDGED

        def count(held: Held) -> int:
            timeline.count(held, self.lifetimes)
            return JUDGED

        yield from seen.each(now, Condition(), add)
        within = self.waiting(now).both(Condition("fire_time < :until", {"until": end}))
        once = within.both(Condition(f"kind = '{PatternKind.AT.value}' AND NOT {EXPIRES}"))
        repeating = within.both(Condition(f"kind <> '{PatternKind.AT.value}'"))
        for portion in rows.by_wake(NO_WAKE, end):
            minute = f"(fire_time - {timeline.start}) / {MINUTE}"
            for number, some in rows.select(f"{minute}, count(*)", portion, once, "GROUP BY 1"):
                timeline.counts[number] += some
            yield
            for read in rows.held(portion, repeating):
                yield from taken(read, count)


NO_FIRE_OF_ROW = -1
"""Stands for `NO_FIRE` in what SQLite returns."""


def _take_rows(first: First, found: Sequence[tuple[int, str, int]]) -> None:
    for fire, subject, number in found:
        first.take(Candidate(NO_FIRE if fire == NO_FIRE_OF_ROW else fire, _key(subject), number))


def _merged_page(limit: int | None, parts: list[list[Listed]]) -> Page:
    found = [one for part in parts for one in part]
    if len(parts) > 1:
        found.sort(key=lambda one: one[0])
    end = len(found) if limit is None else min(limit, len(found))
    while end < len(found) and found[end][0] == found[end - 1][0]:
        end += 1  # a cursor behind the first of the two would lose the other
    following = None
    if end < len(found):
        following = _cursor(found[end - 1][0])
    return Page([schedule for _place_, schedule in found[:end]], following)


def _merged_counts(parts: list[Counts]) -> Counts:
    total = Counts()
    for part in parts:
        total.total += part.total
        for state, number in part.states.items():
            total.states[state] = total.states.get(state, 0) + number
        for kind, number in part.kinds.items():
            total.kinds[kind] = total.kinds.get(kind, 0) + number
    return total
