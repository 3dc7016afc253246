"""Patterns: the value of `Nats-Schedule`, read once and asked for fires.

One rule: a pattern is immutable and knows nothing of now; every question carries its times, in nanoseconds since
the Unix epoch.
Three kinds fire in three ways: `At` once, `Every` on a grid that starts when the schedule was stored, `Cron` when the
wall clock matches.
Equal intervals share one object, and so do equal cron texts in equal zones, since many schedules of a fleet have the
same pattern; what was searched for one of them is the answer for all.
Cost: 2–3 µs to read an `@at`, 1 µs to read a known text, a few µs for a fire that has to be searched.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, Protocol

from nats_scheduler.schedule.cron import CronFields, parse_cron
from nats_scheduler.schedule.cron_search import latest_fire, next_fire
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import SECOND, ZERO_TIME, round_to_second
from nats_scheduler.schedule.invalid import Invalid, InvalidPattern, InvalidTimeZone
from nats_scheduler.schedule.mistakes import explain
from nats_scheduler.schedule.rfc3339 import format_rfc3339, is_as_printed, parse_rfc3339, usual_instant
from nats_scheduler.schedule.zones import Zone, load_zone

__all__ = ["ALIASES", "At", "Cron", "Every", "Invalid", "InvalidPattern", "InvalidTimeZone", "Pattern", "parse_pattern"]

ALIASES = {
    "@yearly": "0 0 0 1 1 *",
    "@annually": "0 0 0 1 1 *",
    "@monthly": "0 0 0 1 * *",
    "@weekly": "0 0 0 * * 0",
    "@daily": "0 0 0 * * *",
    "@midnight": "0 0 0 * * *",
    "@hourly": "0 0 * * * *",
}

_AT = b"@at "
_ZERO = ord("0")
_WHOLE_SECONDS = len("2026-11-20T15:04:05Z")

_MOST_TEXTS_KEPT = 16_384
_MOST_FIRES_KEPT = 2
"""A herd of equal patterns asks for the next fire and for the one behind it."""
_LONGEST_TEXT_KEPT = 256
"""Characters; a header may hold 64 KB, and what is kept must stay small."""


class Pattern(Protocol):
    """What all patterns answer; instants are nanoseconds since the Unix epoch."""

    repeats: ClassVar[bool]
    """Whether the schedule lives on after its first fire."""

    @property
    def text(self) -> str:
        """The pattern as it was given."""

    def first_fire(self, stored_at: int) -> int | None:
        """Give the first fire of a schedule stored at an instant; it may lie in the past. None: there is none."""

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Give the first fire strictly after an instant; None where the schedule has ended."""

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Give the last fire in (after, until], the one make-up fire that an outage is due."""

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Tell whether a schedule stored at `stored_at` fires at an instant."""

    def format(self, instant: int) -> str:
        """Print an instant as `Nats-Schedule-Next` does: RFC 3339 with nanoseconds, in the schedule's zone."""


