"""The choices of a person, and the pattern that they stand for: on some weekdays at 09:30 in Europe/Berlin.

The rules:

- The choices are texts of a form. Each one that is wrong is named with what was expected, and nothing is built then.
- What is built is read by the parser of patterns, as what is typed is, and has the words of `schedule.explain`.
- A pattern that no choices stand for has empty ones; of what is built, the choices build the same again.

Cost: some microseconds, and the search of a time zone.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, TypeVar

from nats_scheduler.schedule.cron import FIELDS
from nats_scheduler.schedule.cron_fields import STAR, CronFields, values_of
from nats_scheduler.schedule.cron_syntax import Syntax
from nats_scheduler.schedule.cron_words import MONTHS, WEEKDAYS
from nats_scheduler.schedule.explain import explain_pattern
from nats_scheduler.schedule.instants import DAY, HOUR, MINUTE, SECOND, days_in_month
from nats_scheduler.schedule.invalid import FaultError, Invalid
from nats_scheduler.schedule.patterns import At, Cron, Every, Pattern, parse_pattern
from nats_scheduler.schedule.rfc3339 import format_rfc3339, parse_rfc3339
from nats_scheduler.schedule.zones import UTC, Zone
from nats_scheduler.web.reader_zone import zone_called

T = TypeVar("T")


class Kind(StrEnum):
    """How often a schedule fires."""

    ONCE = "once"
    EVERY = "every"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    YEAR = "year"


KINDS: Mapping[str, str] = {
    Kind.ONCE: "once, at a date and time",
    Kind.EVERY: "every so often",
    Kind.DAY: "each day",
    Kind.WEEK: "on some weekdays",
    Kind.MONTH: "on a day of each month",
    Kind.YEAR: "on a day of each year",
}
"""The words for each kind."""

UNITS: Mapping[str, int] = {"days": DAY, "hours": HOUR, "minutes": MINUTE, "seconds": SECOND}
"""The units of an interval, in nanoseconds."""

_NAMES_OF_MONTHS, _NAMES_OF_WEEKDAYS = FIELDS[4].names, FIELDS[5].names
_SUFFIXES = {"days": (24, "h"), "hours": (1, "h"), "minutes": (1, "m"), "seconds": (1, "s")}

WEEKDAY_NAMES: Mapping[str, str] = {day[:3].lower(): day for day in WEEKDAYS}
"""The weekdays as patterns name them, and their whole names."""

MONTH_NAMES: Mapping[str, str] = dict(zip(_NAMES_OF_MONTHS, MONTHS, strict=True))
"""The months as patterns name them, and their whole names."""

_WORKDAYS = tuple(WEEKDAY_NAMES)[:5]
_EVERY_MONTH = (1 << 13) - 2
_LEAP_YEAR = 2000
_SHORTEST_MONTH = 28
_NEARBY = 2 * DAY
"""More than any two offsets of a zone differ by."""
_MAX_SHOWN_CHARS = 40

_date = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch
_time = re.compile(r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?").fullmatch
_number = re.compile(r"[0-9]{1,9}").fullmatch


@dataclass(frozen=True, slots=True)
class Choices:
    """What a person chose, as the texts of a form; which of them count depends on the kind."""

    kind: str = ""
    date: str = ""
    """Of a schedule that fires once: `2026-12-24`."""
    number: str = ""
    """Of units, between two fires."""
    unit: str = ""
    weekdays: tuple[str, ...] = ()
    day: str = ""
    """Of the month."""
    month: str = ""
    time: str = ""
    """Of the day: `09:30`, or with seconds."""
    zone: str = ""
    """The name of a time zone, "" for UTC."""


NONE_CHOSEN = Choices()


class Built(NamedTuple):
    """A pattern that choices stand for."""

    pattern: str
    time_zone: str
    """"" for UTC, and beside a pattern that takes no zone."""
    words: str
    """When it fires, in plain words."""
    notes: tuple[str, ...] = ()
    """What a person may not expect of it."""


class Wrong(NamedTuple):
    """Why choices stand for no pattern."""

    faults: Mapping[str, str]
    """The names of the choices that are wrong: what each is, and what was expected."""


def build(choices: Choices, syntax: Syntax | None = None) -> Built | Wrong:
    """Return the pattern that choices stand for, in the syntax that the policies of the schedule name."""
    if choices.kind not in KINDS:
        return Wrong(
            {"kind": _not_expected("a choice", choices.kind, f"how often it fires, one of {', '.join(KINDS)}")}
        )
    reading = _Reading(choices)
    if choices.kind == Kind.ONCE:
        pattern, notes = _once(reading)
    elif choices.kind == Kind.EVERY:
        pattern, notes = _every(reading)
    else:
        pattern, notes = _cron(reading, syntax)
    if reading.faults:
        return Wrong(reading.faults)
    is_cron = not pattern.startswith("@")
    zone = choices.zone if is_cron else ""
    found = parse_pattern(pattern, zone or None, syntax if is_cron else None)
    if found is None or isinstance(found, Invalid):
        # Of values that are right one by one, only an interval may be too long, and one instant no time to a server.
        reason = "to a server this is no time" if found is None else found.reason
        return Wrong({"number" if choices.kind == Kind.EVERY else "date": f"'{pattern}': {reason}"})
    return Built(pattern, zone, explain_pattern(found), notes)


def choices_of(text: str, time_zone: str, syntax: Syntax | None = None) -> Choices:
    """Return the choices that stand for a pattern with a time zone ("" for UTC); empty ones if there are none."""
    pattern = parse_pattern(text, time_zone or None, syntax)
    if pattern is None or isinstance(pattern, Invalid):
        return NONE_CHOSEN
    choices = _choices_of(pattern)
    again = build(choices, syntax)
    if isinstance(again, Wrong):
        return NONE_CHOSEN
    built = parse_pattern(again.pattern, again.time_zone or None, None if again.pattern.startswith("@") else syntax)
    is_same = isinstance(built, Pattern) and _meaning(built) == _meaning(pattern)
    return choices if is_same else NONE_CHOSEN


# -- from choices to a pattern -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Reading:
    """Choices that are being read, and what is wrong with them so far."""

    choices: Choices
    faults: dict[str, str] = field(default_factory=dict)

    def read(self, name: str, reader: Callable[[str], T], otherwise: T) -> T:
        """Return what a choice says; if it is wrong, note that and return `otherwise`."""
        try:
            return reader(getattr(self.choices, name))
        except FaultError as fault:
            self.faults[name] = fault.reason
            return otherwise


def _not_expected(what: str, given: str, expected: str) -> str:
    shown = given if len(given) <= _MAX_SHOWN_CHARS else f"{given[:_MAX_SHOWN_CHARS]}…"
    return f"{what} of '{shown}': expected {expected}"


def _once(reading: _Reading) -> tuple[str, tuple[str, ...]]:
    date, time = reading.read("date", _read_date, ""), reading.read("time", _read_time, (0, 0, 0))
    zone = reading.read("zone", _read_zone, UTC)
    if reading.faults:
        return "", ()
    clock = "{:02}:{:02}:{:02}".format(*time)
    local = parse_rfc3339(f"{date}T{clock}Z")
    if isinstance(local, Invalid):
        reading.faults["date"] = _not_expected("a date", date, f"a day that exists: {local.reason}")
        return "", ()
    found = _instants_of(local, zone)
    if not found:
        reason = f"{date} {clock} does not exist in {zone.name}, where the clock goes forward over it"
        reading.faults["time"] = _not_expected("a time", reading.choices.time, f"one that exists: {reason}")
        return "", ()
    patterns = [_at(instant, zone) for instant in found]
    notes = tuple(
        f"the clock goes back, so this time comes twice: it is the first, and the second is {second}"
        for second in patterns[1:]
    )
    return patterns[0], notes


def _instants_of(local: int, zone: Zone) -> list[int]:
    """Return the instants (ns) at which the clock of a zone shows a local time; none, one or two of them."""
    found, segment = [], zone.segment_at(local - _NEARBY)
    while True:
        instant = local - segment.offset * SECOND
        if (segment.start is None or segment.start <= instant) and (segment.end is None or instant < segment.end):
            found.append(instant)
        if segment.end is None or segment.end > local + _NEARBY:
            return found
        segment = zone.segment_at(segment.end)


def _at(instant: int, zone: Zone) -> str:
    """Return the pattern of one fire, with the offset of the zone if a text of a time can have it."""
    offset = zone.offset_at(instant)
    return f"@at {format_rfc3339(instant, 0 if offset % 60 else offset)}"


def _every(reading: _Reading) -> tuple[str, tuple[str, ...]]:
    number, unit = reading.read("number", _read_number, 1), reading.read("unit", _read_unit, "seconds")
    count, suffix = _SUFFIXES[unit]
    is_of_days = unit == "days"
    notes = ("a day is 24 hours here, also where a clock changes: each day at one time is another choice",)
    return f"@every {number * count}{suffix}", notes if is_of_days else ()


def _cron(reading: _Reading, syntax: Syntax | None) -> tuple[str, tuple[str, ...]]:
    hour, minute, second = reading.read("time", _read_time, (0, 0, 0))
    reading.read("zone", _read_zone, UTC)
    of_month, month, of_week = "*", "*", "*"
    notes: tuple[str, ...] = ()
    match reading.choices.kind:
        case Kind.WEEK:
            of_week = _weekdays(reading)
        case Kind.MONTH:
            day = reading.read("day", _read_day(""), 1)
            of_month = str(day)
            notes = (f"a month without a day {day} has no fire",) if day > _SHORTEST_MONTH else ()
        case Kind.YEAR:
            month = reading.read("month", _read_month, "")
            of_month = str(reading.read("day", _read_day(month), 1))
    if syntax is not Syntax.CRONTAB:
        return f"{second} {minute} {hour} {of_month} {month} {of_week}", notes
    if second:
        expected = f"no seconds beside a policy Syntax: {syntax}, whose patterns have none"
        reading.faults["time"] = _not_expected("a time", reading.choices.time, expected)
    return f"{minute} {hour} {of_month} {month} {of_week}", notes


def _weekdays(reading: _Reading) -> str:
    chosen = reading.choices.weekdays
    wrong = next((one for one in chosen if one not in WEEKDAY_NAMES), None)
    if wrong is not None or not chosen:
        expected = f"one or more of {', '.join(WEEKDAY_NAMES)}"
        reading.faults["weekdays"] = _not_expected("a weekday", wrong or "", expected)
        return "*"
    days = tuple(one for one in WEEKDAY_NAMES if one in chosen)
    if len(days) == len(WEEKDAY_NAMES):
        return "*"
    return "mon-fri" if days == _WORKDAYS else ",".join(days)


def _read_date(text: str) -> str:
    if not _date(text):
        raise FaultError(_not_expected("a date", text, "year, month and day, such as 2026-12-24"))
    return text


def _read_time(text: str) -> tuple[int, int, int]:
    parts = _time(text)
    hour, minute, second = (int(part or 0) for part in parts.groups()) if parts else (24, 0, 0)
    if hour > 23 or minute > 59 or second > 59:
        expected = "hours and minutes, 00:00 to 23:59, such as 09:30, or with seconds, 09:30:15"
        raise FaultError(_not_expected("a time", text, expected))
    return hour, minute, second


def _read_zone(text: str) -> Zone:
    zone = zone_called(text) if text else UTC
    if zone is None:
        expected = "a name such as Europe/Berlin, with its capitals, or nothing for UTC"
        raise FaultError(_not_expected("a time zone", text, expected))
    return zone


def _read_number(text: str) -> int:
    if not _number(text) or not int(text):
        raise FaultError(_not_expected("a number", text, "a whole number of 1 or more"))
    return int(text)


def _read_unit(text: str) -> str:
    if text not in UNITS:
        raise FaultError(_not_expected("a unit", text, f"one of {', '.join(UNITS)}"))
    return text


def _longest(month: str) -> int:
    """Return how many days a month may have; "" is any month."""
    return days_in_month(_LEAP_YEAR, _NAMES_OF_MONTHS.index(month) + 1) if month else 31


def _read_day(month: str) -> Callable[[str], int]:
    def read(text: str) -> int:
        last = _longest(month)
        if not _number(text) or not 1 <= int(text) <= last:
            within = f" in {MONTH_NAMES[month]}" if month else ""
            raise FaultError(_not_expected("a day", text, f"1 to {last}{within}"))
        return int(text)

    return read


def _read_month(text: str) -> str:
    if text not in MONTH_NAMES:
        raise FaultError(_not_expected("a month", text, f"one of {', '.join(MONTH_NAMES)}"))
    return text


# -- from a pattern to choices -----------------------------------------------------------------------------------------


def _choices_of(pattern: Pattern) -> Choices:
    """Return choices that stand for a pattern, if there are any for it: they may leave something of it out."""
    match pattern:
        case At(instant=instant):
            date, _, time = format_rfc3339(instant).partition("T")
            return Choices(Kind.ONCE, date=date, time=_clock(time[:8]))
        case Every(interval=interval):
            unit = next((name for name, length in UNITS.items() if interval % length == 0), "seconds")
            return Choices(Kind.EVERY, number=str(interval // UNITS[unit]), unit=unit)
        case Cron(fields=fields):
            return _choices_of_cron(fields, pattern.time_zone or "")
    return NONE_CHOSEN


def _choices_of_cron(fields: CronFields, zone: str) -> Choices:
    time = _clock(f"{_first(fields.hours):02}:{_first(fields.minutes):02}:{_first(fields.seconds):02}")
    if not fields.days_of_week & STAR:
        names = [_NAMES_OF_WEEKDAYS[number] for number in values_of(fields.days_of_week)]
        return Choices(Kind.WEEK, weekdays=tuple(one for one in WEEKDAY_NAMES if one in names), time=time, zone=zone)
    if fields.days_of_month & STAR:
        return Choices(Kind.DAY, time=time, zone=zone)
    day = str(_first(fields.days_of_month))
    if fields.months == _EVERY_MONTH:
        return Choices(Kind.MONTH, day=day, time=time, zone=zone)
    return Choices(Kind.YEAR, day=day, month=_NAMES_OF_MONTHS[_first(fields.months) - 1], time=time, zone=zone)


def _first(mask: int) -> int:
    """Return the lowest number of a mask, -1 of an empty one."""
    return (mask & -mask).bit_length() - 1


def _clock(time: str) -> str:
    return time.removesuffix(":00") if time.count(":") == 2 else time


def _meaning(pattern: Pattern) -> object:
    """Return what patterns have in common that fire at the same times, however they are written."""
    match pattern:
        case At(instant=instant):
            return instant
        case Every(interval=interval):
            return interval
        case Cron(fields=fields):
            return fields, pattern.time_zone
    return pattern
