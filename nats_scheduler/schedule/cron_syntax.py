"""Two more grammars of cron, `crontab` and `quartz`, with `L`, `W` and `#` as the Python library croniter reads them.

One rule: a text means what croniter 7 reads in it, or it is rejected. Rejected is what croniter reads in a way that its
author cannot have meant (`docs/reference/patterns.md`, "Other syntaxes"), with what to write instead.
`crontab` has five fields, `quartz` six or seven: seconds come first, and the year last. All else is the same in both,
and so weekdays are those of a crontab: 0 to 7, where 0 and 7 are Sunday.
The grammar of the server (`cron`) has oddities of its own, and so this one shares no code with it but the names.
croniter itself is the oracle of the tests, and no dependency: it names no field in its errors, hands out no `W`, and
reads 20 of the 73 texts that `tests/schedule/test_cron_syntax.py` has rejected, so each would have to be read here too.
Cost: some ten microseconds; `patterns` shares equal patterns.
Limit: a field has at most 1,000 characters.
"""

from __future__ import annotations

import re
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from nats_scheduler.schedule.cron import (
    FIELDS,
    FIRST_YEAR,
    HORIZON_YEARS,
    LAST,
    LAST_YEAR,
    NO_NAMED_DAYS,
    STAR,
    CronFields,
    Field,
    NamedDays,
    NthWeekday,
    days_by_length,
    explain_never,
)
from nats_scheduler.schedule.instants import days_from_civil
from nats_scheduler.schedule.invalid import Invalid

MAX_FIELD_CHARS = 1_000
"""Longest field: each year from 1970 to 2099 takes 650 characters."""


class Syntax(StrEnum):
    """How a pattern is written, if not as the server reads it."""

    CRONTAB = "crontab"
    """`30 9 * * mon-fri`."""
    QUARTZ = "quartz"
    """`0 30 9 ? * mon-fri 2027`."""


SECOND, MINUTE, HOUR, DAY_OF_MONTH, MONTH, DAY_OF_WEEK = FIELDS
YEAR = Field("year", FIRST_YEAR, LAST_YEAR)

_COUNTS = {
    Syntax.CRONTAB: "expected 5 fields (minute hour day-of-month month day-of-week)",
    Syntax.QUARTZ: "expected 6 or 7 fields (second minute hour day-of-month month day-of-week year)",
}
_SUNDAY_TOO = 7
_MAX_NTH = 5
"""No weekday is in a month more often."""
_MAX_NUMBER_DIGITS = 4
_BEYOND = 9_999
"""Beyond the values of every field."""
_MAX_SHOWN_CHARS = 40

_words = re.compile(r"[^ \t\n\v\f\r]+").findall
_digits = re.compile(r"[0-9]+").fullmatch
_nearest = re.compile(r"([0-9]+)w|w([0-9]+)").fullmatch
_nth = re.compile(r"([0-9a-z]+|[a-z]+-[a-z]+)#([0-9]+)").fullmatch
_last_weekday = re.compile(r"l([0-9]+)").fullmatch
_foreign_last = re.compile(r"[0-9a-z]{1,3}l|l[a-z]{3}").fullmatch
_numbered_weekday = re.compile(r"(?<![#/0-9])[0-9]").search


class _Span(NamedTuple):
    """`*`, `n` or `a-b`, each with or without a step; a range that wraps around ends before it begins."""

    low: int
    high: int
    step: int
    is_star: bool = False


class _Days(NamedTuple):
    """The two day fields."""

    of_month: int
    of_week: int
    named: NamedDays


def parse_syntax(text: str, syntax: Syntax) -> CronFields | Invalid:
    """Parse the fields of a syntax; aliases and patterns that begin with `@` are not among them."""
    fields = _read_fields(_words(text), syntax)
    return Invalid(text, fields) if isinstance(fields, str) else fields


def _read_fields(words: list[str], syntax: Syntax) -> CronFields | str:
    """Parse fields, or return the reason why one is invalid; those of a crontab get a second of 0."""
    expected = (5,) if syntax is Syntax.CRONTAB else (6, 7)
    if len(words) not in expected:
        return f"{_COUNTS[syntax]}, got {len(words)}"
    if longest := next((word for word in words if len(word) > MAX_FIELD_CHARS), None):
        return f"a field has {len(longest):,} characters: expected at most {MAX_FIELD_CHARS:,}"
    lowered = [word.lower() for word in words]
    second, minute, hour, of_month, month, of_week, *year = ["0", *lowered] if syntax is Syntax.CRONTAB else lowered
    masks = []
    for field, word in ((SECOND, second), (MINUTE, minute), (HOUR, hour), (MONTH, month)):
        mask = _read_list(field, word)
        if isinstance(mask, str):
            return mask
        masks.append(mask & ~STAR)
    days = _read_days(of_month, of_week)
    if isinstance(days, str):
        return days
    years = _read_years(year[0]) if year else None
    return years if isinstance(years, str) else _assembled(masks, days, years)


def has_numbered_weekdays(text: str) -> bool:
    """Return whether a pattern of `quartz` names weekdays by their numbers, which Quartz itself counts differently."""
    words = _words(text)
    return len(words) > DAY_OF_WEEK_INDEX and _numbered_weekday(words[DAY_OF_WEEK_INDEX]) is not None