class At:
    """`@at 2026-11-20T15:04:05Z`: fires once, at once where that is past.

    A value like the others, written out because of its text: where that is what the instant prints as, it is not
    kept, since a million of them would take 80 MB.
    """

    repeats: ClassVar[bool] = False
    __slots__ = ("_instant", "_written")

    def __init__(self, text: str | None, instant: int) -> None:
        """Fire at `instant`; `text` is None where it is what the instant prints as."""
        self._written = text
        self._instant = instant

    @property
    def text(self) -> str:
        """The pattern as it was given."""
        return f"@at {format_rfc3339(self._instant)}" if self._written is None else self._written

    @property
    def instant(self) -> int:
        """When it fires (ns)."""
        return self._instant

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
        """Give the instant, whenever the schedule was stored."""
        return self._instant

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Give None: one fire is all."""
        return None

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Give the instant where it lies in (after, until]."""
        return self.instant if after < self.instant <= until else None

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Tell whether this is the instant."""
        return instant == self._instant

    def format(self, instant: int) -> str:
        """Print an instant in UTC."""
        return format_rfc3339(instant)


@dataclass(frozen=True, slots=True)
class Every:
    """`@every 5m`: fires on a grid, the stored time rounded to the second + k x interval, k = 1, 2, …

    Fractions are honoured: nats-server rounds each fire to the second, so that 1.4s runs each second there.
    """

    repeats: ClassVar[bool] = True
    text: str
    interval: int
    """Nanoseconds, at least a second."""

    def first_fire(self, stored_at: int) -> int | None:
        """Give the first point of the grid."""
        return round_to_second(stored_at) + self.interval

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Give the first point of the grid strictly after an instant."""
        anchor = round_to_second(stored_at)
        return anchor + max((after - anchor) // self.interval + 1, 1) * self.interval

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Give the last point of the grid in (after, until]."""
        anchor = round_to_second(stored_at)
        steps = (until - anchor) // self.interval
        fire = anchor + steps * self.interval
        return fire if steps >= 1 and fire > after else None

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Tell whether an instant is a point of the grid."""
        anchor = round_to_second(stored_at)
        return instant > anchor and (instant - anchor) % self.interval == 0

    def format(self, instant: int) -> str:
        """Print an instant in UTC."""
        return format_rfc3339(instant)


@dataclass(frozen=True, slots=True)
class Cron:
    """`0 30 9 * * mon-fri`, or an alias: fires when the wall clock of its zone matches."""

    repeats: ClassVar[bool] = True
    text: str
    fields: CronFields = field(repr=False, compare=False)
    zone: Zone | None
    """None is UTC."""
    _found: list[tuple[int, int]] = field(default_factory=list, repr=False, compare=False)
    """Instants that were asked for and the first match behind each: what lies between has the same answer."""

    def first_fire(self, stored_at: int) -> int | None:
        """Give the first match strictly after the second in which the schedule was stored."""
        return self.next_fire(stored_at, stored_at)

    def next_fire(self, after: int, stored_at: int) -> int | None:
        """Give the first match strictly after an instant; None beyond the five-year horizon."""
        for start, fire in self._found:
            if start <= after < fire:
                return fire
        found = next_fire(self.fields, self.zone, after)
        if found is not None:
            self._found.insert(0, (after, found))
            del self._found[_MOST_FIRES_KEPT:]
        return found

    def latest_fire(self, after: int, until: int, stored_at: int) -> int | None:
        """Give the last match in (after, until]."""
        return latest_fire(self.fields, self.zone, after, until)

    def is_fire(self, instant: int, stored_at: int) -> bool:
        """Tell whether an instant matches, and comes after the schedule was stored."""
        return instant > stored_at and latest_fire(self.fields, self.zone, instant - 1, instant) == instant

    def format(self, instant: int) -> str:
        """Print an instant at the offset that the zone has then."""
        return format_rfc3339(instant, 0 if self.zone is None else self.zone.offset_at(instant))


def parse_pattern(text: str, time_zone: str | None = None) -> Pattern | InvalidPattern | InvalidTimeZone | None:
    """Read the values of `Nats-Schedule` and `Nats-Schedule-Time-Zone` (None: no such header).

    None means "no schedule": an empty text, or Go's zero time.
    The zone is looked at first, as the server does (`test_the_time_zone_is_checked_before_the_pattern`).
    """
    zone = None if time_zone is None else load_zone(time_zone)
    if isinstance(zone, InvalidTimeZone):
        return zone
    if text.startswith("@at "):
        return _parse_at(text) if zone is None else _zone_refused(text, "@at")
    is_kept = len(text) <= _LONGEST_TEXT_KEPT
    if text.startswith("@every "):
        if zone is not None:
            return _zone_refused(text, "@every")
        return _parse_known_every(text) if is_kept else _parse_every(text)
    if text == "":
        return None
    return _parse_known_cron(text, zone) if is_kept else _parse_cron(text, zone)


def usual_at(text: bytes, start: int, end: int) -> At | None:
    """Read `@at` and a time in UTC out of bytes, as `parse_pattern` does without a zone; None leaves it to that."""
    if not text.startswith(_AT, start):
        return None
    instant = usual_instant(text, start + len(_AT), end)
    if instant is None or instant == ZERO_TIME:
        return None
    is_printed = text[end - 2] != _ZERO or end - start == len(_AT) + _WHOLE_SECONDS
    return At(None if is_printed else text[start:end].decode(), instant)


def _zone_refused(text: str, kind: str) -> InvalidPattern:
    instead = "its time has an offset of its own" if kind == "@at" else "it counts from when it was stored"
    return InvalidPattern(text, f"{kind} takes no time zone, not even UTC: {instead}")


def _parse_at(text: str) -> At | InvalidPattern | None:
    """Read `@at TIME`.

    As the server does: Go's zero time is no schedule (`test_the_zero_time_is_no_schedule`).
    """
    time = text[4:]
    instant = parse_rfc3339(time)
    if isinstance(instant, Invalid):
        return InvalidPattern(text, explain(text, instant.reason, ALIASES))
    if instant == ZERO_TIME:
        return None
    return At(None if is_as_printed(time) else text, instant)


def _parse_every(text: str) -> Every | InvalidPattern:
    """Read `@every DURATION`."""
    interval = parse_duration(text[7:])
    if isinstance(interval, Invalid):
        return InvalidPattern(text, explain(text, interval.reason, ALIASES))
    if interval < SECOND:
        return InvalidPattern(text, "an interval is at least 1s")
    return Every(text, interval)


def _parse_cron(text: str, zone: Zone | None) -> Cron | InvalidPattern:
    """Read six fields or an alias."""
    fields = parse_cron(ALIASES.get(text, text))
    if isinstance(fields, Invalid):
        return InvalidPattern(text, explain(text, fields.reason, ALIASES))
    return Cron(text, fields, zone)


_parse_known_every = lru_cache(maxsize=_MOST_TEXTS_KEPT)(_parse_every)
_parse_known_cron = lru_cache(maxsize=_MOST_TEXTS_KEPT)(_parse_cron)
