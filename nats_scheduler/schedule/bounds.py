"""A pattern with bounds: a first and a last instant, a number of fires, days without fires, another start of its grid.

One rule: a bounded pattern answers the same questions as any pattern, so no caller has to know of bounds. Its fire
times are those of its own pattern, less what the bounds leave out: nothing is moved.

- The grid of `@every` begins at `anchor`, which is a fire time itself, instead of at the stored time.
- No fire time is before `start`, and none is at `end` or later.
- No fire time lies on one of the days `excepted`, or of the `calendars`, as the clock of the pattern's zone shows them
  (UTC if it has none).
- After the `limit`-th fire time that these bounds leave there is none. It is counted from the stored time, so all
  instances agree without a counter, and a fire that was missed counts too.

A pattern with calendars is another one after each edit. What no edit changes is its *possible* fire times: those that
are left if no calendar excepts a day, and without its limit, which is reached later the more days are excepted.
It answers with them as long as the days of one of its calendars are not known.

Cost: one more call for each question; some microseconds for each fire time up to `limit`, once for each schedule, but
for `@every` without excepted days.
Limit: days are those of the Gregorian calendar; a range that ends before it begins is empty.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from math import gcd

from nats_scheduler.schedule.calendars import Calendar, Days, KnownCalendars, in_order, row_around
from nats_scheduler.schedule.instants import DAY, SECOND
from nats_scheduler.schedule.patterns import Every, Pattern
from nats_scheduler.schedule.zones import UTC, Zone

MAX_LIMIT = 1_000
"""Most fires to which a schedule can be limited: they may have to be counted one by one."""

_MAX_CACHED_LASTS = 4_096

_LONG_AGO = -(1 << 100)
_NEVER = 1 << 100


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of the fire times of a pattern; instants are nanoseconds since the Unix epoch, None is no bound."""

    start: int | None = None
    end: int | None = None
    limit: int | None = None
    """1 to `MAX_LIMIT`."""
    anchor: int | None = None
    """A whole second; only `@every` has a grid."""
    excepted: tuple[Days, ...] = ()
    """In their order, without overlaps: see `schedule.calendars.in_order`."""
    calendars: tuple[Calendar, ...] = ()
    """By their names."""


NO_BOUNDS = Bounds()