DAY_OF_WEEK_INDEX = 5
"""Where the day of week is among the fields of `quartz`."""


# -- from fields to what they match --------------------------------------------------------------------------------


def _assembled(masks: list[int], days: _Days, years: int | None) -> CronFields | str:
    """Return the fields with the masks of seconds, minutes, hours and months; a fault if they never match."""
    seconds, minutes, hours, months = masks
    of_month, of_week, named = days
    table = days_by_length(of_month, of_week, named)
    reason = explain_never(seconds, minutes, hours, months, table) if named == NO_NAMED_DAYS else None
    if reason is not None:
        return reason
    fields = CronFields(seconds, minutes, hours, of_month, months, of_week, table, named, years)
    if years is not None and not _has_a_day_in_its_years(fields, years):
        return "none of the given years has one of the given days"
    return fields


def _has_a_day_in_its_years(fields: CronFields, years: int) -> bool:
    return any(
        fields.days_of(year, month, days_from_civil(year, month, 1))
        for year in _years_of(years)
        for month in range(1, 13)
        if fields.months >> month & 1
    )


def _years_of(mask: int) -> list[int]:
    return [FIRST_YEAR + number for number in range(mask.bit_length()) if mask >> number & 1]


# -- fields --------------------------------------------------------------------------------------------------------


def _read_years(word: str) -> int | str | None:
    """Parse the year field: bit n is the year 1970 + n; None is every year."""
    mask, is_star = 0, False
    for item in dict.fromkeys(word.split(",")):
        span = _read_span(YEAR, item)
        if isinstance(span, str):
            return span
        if span.low > span.high:
            return f"year range {span.low}-{span.high} runs backwards"
        mask |= sum(1 << year - FIRST_YEAR for year in range(span.low, span.high + 1, span.step))
        is_star = is_star or span.is_star
    if is_star:
        return None
    for year, following in pairwise(_years_of(mask)):
        if following - year > HORIZON_YEARS:
            return (
                f"no year between {year} and {following}: a schedule ends if it has no fire for {HORIZON_YEARS} years"
            )
    return mask


def _read_list(field: Field, word: str) -> int | str:
    """Parse a list of spans as a mask, with STAR if one of them is `*`."""
    mask = 0
    for item in dict.fromkeys(word.split(",")):
        span = _read_span(field, item)
        if isinstance(span, str):
            return span
        mask |= _bits(field, span)
    return mask


def _bits(field: Field, span: _Span) -> int:
    """Return the values of a span; of one that wraps around, the steps go on beyond the highest value."""
    low, high, step, is_star = span
    size = field.high - field.low + 1
    last = high if low <= high else high + size
    values = ((value - field.low) % size + field.low for value in range(low, last + 1, step))
    return sum(1 << value for value in values) | (STAR if is_star else 0)


def _read_days(of_month: str, of_week: str) -> _Days | str:
    """Parse the two day fields."""
    month_days = _read_days_of_month(of_month)
    if isinstance(month_days, str):
        return month_days
    days, last, nearest = month_days
    read = _read_days_of_week(of_week)
    if isinstance(read, str):
        return read
    week_days, nth = read
    if nth and not days & STAR:
        return f"day of month {_shown(of_month)} has no effect in croniter beside {_shown(of_week)}: write * instead"
    if nearest is not None and not week_days & STAR:
        return f"day of week {_shown(of_week)} has no effect in croniter beside {_shown(of_month)}: write * instead"
    return _Days(days, week_days, NamedDays(last, nearest, nth))


def _read_days_of_month(word: str) -> tuple[int, bool, int | None] | str:
    """Parse the day of month: its mask, whether the last day matches too, and the day of a `W`."""
    if word == "?":
        return _everything(DAY_OF_MONTH), False, None
    nearest = _nearest(word)
    if nearest is not None:
        day = _number(nearest[1] or nearest[2])
        if not DAY_OF_MONTH.low <= day <= DAY_OF_MONTH.high:
            return f"day of month {_shown(word)} is not a day from 1W to 31W"
        return 0, False, day
    mask, last = 0, False
    for item in dict.fromkeys(word.split(",")):
        if item == "l":
            last = True
            continue
        begin, hyphen, end = item.partition("-")
        is_to_last = hyphen and end.partition("/")[0] == "l" and begin != "l"
        span = _read_span(DAY_OF_MONTH, f"{begin}-31{end[1:]}" if is_to_last else item)
        if isinstance(span, str):
            return _explain_day_of_month(item) or span
        mask |= _bits(DAY_OF_MONTH, span)
    return mask, last, None


