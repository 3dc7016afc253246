"""Patterns: the value of `Nats-Schedule`, parsed once, which then returns fire times.

One rule: a pattern is immutable and does not read the clock; every method takes its times as arguments, in nanoseconds
since the Unix epoch.
There are three kinds: `At` fires once, `Every` on a grid that starts when the schedule was stored, and `Cron` when the
wall clock matches.
Many schedules of a fleet have the same pattern. Therefore equal intervals share one object, and so do equal cron texts
in equal zones; a search for one schedule answers all of them.
Cost: 2–3 µs to parse an `@at`, 1 µs for a text that is cached, a few µs for a fire time that has to be searched.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

from nats_scheduler.schedule.clock_policy import BY_THE_CLOCK, ClockPolicy
from nats_scheduler.schedule.cron import parse_cron
from nats_scheduler.schedule.cron_fields import CronFields
from nats_scheduler.schedule.cron_fires import count_fires, latest_fire, next_fire
from nats_scheduler.schedule.cron_syntax import Syntax, parse_syntax
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import MINUTE, SECOND, ZERO_TIME_NS, round_to_second
from nats_scheduler.schedule.invalid import Invalid, InvalidPattern, InvalidTimeZone
from nats_scheduler.schedule.mistakes import explain
from nats_scheduler.schedule.rfc3339 import USUAL_TIME, format_rfc3339, is_as_printed, parse_rfc3339, usual_instant
from nats_scheduler.schedule.zones import Zone, load_zone

__all__ = [
    "ALIASES",
    "At",
    "Cron",
    "Every",
    "Invalid",
    "InvalidPattern",
    "InvalidTimeZone",
    "Pattern",
    "PatternKind",
    "Syntax",
    "kind_of",
    "parse_pattern",
]

ALIASES = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}

USUAL_AT = b"@at " + USUAL_TIME
"""`@at` and a time in UTC, as a part of a regular expression; `usual_at` takes its groups."""

_MAX_CACHED_PATTERNS = 16_384
"""Of the longest texts this is some 10 MB."""
_MAX_CACHED_FIRES = 2
"""In a burst, equal patterns are asked for the next fire time and for the one after it."""
_MAX_CACHED_PATTERN_CHARS = 128
"""Longer patterns are not cached: a header may hold 64 KB, and the cache must stay small."""


class Pattern:
    """The base of all patterns; instants are nanoseconds since the Unix epoch."""

    __slots__ = ()

    @property
    def text(self) -> str:
        """The pattern as it was written."""
        raise NotImplementedError

    @property
    def repeats(self) -> bool:
        """True if the schedule may continue after its first fire."""
        return True

    @property
    def ends_by_itself(self) -> bool:
        """True if its publisher said that it has a last fire."""
        return False

    @property
    def base(self) -> Pattern:
        """The pattern without bounds (`schedule.bounds`): most often itself."""
        return self

    @property
    def offset(self) -> int:
        """How much later (ns) its fire times are than those of its base (`schedule.bounds`)."""
        return 0

    @property
    def possible(self) -> Pattern:
        """The pattern that no edit of a calendar changes: its fire times are those that an edit may leave."""
        return self

    @property
    def unknown_calendar(self) -> str | None:
        """The name of the first calendar whose days are not known: until they are, it must not fire."""
        return None

    @property
    def zone(self) -> Zone | None:
        """The zone whose clock says when it fires; None is UTC, or a pattern that takes no zone."""
        return None

    @property
    def time_zone(self) -> str | None:
        """The name of its time zone as it was written, None if it has none of its own."""
        return None if self.zone is None else self.zone.name

    def first_fire(self, stored_at: int) -> int | None:
        """Return the first fire time of a schedule that was stored at an instant, which may be past; None if none."""
        return self.next_fire(stored_at, stored_at)

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Return the first fire time strictly after an instant; None if the schedule has ended."""
        raise NotImplementedError

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Return the last fire time in (after, until], for which one make-up fire is sent after an outage."""
        raise NotImplementedError

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Return whether a schedule stored at `stored_at` fires at an instant."""
        raise NotImplementedError

    def count(self, after: int, until: int, stored_at: int) -> int:
        """Return how many fire times there are in (after, until], without finding each of them."""
        raise NotImplementedError

    def latest_but(self, number: int, after: int, until: int, stored_at: int) -> int | None:
        """Return the first of the last `number` fire times (1 or more) in (after, until]; None if there are no more.

        Cost: that of `nth_fire`.
        """
        count = self.count(after, until, stored_at)
        return None if count <= number else self.nth_fire(count - number + 1, after, until, stored_at)

    def nth_fire(self, number: int, after: int, until: int, stored_at: int) -> int:
        """Return the fire time with a number in (after, until], which has at least so many; 1 is the first.

        Cost: some sixty counts, of half of the time, a quarter of it, and so on; no fire time is searched.
        """
        early, late, left = after, until, number
        while late - early > 1:
            middle = (early + late) // 2
            count = self.count(early, middle, stored_at)
            if count < left:
                early, left = middle, left - count
            else:
                late = middle
        return late

    def by_minute(self, after: int, until: int, stored_at: int) -> Iterator[tuple[int, int]]:
        """Yield the start of each minute of UTC (ns) with fires in (after, until), and how many there are; in order.

        There is one search for each such minute. It does not use what `next_fire` keeps, which belongs to the fires.
        """
        while (fire := self._search(after, stored_at)) is not None and fire < until:
            minute = fire - fire % MINUTE
            after = min(minute + MINUTE, until) - 1
            yield minute, self.count(fire - 1, after, stored_at)

    def grid(self, stored_at: int) -> Hashable:
        """Return what schedules have in common whose fires lie at the same instants, as long as both patterns exist."""
        return id(self)

    def _search(self, after: int, stored_at: int) -> int | None:
        """Return the first fire time strictly after an instant."""
        return self.next_fire(after, stored_at)

    def format(self, instant: int) -> str:
        """Print an instant as `Nats-Schedule-Next` does: RFC 3339 with nanoseconds, in the schedule's zone."""
        return format_rfc3339(instant, 0 if self.zone is None else self.zone.offset_at(instant))