@dataclass(frozen=True, slots=True)
class Bounded(Pattern):
    """A pattern with bounds; it is a pattern itself."""

    base: Pattern = field()
    bounds: Bounds

    @property
    def repeats(self) -> bool:
        """True if the schedule may continue after its first fire."""
        return self.base.repeats

    @property
    def ends_by_itself(self) -> bool:
        """True if its publisher said that it has a last fire: bounds say so."""
        return True

    @property
    def text(self) -> str:
        """The pattern as it was written."""
        return self.base.text

    def first_fire(self, stored_at: int) -> int | None:
        """Return the first fire time that the bounds leave; None if there is none."""
        if self.repeats:
            return self.next_fire(stored_at, stored_at)
        only = self.base.first_fire(stored_at)
        return None if only is None or not self._leaves(only) else only

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Return the first fire time strictly after an instant; None if the schedule has ended."""
        found = self._unlimited(after, stored_at)
        return None if found is None or found > _last_fire(self, stored_at) else found

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Return the last fire time in (after, until]."""
        after, end, grid = self.span(after, until + 1, stored_at)
        until = end - 1
        while after < until:
            found = self.base.latest_fire(after, until, grid)
            if found is None:
                return None
            exception = self._exception_around(found)
            if exception is None:
                return found
            until = exception[0] - 1
        return None

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Return whether a schedule stored at `stored_at` fires at an instant."""
        if not self._leaves(instant) or not self.base.is_fire(instant, self._grid(stored_at)):
            return False
        return not self.repeats or stored_at < instant <= _last_fire(self, stored_at)

    def count(self, after: int, until: int, stored_at: int) -> int:
        """Return how many fire times in (after, until] the bounds leave."""
        first, end, grid = self.span(after, until + 1, stored_at)
        left_out = sum(self.base.count(*period, grid) for period in self._excepted_periods(first, end - 1))
        return self.base.count(first, end - 1, grid) - left_out

    def by_minute(self, after: int, until: int, stored_at: int) -> Iterator[tuple[int, int]]:
        """Yield the minutes of its pattern that are on no excepted day, which begins and ends with a minute of UTC."""
        first, end, grid = self.span(after, until, stored_at)
        for minute, count in self.base.by_minute(first, end, grid):
            if self._exception_around(minute) is None:
                yield minute, count

    def grid(self, stored_at: int) -> Hashable:
        """Return itself and the stored time, which decide together."""
        return self, stored_at

    def span(self, after: int, until: int, stored_at: int) -> tuple[int, int, int]:
        """Return the part of (after, until) in which the base fires as the bounds leave it, but for excepted days.

        The third value is the stored time for which to ask the base.
        """
        bounds = self.bounds
        first = max(after, stored_at, self._earliest - 1)
        end = min(until, _last_fire(self, stored_at) + 1, _NEVER if bounds.end is None else bounds.end)
        return first, end, self._grid(stored_at)

    def excepted_fires(self, after: int, until: int, stored_at: int) -> Iterator[tuple[int, int]]:
        """Yield the first and the last fire time of each row of excepted days between two instants.

        Cost: as many searches as there are fire times in (after, until) that are left, and two for each row.
        """
        at, end, grid = self.span(after, until, stored_at)
        while (found := self.base.next_fire(at, grid)) is not None and found < end:
            at, row = found, self._exception_around(found)
            if row is not None:
                at = min(row[1], end - 1)
                yield found, self.base.latest_fire(found - 1, at, grid) or found

    @property
    def unknown_calendar(self) -> str | None:
        """The name of the first calendar whose days are not known: until they are, it must not fire."""
        return next((calendar.name for calendar in self.bounds.calendars if calendar.days is None), None)

    @property
    def excepted(self) -> tuple[Days, ...]:
        """All days without fires, those of calendars included, in their order and without overlaps."""
        calendars = self.bounds.calendars
        if not calendars:
            return self.bounds.excepted
        return in_order(chain(self.bounds.excepted, *(calendar.days or () for calendar in calendars)))

    @property
    def possible(self) -> Bounded:
        """The pattern that no edit of a calendar changes: its fire times are those that an edit may leave."""
        return Bounded(self.base, replace(self.bounds, calendars=(), limit=None)) if self.bounds.calendars else self

    def with_calendars(self, known: KnownCalendars) -> Bounded:
        """Return the pattern with the days of its calendars as they are known."""
        calendars = tuple(known.calendar(one.name) for one in self.bounds.calendars)
        return Bounded(self.base, replace(self.bounds, calendars=calendars))

    @property
    def _earliest(self) -> int:
        """The first instant that may be a fire time: the start, or the anchor of a grid if that is later."""
        start, anchor = self.bounds.start, self.bounds.anchor
        earliest = _LONG_AGO if start is None else start
        return earliest if anchor is None or not isinstance(self.base, Every) else max(earliest, anchor)

    def _grid(self, stored_at: int) -> int:
        """Return from where the base counts: some steps before the anchor, which is a fire time itself.

        As many as are a number of whole seconds, because the base rounds where it begins to a second.
        """
        if self.bounds.anchor is None or not isinstance(self.base, Every):
            return stored_at
        interval = self.base.interval
        return self.bounds.anchor - interval * (SECOND // gcd(interval, SECOND))

    def _unlimited(self, after: int, stored_at: int) -> int | None:
        """Return the first fire time strictly after an instant, without regard to the limit."""
        bounds, grid = self.bounds, self._grid(stored_at)
        after = max(after, stored_at, self._earliest - 1)
        while True:
            found = self.base.next_fire(after, grid)
            if found is None or (bounds.end is not None and found >= bounds.end):
                return None
            exception = self._exception_around(found)
            if exception is None:
                return found
            after = exception[1]

    def _leaves(self, instant: int) -> bool:
        """Return whether the bounds leave an instant, without regard to the limit."""
        bounds = self.bounds
        if instant < self._earliest:
            return False
        if bounds.end is not None and instant >= bounds.end:
            return False
        return self._exception_around(instant) is None

    def _exception_around(self, instant: int) -> tuple[int, int] | None:
        """Return the first and last instant of a period around this one on excepted days; None if its day is not one.

        The period ends with the days, or where the offset of the zone changes before that.
        """
        bounds = self.bounds
        if not bounds.excepted and not bounds.calendars:
            return None
        segment = (self.zone or UTC).segment_at(instant)
        offset = segment.offset * SECOND
        day = (instant + offset) // DAY
        rows = (row_around(days, day) for days in (bounds.excepted, *(one.days or () for one in bounds.calendars)))
        row = next((row for row in rows if row is not None), None)
        if row is None:
            return None
        first, last = row.first * DAY - offset, (row.last + 1) * DAY - offset - 1
        if segment.start is not None:
            first = max(first, segment.start)
        if segment.end is not None:
            last = min(last, segment.end - 1)
        return first, last

    def _excepted_periods(self, after: int, until: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of (after, until] that lie on excepted days, each as the instants before and at its end."""
        excepted, at = self.excepted, after + 1
        while excepted and at <= until:
            segment = (self.zone or UTC).segment_at(at)
            offset = segment.offset * SECOND
            last = until if segment.end is None else min(until, segment.end - 1)
            for days in excepted:
                begin, end = max(at, days.first * DAY - offset), min(last, (days.last + 1) * DAY - offset - 1)
                if begin <= end:
                    yield begin - 1, end
            at = last + 1

    @property
    def zone(self) -> Zone | None:
        """The zone whose clock says which day it is; None is UTC."""
        return self.base.zone


def _last_fire(bounded: Bounded, stored_at: int) -> int:
    """Return the last fire time that the limit allows; any, as long as the days of a calendar are not known."""
    if bounded.bounds.limit is None or bounded.unknown_calendar is not None:
        return _NEVER
    return _nth_fire(bounded, stored_at, bounded.bounds.limit)


@lru_cache(maxsize=_MAX_CACHED_LASTS)
def _nth_fire(bounded: Bounded, stored_at: int, number: int) -> int:
    """Return the fire time with a number, 1 for the first; a later instant than any if there are fewer."""
    base, fire = bounded.base, bounded._unlimited(stored_at, stored_at)
    if fire is None:
        return _NEVER
    if isinstance(base, Every) and not (bounded.bounds.excepted or bounded.bounds.calendars):
        return fire + (number - 1) * base.interval
    for _ in range(number - 1):
        following = bounded._unlimited(fire, stored_at)
        if following is None:
            return _NEVER
        fire = following
    return fire
