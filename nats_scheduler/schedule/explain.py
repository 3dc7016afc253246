"""A pattern in plain words: `every weekday at 09:30 in Berlin`.

The words say when the schedule fires, and nothing else; the oddities of how it is written have no words. A schedule
that is stored has a time from which `@every` counts; a pattern alone does not.
"""

from __future__ import annotations

from collections.abc import Iterator

from nats_scheduler.schedule.bounds import Bounded, Bounds, OnExcepted
from nats_scheduler.schedule.cron_words import cron_words, ordinal
from nats_scheduler.schedule.days import Days, day_text
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import DAY, HOUR, MINUTE, SECOND, round_to_second
from nats_scheduler.schedule.patterns import Cron, Every, Pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.schedule.zones import Zone

MAX_SHOWN_DAYS = 5
"""The largest number of days without fires that are named."""

IN_DAYS_FROM_NS = 2 * DAY
"""Intervals (ns) from here on are given in days; `@every 24h` is not every day at one time where clocks change."""

_UNITS = ((DAY, "day"), (HOUR, "hour"), (MINUTE, "minute"))

_CONTINENTS = frozenset(
    {"Africa", "America", "Antarctica", "Asia", "Atlantic", "Australia", "Europe", "Indian", "Pacific"}
)
"""The areas of zones that are named after a place: `Europe/Berlin`."""
_NO_PLACES = frozenset({"ACT", "LHI", "NSW", "North", "Queensland", "South", "Tasmania", "Victoria", "West"})
"""Old names of Australian zones."""


def explain_pattern(pattern: Pattern, stored_at: int | None = None) -> str:
    """Return when a schedule fires that is stored at an instant (ns), or, with None, that is not stored yet."""
    if isinstance(pattern, Bounded):
        anchor = pattern.bounds.anchor
        grid = stored_at if anchor is None else anchor
        moved = [f"each {format_duration(pattern.offset)} later"] if pattern.offset else []
        return ", ".join((explain_pattern(pattern.base, grid), *moved, *bounds_words(pattern.bounds)))
    if isinstance(pattern, Cron):
        return cron_words(pattern.fields, zone_words(pattern.zone))
    if isinstance(pattern, Every):
        start = "the time at which it is stored" if stored_at is None else format_rfc3339(round_to_second(stored_at))
        return f"every {interval_words(pattern.interval)}, counted from {start}"
    at = pattern.first_fire(0)
    assert at is not None, f"{pattern.text!r} fires never"
    return f"once, at {format_rfc3339(at)}"


def bounds_words(bounds: Bounds) -> Iterator[str]:
    """Yield what the bounds leave out: `not before 2026-10-01T00:00:00Z`, `at most 3 times`, `not on 2026-12-25`."""
    if (every := bounds.every) is not None:
        words = "in every {} week, counted from that of {}" if every.is_weeks else "on every {} day, counted from {}"
        yield f"only {words.format(ordinal(every.number), day_text(every.day))}"
    if bounds.start is not None:
        yield f"not before {format_rfc3339(bounds.start)}"
    if bounds.end is not None:
        yield f"not at or after {format_rfc3339(bounds.end)}"
    if bounds.limit is not None:
        yield "once" if bounds.limit == 1 else f"at most {bounds.limit:,} times"
    if bounds.excepted:
        shown = [days_words(days) for days in bounds.excepted[:MAX_SHOWN_DAYS]]
        more = len(bounds.excepted) - len(shown)
        yield f"not on {', '.join(shown)}" + (f" and {more:,} more days or ranges" if more else "")
    if bounds.calendars:
        names = " and ".join(calendar.name for calendar in bounds.calendars)
        yield f"not on the days of the calendar{'' if len(bounds.calendars) == 1 else 's'} {names}"
    if bounds.on_excepted is not OnExcepted.SKIP:
        yield f"but on the {bounds.on_excepted} other day instead"


def days_words(days: Days) -> str:
    """Return days in a row: `2026-12-25`, `2026-12-27 to 2027-01-01`."""
    first, last = map(day_text, days)
    return first if first == last else f"{first} to {last}"


def zone_words(zone: Zone | None) -> str:
    """Return the place that a zone is named after, `Berlin`, or its whole name; None is UTC."""
    if zone is None:
        return "UTC"
    if zone.name == "Local":
        return "the time zone of the host"
    area, _, place = zone.name.partition("/")
    is_place = area in _CONTINENTS and place not in _NO_PLACES and "/" not in place
    return place.replace("_", " ") if is_place else zone.name


def interval_words(nanoseconds: int) -> str:
    """Return an interval of at least a second: `1 hour 30 minutes`, `2.5 seconds`, `minute`."""
    parts, rest = [], nanoseconds
    for unit, name in _UNITS[0 if nanoseconds >= IN_DAYS_FROM_NS else 1 :]:
        count, rest = divmod(rest, unit)
        parts += [(str(count), name)] if count else []
    if rest:
        whole, fraction = divmod(rest, SECOND)
        parts.append((f"{whole}.{fraction:09}".rstrip("0") if fraction else str(whole), "second"))
    if len(parts) == 1 and parts[0][0] == "1":
        return parts[0][1]
    return " ".join(f"{count} {name}{'' if count == '1' else 's'}" for count, name in parts)
