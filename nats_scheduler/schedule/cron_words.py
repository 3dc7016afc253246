"""Six cron fields in plain words: `every weekday at 09:30`.

The rules:

- The words are made of what the fields match, not of how they are written, and they say all of it. So `0 0 9 * * 1-5`
  and `0 0 9 ? * mon,tue,wed,thu,fri` have the same words, and oddities of the grammar have none. A test reads the words
  of random patterns back, and compares what they say with what the patterns match.
- The times of a day have three forms, the first one that fits is used: all of them, if they are few; a first and a last
  time with one distance between all of them; else hours, minutes and seconds one after the other, which always fits.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from nats_scheduler.schedule.cron_fields import FIRST_YEAR, LAST, STAR, CronFields, NthWeekday, values_of
from nats_scheduler.schedule.instants import SECONDS_PER_DAY, days_in_month

MAX_LISTED_TIMES = 6
"""More times of a day than these are not listed one by one."""
MAX_LISTED_DAYS = 5
"""More days of a month than these are given as ranges."""
MIN_RANGE_LENGTH = 3
"""Fewer neighbours than these are listed one by one: "1 and 2", but "1 to 3"."""
MAX_LISTED_MINUTES = 10
"""More minutes, or seconds, or hours than these are given as steps if they have one distance."""
MAX_MINUTES_OF_EVERY_HOUR = 6
"""Times of more minutes than these are not given as minutes of every hour if they have one distance."""

_HOUR, _MINUTE = 3_600, 60
_ALL_HOURS, _ALL_MINUTES, _ALL_SECONDS = (1 << 24) - 1, (1 << 60) - 1, (1 << 60) - 1
_ALL_MONTHS, _ALL_DAYS, _ALL_WEEKDAYS = (1 << 13) - 2, (1 << 32) - 2, (1 << 7) - 1
_WEEKDAYS = 0b0111110
"""Monday to Friday; Sunday is bit 0."""
_COMMON_YEAR = 2001
_FEBRUARY = 2
_LONGEST_MONTH = 31
_FIFTH = 5
_NUMBERS = {1: "first", 2: "second", 3: "third", 4: "fourth", _FIFTH: "fifth", LAST: "last"}

MONTHS = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
"""In the order in which they are listed."""


def cron_words(fields: CronFields, zone: str) -> str:
    """Return what six fields match, in a zone with this name."""
    days, (times, cover_each_day) = _named_days(fields) or _days(fields), _times(fields)
    years = ""
    if fields.years is not None:
        years = f", only in {_listed([FIRST_YEAR + number for number in values_of(fields.years)])}"
    if cover_each_day and days == "every day":
        return f"{times} in {zone}{years}"
    needs_comma = times.startswith("every ") and not days.endswith(",")
    return f"{days}{',' if needs_comma else ''} {times} in {zone}{years}"


# -- times of a day ------------------------------------------------------------------------------------------------


class _Stepped(NamedTuple):
    """Times with one distance between all of them, in seconds since midnight; one time has no distance."""

    first: int
    step: int
    number: int

    @property
    def last(self) -> int:
        return self.first + self.step * (self.number - 1)


def _times(fields: CronFields) -> tuple[str, bool]:
    """Return the times of a day, and whether the words cover each day without naming it."""
    hours, minutes, seconds = values_of(fields.hours), values_of(fields.minutes), values_of(fields.seconds)
    if len(hours) * len(minutes) * len(seconds) <= MAX_LISTED_TIMES:
        times = [h * _HOUR + m * _MINUTE + s for h in hours for m in minutes for s in seconds]
        return f"at {_joined(_clock_texts(times))}", False
    stepped = _stepped(hours, minutes, seconds)
    if stepped is not None and stepped.first == 0 and stepped.step * stepped.number == SECONDS_PER_DAY:
        return f"every {_step_words(stepped.step)}", True
    is_each_minute = len(seconds) == 1 and fields.minutes == _ALL_MINUTES
    is_each_hour = len(seconds) == 1 and len(minutes) <= MAX_MINUTES_OF_EVERY_HOUR
    is_all_day = fields.hours == _ALL_HOURS
    if stepped is None or (is_all_day and (is_each_minute or is_each_hour)):
        return _by_fields(fields), is_all_day
    first, last = _clock_texts([stepped.first, stepped.last])
    return f"every {_step_words(stepped.step)} from {first} to {last}", False


def _stepped(hours: Sequence[int], minutes: Sequence[int], seconds: Sequence[int]) -> _Stepped | None:
    """Return the times if they have one distance, else None."""
    times: _Stepped | None = _Stepped(0, 0, 1)
    for values, unit in ((seconds, 1), (minutes, _MINUTE), (hours, _HOUR)):
        times = None if times is None else _repeated(times, values, unit)
    return times


def _repeated(inner: _Stepped, values: Sequence[int], unit: int) -> _Stepped | None:
    """Return the times of a unit, repeated at each of its values; None if the distances differ."""
    first = values[0] * unit + inner.first
    if len(values) == 1:
        return inner._replace(first=first)
    step = _distance(values)
    if inner.number == 1:
        return None if step is None else _Stepped(first, step * unit, len(values))
    if step != 1 or inner.step * inner.number != unit:
        return None
    return _Stepped(first, inner.step, inner.number * len(values))


def _step_words(seconds: int) -> str:
    for unit, name in ((_HOUR, "hour"), (_MINUTE, "minute")):
        if seconds % unit == 0:
            return name if seconds == unit else f"{seconds // unit} {name}s"
    return "second" if seconds == 1 else f"{seconds} seconds"


def _by_fields(fields: CronFields) -> str:
    """Return `at second 5 of minute 30 of every hour`, without what is obvious: seconds 0, and the unit around all."""
    parts = []
    if fields.seconds != 1:
        parts.append(_unit_words("second", fields.seconds, _ALL_SECONDS))
    if fields.seconds == 1 or fields.minutes != _ALL_MINUTES or fields.hours != _ALL_HOURS:
        parts.append(_unit_words("minute", fields.minutes, _ALL_MINUTES))
    else:
        parts.append("every minute")
    if fields.minutes != _ALL_MINUTES or fields.hours != _ALL_HOURS:
        parts.append(_unit_words("hour", fields.hours, _ALL_HOURS))
    words = " of ".join(parts)
    return words if words.startswith("every ") else f"at {words}"


def _unit_words(name: str, mask: int, everything: int) -> str:
    if mask == everything:
        return f"every {name}"
    values = values_of(mask)
    return f"{name} {values[0]}" if len(values) == 1 else f"{name}s {_listed(values)}"


def _clock_texts(times: Sequence[int]) -> list[str]:
    """Print seconds since midnight: `09:30`, all with seconds if one of them has some."""
    exact = any(time % _MINUTE for time in times)
    texts = [f"{time // _HOUR:02}:{time % _HOUR // _MINUTE:02}" for time in times]
    return [f"{text}:{time % _MINUTE:02}" for text, time in zip(texts, times, strict=True)] if exact else texts


# -- days ----------------------------------------------------------------------------------------------------------


def _days(fields: CronFields) -> str:
    """Return the days: those that match both day fields if one of them has the star, and otherwise either."""
    of_month, of_week = fields.days_of_month & ~STAR, fields.days_of_week & ~STAR
    needs_both = (fields.days_of_month | fields.days_of_week) & STAR
    if needs_both:
        has_month_days, has_weekdays = of_month != _ALL_DAYS, of_week != _ALL_WEEKDAYS
    elif of_month == _ALL_DAYS or of_week == _ALL_WEEKDAYS:
        has_month_days = has_weekdays = False
    else:
        has_month_days, has_weekdays = of_month != 0 or fields.named.last, of_week != 0
    if not has_month_days:
        return (_weekdays(of_week) if has_weekdays else "every day") + _in_months(fields.months)
    if not has_weekdays:
        return _only_date(fields) or _month_days(fields)
    if needs_both:
        return f"{_weekdays(of_week)} that falls {_month_days(fields)}"
    return f"{_only_date(fields) or _month_days(fields)}, and on {_weekdays(of_week)}{_in_months(fields.months)},"


def _weekdays(mask: int) -> str:
    """Return `every weekday`, `every Friday`, `every day from Monday to Thursday`, `every day except Sunday`."""
    if mask == _WEEKDAYS:
        return "every weekday"
    from_monday = mask >> 1 | (mask & 1) << 6
    if from_monday.bit_count() > MAX_LISTED_DAYS - 1:
        return f"every day except {_joined([WEEKDAYS[n] for n in values_of(_ALL_WEEKDAYS & ~from_monday)])}"
    days = values_of(from_monday)
    if len(days) >= MIN_RANGE_LENGTH and _distance(days) == 1:
        return f"every day from {WEEKDAYS[days[0]]} to {WEEKDAYS[days[-1]]}"
    return f"every {_joined([WEEKDAYS[day] for day in days])}"


def _named_days(fields: CronFields) -> str | None:
    """Return `on the last Friday of every month`, `on the weekday nearest to the 15th of March`; None without them."""
    named, of_months = fields.named, _of_months(fields.months)
    if named.nth:
        missing = " (if the month has that day)" if any(number == _FIFTH for _, number in named.nth) else ""
        return f"on {_joined([_nth_weekday(one) for one in _in_order(named.nth)])} of {of_months}{missing}"
    if named.nearest is None:
        return None
    if named.nearest in (1, _LONGEST_MONTH):
        return f"on the {'first' if named.nearest == 1 else 'last'} weekday of {of_months}"
    shortest = min(days_in_month(_COMMON_YEAR, month) for month in values_of(fields.months))
    missing = " (or to its last day, if the month is shorter)" if named.nearest > shortest else ""
    return f"on the weekday nearest to the {ordinal(named.nearest)} of {of_months}{missing}"


def _nth_weekday(one: NthWeekday) -> str:
    return f"the {_NUMBERS[one.number]} {WEEKDAYS[one.weekday - 1]}"


def _in_order(nth: Sequence[NthWeekday]) -> list[NthWeekday]:
    """Return the weekdays as the first of them come in a month, the last ones behind, Mondays first."""
    return sorted(nth, key=lambda one: (one.number if one.number != LAST else _FIFTH + 1, (one.weekday - 1) % 7))


def _only_date(fields: CronFields) -> str | None:
    """Return `every year on 24 December`; None if the days of the month are not one date."""
    days, months = fields.days_of_month & ~STAR, fields.months
    if days.bit_count() != 1 or months.bit_count() != 1 or fields.named.last:
        return None
    day, month = values_of(days)[0], values_of(months)[0]
    leap = "leap " if (month, day) == (_FEBRUARY, 29) else ""
    return f"every {leap}year on {day} {MONTHS[month - 1]}"


def _month_days(fields: CronFields) -> str:
    """Return `on the 1st and 15th of every month`, `on days 1 to 5 and the last day of June`."""
    months, last = fields.months, fields.named.last
    values = values_of(fields.days_of_month & ~STAR)
    if not values:
        return f"on the last day of {_of_months(months)}"
    shortest = min(days_in_month(_COMMON_YEAR, month) for month in values_of(months))
    missing = " (if the month has that day)" if values[-1] > shortest else ""
    step = _distance(values)
    if step is not None and step > 1 and len(values) > MAX_LISTED_DAYS:
        shown = f"every {ordinal(step)} day from the {ordinal(values[0])} to the {ordinal(values[-1])}"
    elif len(values) <= MAX_LISTED_DAYS and not any(" to " in text for text in _ranges(values)):
        shown = f"the {_joined([ordinal(day) for day in values])}"
    else:
        shown = f"days {_joined(_ranges(values))}"
    return f"on {shown}{' and the last day' if last else ''} of {_of_months(months)}{missing}"


def _of_months(months: int) -> str:
    return "every month" if months == _ALL_MONTHS else _joined(_month_names(months))


def _in_months(months: int) -> str:
    """Return ` in May and June`, ` from May to July`, and nothing for all months."""
    if months == _ALL_MONTHS:
        return ""
    names = _month_names(months)
    return f" from {names[0]}" if len(names) == 1 and " to " in names[0] else f" in {_joined(names)}"


def _month_names(months: int) -> list[str]:
    return _ranges([month - 1 for month in values_of(months)], MONTHS)


def ordinal(number: int) -> str:
    """Return `1st`, `22nd`, `13th`."""
    endings = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{endings.get(number % 10, 'th') if number // 10 % 10 != 1 else 'th'}"


# -- lists ---------------------------------------------------------------------------------------------------------


def _distance(values: Sequence[int]) -> int | None:
    """Return the distance between neighbours if it is always the same; of one value, 1."""
    distances = {later - earlier for earlier, later in pairwise(values)} or {1}
    return distances.pop() if len(distances) == 1 else None


def _listed(values: Sequence[int]) -> str:
    """Return `0 to 4, 10 and 20`, or `0 to 57 in steps of 3`."""
    step = _distance(values)
    if step is not None and step > 1 and len(values) > MAX_LISTED_MINUTES:
        return f"{values[0]} to {values[-1]} in steps of {step}"
    return _joined(_ranges(values))


def _ranges(values: Sequence[int], names: Sequence[str] | None = None) -> list[str]:
    """Return each value, and neighbours as `first to last`."""
    runs: list[list[int]] = []
    for value in values:
        if runs and value == runs[-1][-1] + 1:
            runs[-1].append(value)
        else:
            runs.append([value])
    texts = []
    for run in runs:
        shown = [names[value] if names else str(value) for value in run]
        texts += [f"{shown[0]} to {shown[-1]}"] if len(run) >= MIN_RANGE_LENGTH else shown
    return texts


def _joined(texts: Sequence[str]) -> str:
    """Return `a`, `a and b`, `a, b and c`."""
    *others, last = texts
    return f"{', '.join(others)} and {last}" if others else last
