"""A pattern with bounds: a first and a last instant, a number of fires, days without fires, another start of its grid.

One rule: a bounded pattern answers the same questions as any pattern, so no caller has to know of bounds. Its fire
times are those of its own pattern, each later by its `offset`, less what the bounds leave out; those of excepted days
may be moved. What a change of the clock does to them is decided by the pattern itself (`schedule.clock_policy`).

- The grid of `@every` begins at `anchor`, which is a fire time itself, instead of at the stored time.
- An offset moves all fire times by the same time, so that their order and their distances stay. The other bounds hold
  for the times to which they are moved, but for days, which are those of the pattern's own times. A pattern of fields
  begins with the first of its moved times after the stored time, so it does not matter when it is stored.
- No fire time is before `start`, and none is at `end` or later.
- Of a pattern of fields, all fire times lie on the days of `every`, each n-th day or week.
- No fire time lies on one of the days `excepted`, or of the `calendars`, as the clock of the pattern's zone shows them
  (UTC if it has none); one that stands for times that the clock skips is of the day of these. If they leave none for
  five years, a pattern has no further fire, as one of fields that matches nothing for as long.
- The fire times of an excepted day are left out, or have the same local times on the next or previous day that is not
  excepted (`on_excepted`). Fire times are a set: one that others move to is there once. All other bounds count after
  that.
- After the `limit`-th fire time that these bounds leave there is none. It is counted from the stored time, so all
  instances agree without a counter, and a fire that was missed counts too.

A pattern with calendars is another one after each edit. What no edit changes is its *possible* fire times: those that
an edit may leave, or move to another day, and without its limit, which is reached later the more days are excepted.
It answers with them as long as the days of one of its calendars are not known.

Cost: one more call for each question. Excepted days are masked out of the months of a pattern of fields, and so cost
some microseconds for each month that is searched, however many they are; those of an interval cost a microsecond for
each point that lies on one. Where excepted days move, a month costs some microseconds more, and each month is searched.
A limit costs a count from the stored time on, a microsecond for each month.
What else is to leave fire times out does it as days do: of a pattern of fields in `cron_fields.CronFields` (its search)
and `cron_fires` (its count), of others in a pattern around it, such as `_LessDays`. The engine learns nothing of it.
Limit: days are those of the Gregorian calendar; a range that ends before it begins is empty.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import gcd
from typing import Any

from nats_scheduler.schedule.calendars import Calendar, KnownCalendars
from nats_scheduler.schedule.cron_fires import HORIZON_YEARS
from nats_scheduler.schedule.days import NO_DAYS, DayRows, EveryNth, row_around, rows_between
from nats_scheduler.schedule.instants import DAY, SECOND
from nats_scheduler.schedule.patterns import Cron, Every, Pattern
from nats_scheduler.schedule.zones import UTC, Zone

MAX_LIMIT = 1_000
"""Most fires to which a schedule can be limited."""

MAX_COUNTED_NS = 50 * 366 * DAY
"""A limited pattern ends so long (ns) after its first possible fire time, since its fires are counted from there."""

MAX_EXCEPTED_POINTS = 400
"""An interval of which so many points follow each other on different rows of excepted days has no further fire."""

MAX_EXCEPTED_NS = HORIZON_YEARS * 366 * DAY
"""An interval of which all points lie on excepted days for so long (ns) has no further fire."""

_LONG_AGO = -(1 << 100)


class OnExcepted(StrEnum):
    """What happens to the fire times of an excepted day."""

    SKIP = "skip"
    """They are left out."""
    NEXT = "next"
    """They move to the next day that is not excepted."""
    PREVIOUS = "previous"
    """They move to the last day before that is not excepted."""


_STEPS = {OnExcepted.SKIP: 0, OnExcepted.NEXT: 1, OnExcepted.PREVIOUS: -1}


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of the fire times of a pattern; instants are nanoseconds since the Unix epoch, None is no bound."""

    start: int | None = None
    end: int | None = None
    limit: int | None = None
    """1 to `MAX_LIMIT`."""
    anchor: int | None = None
    """A whole second; only `@every` has a grid."""
    every: EveryNth | None = None
    """Only a pattern of fields has days."""
    excepted: DayRows = NO_DAYS
    calendars: tuple[Calendar, ...] = ()
    """By their names."""
    on_excepted: OnExcepted = OnExcepted.SKIP
    """Only those of a pattern of fields can move."""


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class _Around(Pattern):
    """A pattern that has other fire times than the one that it is made of."""

    base: Pattern = field()

    @property
    def repeats(self) -> bool:
        """True if the schedule may continue after its first fire."""
        return self.base.repeats

    @property
    def text(self) -> str:
        """The pattern as it was written."""
        return self.base.text