def _read_days_of_week(word: str) -> tuple[int, tuple[NthWeekday, ...]] | str:
    """Parse the day of week: its mask, or the weekdays with numbers."""
    if word == "?":
        return _everything(DAY_OF_WEEK), ()
    mask, nth = 0, set[NthWeekday]()
    for item in dict.fromkeys(word.split(",")):
        found = _read_nth(item)
        if isinstance(found, str):
            return found
        nth |= found
        if not found:
            span = _read_span(DAY_OF_WEEK, item)
            if isinstance(span, str):
                return _explain_day_of_week(item) or span
            mask |= _bits(DAY_OF_WEEK, span)
    if nth and mask:
        return f"day of week {_shown(word)} mixes weekdays of each week with such as 2#1 or L5: write one kind"
    return (_everything(DAY_OF_WEEK) & ~STAR if nth else mask), tuple(sorted(nth))


def _read_nth(item: str) -> set[NthWeekday] | str:
    """Parse `2#1`, `mon-fri#1` or `L5`; nothing if the item is none of them."""
    if last := _last_weekday(item):
        days, number = last[1], LAST
    elif numbered := _nth(item):
        days, number = numbered[1], _number(numbered[2])
        if not 1 <= number <= _MAX_NTH:
            return f"day of week {_shown(item)} is not the first to fifth of a month: expected #1 to #5"
    else:
        return set()
    span = _read_span(DAY_OF_WEEK, days)
    if isinstance(span, str):
        return span
    mask = _bits(DAY_OF_WEEK, span)
    return {NthWeekday(weekday, number) for weekday in range(7) if mask >> weekday & 1}


def _everything(field: Field) -> int:
    return (2 << field.high) - (1 << field.low) | STAR


# -- items ---------------------------------------------------------------------------------------------------------


def _read_span(field: Field, item: str) -> _Span | str:
    """Parse `*`, `n` or `a-b`, each with or without `/step`."""
    span, slash, stepped = item.partition("/")
    step = _number(stepped) if slash and _digits(stepped) else 1
    if slash and not (_digits(stepped) and step):
        return f"{field.name} {_shown(item)} needs a step of 1 or more after the slash"
    if span == "*":
        return _Span(field.low, field.high, step, not slash)
    if span == "?":
        return f"{field.name} {_shown(item)}: ? stands alone, for the day of month or the day of week"
    first, hyphen, last = span.partition("-")
    low = _read_value(field, first)
    high = _read_value(field, last) if hyphen else low
    for value in (low, high):
        if isinstance(value, str):
            return f"{field.name} {_shown(item)} {value}"
    assert isinstance(low, int)
    assert isinstance(high, int)
    if hyphen:
        return _range(field, item, low, high, step)
    value = low % _SUNDAY_TOO if field is DAY_OF_WEEK else low
    return _Span(value, field.high if slash else value, step)


def _range(field: Field, item: str, low: int, high: int, step: int) -> _Span | str:
    """Return a range; its ends may be in any order, but not equal."""
    if field is DAY_OF_WEEK and (low, high) == (0, _SUNDAY_TOO):
        return _Span(field.low, field.high, step)
    if field is DAY_OF_WEEK:
        low, high = low % _SUNDAY_TOO, high % _SUNDAY_TOO
    if low == high:
        return f"{field.name} {_shown(item)} is one value in a crontab, and each to croniter: write {low} or *"
    return _Span(low, high, step)


def _read_value(field: Field, text: str) -> int | str:
    """Parse a number or a name within the bounds of a field; weekday 7 is one."""
    if text in field.names:
        return field.low + field.names.index(text)
    high = _SUNDAY_TOO if field is DAY_OF_WEEK else field.high
    if _digits(text):
        number = _number(text)
        if field.low <= number <= high:
            return number
        return f"is {'below' if number < field.low else 'above'} {field.low if number < field.low else high}"
    names = f", a name {field.names[0]}–{field.names[-1]}" if field.names else ""
    return f"is not a number {field.low}–{high}{names}, a range or *"


def _number(digits: str) -> int:
    """Read ASCII digits; a number beyond every range is as good as any other."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= _MAX_NUMBER_DIGITS else _BEYOND


def _shown(text: str) -> str:
    shown = text.upper() if text.isascii() else text
    return repr(shown if len(shown) <= _MAX_SHOWN_CHARS else f"{shown[:_MAX_SHOWN_CHARS]}…")


# -- usual mistakes ------------------------------------------------------------------------------------------------


def _explain_day_of_month(item: str) -> str | None:
    """Return what is wrong with a day of month that other programs read; None if the grammar says enough."""
    if item in ("lw", "wl"):
        return "day of month 'LW' is not in the syntax: the last weekday of a month is written 31W"
    if item.startswith("l"):
        return f"day of month {_shown(item)} is not in the syntax: L alone is the last day of a month"
    if "w" in item:
        return f"day of month {_shown(item)} is not in the syntax: W follows one day, such as 15W, which stands alone"
    return None


def _explain_day_of_week(item: str) -> str | None:
    """Return what is wrong with a day of week that other programs read; None if the grammar says enough."""
    if item == "l":
        return "day of week 'L' needs a weekday: L5 is the last Friday of a month; the last day is L as day of month"
    if _foreign_last(item):
        return (
            f"day of week {_shown(item)} is not in the syntax: L comes first, as in L5 for the last Friday of a month"
        )
    if "#" in item:
        return f"day of week {_shown(item)} is not in the syntax: expected such as 2#1, TUE#1 or MON-FRI#1"
    return None