class At(Pattern):
    """`@at 2026-11-20T15:04:05Z`: fires once, and immediately if that time is past.

    It is a value like the other patterns, but not a dataclass, because of its text: if the text is equal to the printed
    instant, it is not stored, since a million of them would take 80 MB.
    """

    __slots__ = ("instant", "written")

    def __init__(self, text: str | None, instant: int) -> None:
        """Fire at `instant`; `text` is None if it is equal to the printed instant."""
        self.written = text
        """The pattern as it was written; None if that is equal to the printed instant."""
        self.instant = instant
        """The instant (ns) at which it fires."""

    @property
    def repeats(self) -> bool:
        """True if the schedule may continue after its first fire."""
        return False

    @property
    def ends_by_itself(self) -> bool:
        """True if its publisher said that it has a last fire."""
        return True

    @property
    def text(self) -> str:
        """The pattern as it was written."""
        return f"@at {format_rfc3339(self.instant)}" if self.written is None else self.written

    def __eq__(self, other: object) -> bool:
        """Compare by value."""
        return isinstance(other, At) and (self.instant, self.text) == (other.instant, other.text)

    def __hash__(self) -> int:
        """Hash by value."""
        return hash(self.instant)

    def __repr__(self) -> str:
        """Show the value."""
        return f"At(text={self.text!r}, instant={self.instant!r})"

    def first_fire(self, stored_at: int) -> int | None:
        """Return the instant, which does not depend on when the schedule was stored."""
        return self.instant

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Return None: there is only one fire."""
        return None

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Return the instant if it lies in (after, until]."""
        return self.instant if after < self.instant <= until else None

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Return whether this is the instant."""
        return instant == self.instant

    def count(self, after: int, until: int, stored_at: int) -> int:
        """Return whether the instant lies in (after, until], as a number."""
        return int(after < self.instant <= until)

    def _search(self, after: int, stored_at: int) -> int | None:
        return self.instant if after < self.instant else None


@dataclass(frozen=True, slots=True)
class Every(Pattern):
    """`@every 5m`: fires on a grid, the stored time rounded to the second + k x interval, k = 1, 2, …

    Fractions of a second count. nats-server rounds each fire time to the second, so `@every 1.4s` fires each second
    there.
    """

    text: str = field()
    interval: int
    """Nanoseconds, at least a second."""

    def first_fire(self, stored_at: int) -> int | None:
        """Return the first point of the grid."""
        return round_to_second(stored_at) + self.interval

    def next_fire(self, after: int, stored_at: int) -> int:
        """Return the first point of the grid strictly after an instant."""
        anchor = round_to_second(stored_at)
        return anchor + max((after - anchor) // self.interval + 1, 1) * self.interval

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Return the last point of the grid in (after, until]."""
        anchor = round_to_second(stored_at)
        steps = (until - anchor) // self.interval
        fire = anchor + steps * self.interval
        return fire if steps >= 1 and fire > after else None

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Return whether an instant is a point of the grid."""
        anchor = round_to_second(stored_at)
        return instant > anchor and (instant - anchor) % self.interval == 0

    def count(self, after: int, until: int, stored_at: int) -> int:
        """Return how many points of the grid there are in (after, until]."""
        return max((until - self.next_fire(after, stored_at)) // self.interval + 1, 0)

    def grid(self, stored_at: int) -> Hashable:
        """Return the interval and where its grid lies."""
        return self.interval, round_to_second(stored_at) % self.interval


@dataclass(frozen=True, slots=True)
class Cron(Pattern):
    """`0 30 9 * * mon-fri`, or an alias: fires when the wall clock of its zone matches."""

    text: str = field()
    fields: CronFields = field(repr=False, compare=False)
    zone: Zone | None = field()
    """None is UTC."""
    _found: list[tuple[int, int]] = field(default_factory=list, repr=False, compare=False)
    """Pairs of a searched instant and the first match after it: every instant between the two has the same match."""
    syntax: Syntax | None = field(default=None, repr=False)
    """The syntax of its text if it is not the server's grammar: `30 9 * * mon-fri` or `0 30 9 ? * L5 2027`."""
    clock: ClockPolicy = field(default=BY_THE_CLOCK, repr=False)
    """What it does when the clock of its zone is changed."""

    @property
    def ends_by_itself(self) -> bool:
        """True if its publisher said that it has a last fire: one that names years has."""
        return self.fields.years is not None

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Return the first match strictly after an instant; None beyond the five-year horizon."""
        for start, fire in self._found:
            if start <= after < fire:
                return fire
        found = self._search(after, stored_at)
        if found is not None:
            self._found.insert(0, (after, found))
            del self._found[_MAX_CACHED_FIRES:]
        return found

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Return the last match in (after, until]."""
        return latest_fire(self.fields, self.zone, self.clock, after, until)

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Return whether an instant matches and is later than the stored time."""
        return instant > stored_at and self.latest_fire(instant - 1, instant, stored_at) == instant

    def count(self, after: int, until: int, stored_at: int) -> int:
        """Return how many matches there are in (after, until]."""
        return count_fires(self.fields, self.zone, self.clock, after, until)

    def _search(self, after: int, stored_at: int) -> int | None:
        return next_fire(self.fields, self.zone, self.clock, after)


class PatternKind(StrEnum):
    """The kind of a pattern."""

    AT = "at"
    EVERY = "every"
    CRON = "cron"


_KINDS: dict[type[Pattern], PatternKind] = {
    At: PatternKind.AT,
    Every: PatternKind.EVERY,
    Cron: PatternKind.CRON,
}
"""The kind of each class of patterns without bounds."""


def kind_of(pattern: Pattern) -> PatternKind:
    """Return the kind of a pattern."""
    return _KINDS[type(pattern.base)]


def parse_pattern(
    text: str, time_zone: str | None = None, syntax: Syntax | None = None
) -> Pattern | InvalidPattern | InvalidTimeZone | None:
    """Parse the values of `Nats-Schedule` and `Nats-Schedule-Time-Zone` (None: no such header).

    With a syntax, the text is in its grammar and not in the server's; aliases are the same in each.
    Return None for "no schedule": an empty text, or Go's zero time.
    As the server does: the zone is checked first (`test_the_time_zone_is_checked_before_the_pattern`).
    """
    zone = None if time_zone is None else load_zone(time_zone)
    if isinstance(zone, InvalidTimeZone):
        return zone
    if syntax is None and text.startswith("@at "):
        return _parse_at(text) if zone is None else _reject_zone(text, "@at")
    if text == "":
        return None
    return (_parse_cached if len(text) <= _MAX_CACHED_PATTERN_CHARS else _parse)(text, zone, syntax)


def with_clock(pattern: Cron, policy: ClockPolicy) -> Cron:
    """Return a pattern with another policy for changes of the clock; equal ones share one object."""
    return (_with_clock_cached if len(pattern.text) <= _MAX_CACHED_PATTERN_CHARS else _with_clock)(pattern, policy)


def _with_clock(pattern: Cron, policy: ClockPolicy) -> Cron:
    return replace(pattern, clock=policy, _found=[])


_with_clock_cached = lru_cache(maxsize=_MAX_CACHED_PATTERNS)(_with_clock)


def usual_at(minute: bytes, second: bytes, digits: bytes | None) -> At | None:
    """Return the pattern of a `USUAL_AT` from its groups, as `parse_pattern` does without a zone; None: it reads none.

    `minute` is the text up to the minute, and `digits` are those of the fraction.
    """
    instant = usual_instant(minute, second, digits)
    if instant is None or instant == ZERO_TIME_NS:
        return None
    if digits is None or not digits.endswith(b"0"):
        return At(None, instant)
    return At((b"@at %b%b.%bZ" % (minute, second, digits)).decode(), instant)


def _reject_zone(text: str, kind: str) -> InvalidPattern:
    instead = "its time has an offset of its own" if kind == "@at" else "it counts from the time at which it was stored"
    return InvalidPattern(text, f"{kind} takes no time zone, not even UTC: {instead}")


def _parse_at(text: str) -> At | InvalidPattern | None:
    """Parse `@at TIME`.

    As the server does: Go's zero time is no schedule (`test_the_zero_time_is_no_schedule`).
    """
    time = text[4:]
    instant = parse_rfc3339(time)
    if isinstance(instant, Invalid):
        return InvalidPattern(text, explain(text, instant.reason, ALIASES))
    if instant == ZERO_TIME_NS:
        return None
    return At(None if is_as_printed(time) else text, instant)


def _parse(text: str, zone: Zone | None, syntax: Syntax | None) -> Every | Cron | InvalidPattern:
    """Parse a pattern that repeats."""
    if syntax is not None:
        return _parse_syntax(text, zone, syntax)
    if text.startswith("@every "):
        return _parse_every(text) if zone is None else _reject_zone(text, "@every")
    fields = parse_cron(ALIASES.get(text, text))
    if isinstance(fields, Invalid):
        return InvalidPattern(text, explain(text, fields.reason, ALIASES))
    return Cron(text, fields, zone)


_parse_cached = lru_cache(maxsize=_MAX_CACHED_PATTERNS)(_parse)


def _parse_every(text: str) -> Every | InvalidPattern:
    """Parse `@every DURATION`."""
    interval = parse_duration(text[7:])
    if isinstance(interval, Invalid):
        return InvalidPattern(text, explain(text, interval.reason, ALIASES))
    if interval < SECOND:
        return InvalidPattern(text, "an interval is at least 1s")
    return Every(text, interval)


def _parse_syntax(text: str, zone: Zone | None, syntax: Syntax) -> Cron | InvalidPattern:
    """Parse the fields of a syntax, or an alias."""
    stands_for = ALIASES.get(text)
    if stands_for is None and text.startswith("@"):
        return InvalidPattern(text, f"expected the fields of {syntax}, or one of {', '.join(ALIASES)}")
    fields = parse_syntax(text, syntax) if stands_for is None else parse_cron(stands_for)
    if isinstance(fields, Invalid):
        return InvalidPattern(text, fields.reason)
    return Cron(text, fields, zone, syntax=syntax)