@dataclass(frozen=True, slots=True)
class _LessDays(_Around):
    """What excepted days, which are those of UTC, leave of an interval or of an `@at`."""

    excepted: tuple[DayRows, ...]

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Return the first fire time strictly after an instant; None if there is none, or only after too many days."""
        return self._search(after, stored_at) if self.repeats else None

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Return the last fire time in (after, until]."""
        found = self.base.latest_fire(after, until, stored_at)
        while found is not None and (row := row_around(self.excepted, found // DAY)) is not None:
            found = self.base.latest_fire(after, row.first * DAY - 1, stored_at)
        return found

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Return whether a schedule stored at `stored_at` fires at an instant."""
        return self.base.is_fire(instant, stored_at) and row_around(self.excepted, instant // DAY) is None

    def count(self, after: int, until: int, stored_at: int) -> int:
        """Return how many fire times there are in (after, until]."""
        count = self.base.count(after, until, stored_at)
        for row in rows_between(self.excepted, (after + 1) // DAY, until // DAY):
            begin, end = max(after, row.first * DAY - 1), min(until, (row.last + 1) * DAY - 1)
            count -= self.base.count(begin, end, stored_at)
        return count

    def _search(self, after: int, stored_at: int) -> int | None:
        found = first = self.base._search(after, stored_at)
        for _ in range(MAX_EXCEPTED_POINTS):
            if found is None or first is None or found > first + MAX_EXCEPTED_NS:
                return None
            if (row := row_around(self.excepted, found // DAY)) is None:
                return found
            found = self.base._search((row.last + 1) * DAY - 1, stored_at)
        return None


@dataclass(frozen=True, slots=True)
class _Moved(_Around):
    """The fire times of a pattern, each later by the same time (ns)."""

    by: int

    def first_fire(self, stored_at: int) -> int | None:
        """Return the first fire time, which may be past; None if there is none."""
        return self.next_fire(stored_at, stored_at) if self.repeats else self._moved(self.base.first_fire(stored_at))

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Return the first fire time strictly after an instant; None if the schedule has ended."""
        return self._moved(self.base.next_fire(after - self.by, self._stored_at(stored_at)))

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Return the last fire time in (after, until]."""
        return self._moved(self.base.latest_fire(after - self.by, until - self.by, self._stored_at(stored_at)))

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Return whether a schedule stored at `stored_at` fires at an instant."""
        return self.base.is_fire(instant - self.by, self._stored_at(stored_at))

    def count(self, after: int, until: int, stored_at: int) -> int:
        """Return how many fire times there are in (after, until]."""
        return self.base.count(after - self.by, until - self.by, self._stored_at(stored_at))

    def _search(self, after: int, stored_at: int) -> int | None:
        return self._moved(self.base._search(after - self.by, self._stored_at(stored_at)))

    def _moved(self, fire: int | None) -> int | None:
        return None if fire is None else fire + self.by

    def _stored_at(self, stored_at: int) -> int:
        """Return the stored time for which to ask the base: an interval counts from it, fields are later than it."""
        return stored_at if isinstance(self.base.base, Every) else stored_at - self.by


def _moved(base: Pattern, offset: int) -> Pattern:
    """Return a pattern whose fire times are later by an offset (ns)."""
    return _Moved(base, offset) if offset else base


@dataclass(frozen=True, slots=True)
class Bounded(_Around):
    """A pattern with bounds; it is a pattern itself."""

    bounds: Bounds
    offset: int = field(default=0)
    """How much later (ns) its fire times are than those of the base; less than a day."""
    left: Pattern = field(init=False, repr=False, compare=False)
    """What the bounds leave of the days of the base, and move, without its other bounds."""
    _on_days: Pattern = field(init=False, repr=False, compare=False)
    """The base on the days of `every` only, excepted ones too, moved by the offset."""
    _left: Pattern = field(init=False, repr=False, compare=False)
    """What the excepted days leave of that, and move."""

    def __post_init__(self) -> None:
        """Leave the days out, and move what is left."""
        on_days, every = self.base, self.bounds.every
        if every is not None and isinstance(on_days, Cron):
            on_days = replace(on_days, fields=replace(on_days.fields, every=every), _found=[])
        left = self._less_days(on_days)
        for name, pattern in (
            ("left", left),
            ("_on_days", _moved(on_days, self.offset)),
            ("_left", _moved(left, self.offset)),
        ):
            object.__setattr__(self, name, pattern)

    def _less_days(self, on_days: Pattern) -> Pattern:
        """Return what the excepted days leave of a pattern, and move."""
        excepted, step = self._excepted(), _STEPS[self.bounds.on_excepted]
        is_open = step != 0 and self.unknown_calendar is not None
        if not (excepted or is_open):
            return on_days
        if isinstance(on_days, Cron):
            return replace(on_days, fields=on_days.fields.without_days(excepted, step, is_open=is_open), _found=[])
        return _LessDays(on_days, excepted)

    @property
    def ends_by_itself(self) -> bool:
        """True if its publisher said that it has a last fire: bounds say so."""
        return True

    @property
    def zone(self) -> Zone | None:
        """The zone whose clock says which day it is; None is UTC."""
        return self.base.zone

    def first_fire(self, stored_at: int) -> int | None:
        """Return the first fire time that the bounds leave; None if there is none."""
        if self.repeats:
            return self.next_fire(stored_at, stored_at)
        only = self._on_days.first_fire(stored_at)
        return only if only is not None and self.is_fire(only, stored_at) else None

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Return the first fire time strictly after an instant; None if the schedule has ended."""
        begin, bounds = self._begin(stored_at), self.bounds
        found = self._left.next_fire(max(after, begin), self._grid(stored_at))
        if found is None or (bounds.end is not None and found >= bounds.end):
            return None
        is_first = after <= begin
        return found if is_first or self._is_within_limit(found, stored_at) else None

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Return the last fire time in (after, until]."""
        first, end, grid = self._span(after, until + 1, stored_at)
        return self._left.latest_fire(first, end - 1, grid)

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Return whether a schedule stored at `stored_at` fires at an instant."""
        end = self.bounds.end
        if instant < self._earliest or (end is not None and instant >= end):
            return False
        if not self._left.is_fire(instant, self._grid(stored_at)):
            return False
        return not self.repeats or (stored_at < instant and self._is_within_limit(instant, stored_at))

    def count(self, after: int, until: int, stored_at: int) -> int:
        """Return how many fire times in (after, until] the bounds leave."""
        first, end, grid = self._span(after, until + 1, stored_at)
        return self._left.count(first, end - 1, grid) if first < end else 0

    def latest_but(self, number: int, after: int, until: int, stored_at: int) -> int | None:
        """Return the first of the last `number` fire times in (after, until] that the bounds leave; None if no more."""
        first, end, grid = self._span(after, until + 1, stored_at)
        return self._left.latest_but(number, first, end - 1, grid) if first < end else None

    def by_minute(self, after: int, until: int, stored_at: int) -> Iterator[tuple[int, int]]:
        """Yield the minutes with fires in (after, until) that the bounds leave, as any pattern does."""
        first, end, grid = self._span(after, until, stored_at)
        return self._left.by_minute(first, end, grid)

    def grid(self, stored_at: int) -> Hashable:
        """Return itself and the stored time, which decide together."""
        return self, stored_at

    def excepted_fires(self, after: int, until: int, stored_at: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the last fire time of each row of excepted days between two instants.

        Cost: as many searches as there are fire times in (after, until) that are left, and two for each row.
        """
        at, end, grid = self._span(after, until, stored_at)
        while (found := self._on_days.next_fire(at, grid)) is not None and found < end:
            at, last = found, self._last_of_row(found - self.offset)
            if last is not None and not self._left.is_fire(found, grid):  # it may stand for a time of the day before
                at = min(last + self.offset, end - 1)
                yield found, self._on_days.latest_fire(found - 1, at, grid) or found

    @property
    def unknown_calendar(self) -> str | None:
        """The name of the first calendar whose days are not known: until they are, it must not fire."""
        return next((calendar.name for calendar in self.bounds.calendars if calendar.days is None), None)

    @property
    def possible(self) -> Bounded:
        """The pattern that no edit of a calendar changes: its fire times are those that an edit may leave."""
        if not self.bounds.calendars:
            return self
        return self._with(calendars=tuple(Calendar(one.name) for one in self.bounds.calendars), limit=None)

    def with_calendars(self, known: KnownCalendars) -> Bounded:
        """Return the pattern with the days of its calendars as they are known."""
        return self._with(calendars=tuple(known.calendar(one.name) for one in self.bounds.calendars))

    def _with(self, **bounds: Any) -> Bounded:
        return Bounded(self.base, replace(self.bounds, **bounds), self.offset)

    def _excepted(self) -> tuple[DayRows, ...]:
        """All days without fires: those of its own, and those of each calendar that is known."""
        bounds = self.bounds
        return tuple(days for days in (bounds.excepted, *(one.days for one in bounds.calendars)) if days)

    def leaves(self, instant: int) -> bool:
        """Return whether start, end and excepted days leave an instant, whether or not it is a fire time.

        Its day is that of the time that the offset moves there.
        """
        start, end = self.bounds.start, self.bounds.end
        is_within = (start is None or start <= instant) and (end is None or instant < end)
        return is_within and self._last_of_row(instant - self.offset) is None

    @property
    def _earliest(self) -> int:
        """The first instant that may be a fire time: the start, or the first point of a grid if that is later."""
        start, anchor = self.bounds.start, self.bounds.anchor
        earliest = _LONG_AGO if start is None else start
        return earliest if anchor is None or not isinstance(self.base, Every) else max(earliest, anchor + self.offset)

    def _begin(self, stored_at: int) -> int:
        """Return the instant after which all fire times lie, and from which they are counted."""
        return max(stored_at, self._earliest - 1)

    def _grid(self, stored_at: int) -> int:
        """Return from where the base counts: some steps before the anchor, which is a fire time itself.

        As many as are a number of whole seconds, because the base rounds where it begins to a second.
        """
        if self.bounds.anchor is None or not isinstance(self.base, Every):
            return stored_at
        interval = self.base.interval
        return self.bounds.anchor - interval * (SECOND // gcd(interval, SECOND))

    def _span(self, after: int, until: int, stored_at: int) -> tuple[int, int, int]:
        """Return the part of (after, until) in which the bounds leave what the excepted days leave.

        The third value is the stored time for which to ask what they leave.
        """
        end = until if self.bounds.end is None else min(until, self.bounds.end)
        return max(after, self._begin(stored_at)), self._limited(end, stored_at), self._grid(stored_at)

    def _limited(self, until: int, stored_at: int) -> int:
        """Return an instant, or the one behind the last fire time that the limit allows, if that is earlier."""
        limit = self._limit()
        if limit is None or not self.repeats:
            return until
        grid, early = self._grid(stored_at), self._begin(stored_at)
        late = min(until - 1, early + MAX_COUNTED_NS)
        if early >= late or self._left.count(early, late, grid) <= limit:
            return late + 1
        return self._left.nth_fire(limit, early, late, grid) + 1

    def _is_within_limit(self, fire: int, stored_at: int) -> bool:
        """Return whether the limit allows a fire time that all else leaves."""
        limit = self._limit()
        if limit is None:
            return True
        period = self._begin(stored_at), fire, self._grid(stored_at)
        if fire > period[0] + MAX_COUNTED_NS:
            return False
        is_cheap = self.bounds.on_excepted is OnExcepted.SKIP  # then a count of more is, and it may suffice
        return (is_cheap and self._on_days.count(*period) <= limit) or self._left.count(*period) <= limit

    def _limit(self) -> int | None:
        """The limit; None if there is none, and as long as the days of a calendar are not known."""
        return None if self.unknown_calendar is not None else self.bounds.limit

    def _last_of_row(self, instant: int) -> int | None:
        """Return the last instant of the excepted days around this one; None if its day is not one.

        It is earlier if the offset of the zone changes before that.
        """
        segment = (self.zone or UTC).segment_at(instant)
        offset = segment.offset * SECOND
        row = row_around(self._excepted(), (instant + offset) // DAY)
        if row is None:
            return None
        last = (row.last + 1) * DAY - offset - 1
        return last if segment.end is None else min(last, segment.end - 1)
