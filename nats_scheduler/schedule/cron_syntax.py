"""Two more grammars of cron, `crontab` and `quartz`, with `L`, `W` and `#` as the Python library croniter reads them.

One rule: a text means what croniter 7 reads in it, or it is rejected. Rejected is what croniter reads in a way that its
author cannot have meant (`docs/reference/patterns.md`, "Other syntaxes"), with what to write instead.
Which days two day fields name is decided as crond does, by their first characters (croniter's `implement_cron_bug`).
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
from dataclasses import replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from nats_scheduler.schedule.cron import FIELDS, Field, check_possible
from nats_scheduler.schedule.cron_fields import (
    FIRST_YEAR,
    LAST,
    LAST_YEAR,
    NO_NAMED_DAYS,
    STAR,
    CronFields,
    NamedDays,
    NthWeekday,
    days_by_length,
    values_of,
)
from nats_scheduler.schedule.cron_fires import HORIZON_YEARS
from nats_scheduler.schedule.instants import days_from_civil
from nats_scheduler.schedule.invalid import FaultError, Invalid

MAX_FIELD_CHARS = 1_000
"""Longest field: each year from 1970 to 2099 takes 650 characters."""


class Syntax(StrEnum):
    """The syntax of a pattern, if it is not that of the server."""

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
_numbered_weekday = re.compile(r"(?<![#/0-9])[0-9]").search


class _Span(NamedTuple):
    """`*`, `n` or `a-b`, each with or without a step; a range that wraps around ends before it begins."""

    low: int
    high: int
    step: int


def parse_syntax(text: str, syntax: Syntax) -> CronFields | Invalid:
    """Parse the fields of a syntax; aliases and patterns that begin with `@` are not among them."""
    try:
        return _read_fields(_words(text), syntax)
    except FaultError as fault:
        return Invalid(text, fault.reason)


def _read_fields(words: list[str], syntax: Syntax) -> CronFields:
    """Parse fields; those of a crontab get a second of 0."""
    expected = (5,) if syntax is Syntax.CRONTAB else (6, 7)
    if len(words) not in expected:
        raise FaultError(f"{_COUNTS[syntax]}, got {len(words)}")
    if longest := next((word for word in words if len(word) > MAX_FIELD_CHARS), None):
        raise FaultError(f"a field has {len(longest):,} characters: expected at most {MAX_FIELD_CHARS:,}")
    lowered = [word.lower() for word in words]
    second, minute, hour, of_month, month, of_week, *year = ["0", *lowered] if syntax is Syntax.CRONTAB else lowered
    read = ((SECOND, second), (MINUTE, minute), (HOUR, hour), (MONTH, month))
    seconds, minutes, hours, months = (_read_list(field, word) for field, word in read)
    month_days, week_days, named = _read_days(of_month, of_week)
    years = _read_years(year[0]) if year else None
    table = days_by_length(month_days, week_days, named)
    if named == NO_NAMED_DAYS:
        check_possible(seconds, minutes, hours, months, table)
    fields = CronFields(seconds, minutes, hours, month_days, months, week_days, table, named, years)
    if years is not None and not _has_a_day_in_its_years(fields, years):
        raise FaultError("none of the given years has one of the given days")
    return fields


def has_numbered_weekdays(text: str) -> bool:
    """Return whether a pattern of `quartz` names weekdays by their numbers, which Quartz itself counts differently."""
    words = _words(text)
    return len(words) > DAY_OF_WEEK_INDEX and _numbered_weekday(words[DAY_OF_WEEK_INDEX]) is not None


DAY_OF_WEEK_INDEX = 5
"""Where the day of week is among the fields of `quartz`."""


def _has_a_day_in_its_years(fields: CronFields, years: int) -> bool:
    return any(
        fields.days_of(year, month, days_from_civil(year, month, 1))
        for year in _years_of(years)
        for month in values_of(fields.months)
    )


def _years_of(mask: int) -> list[int]:
    return [FIRST_YEAR + number for number in values_of(mask)]


# -- fields --------------------------------------------------------------------------------------------------------


def _read_years(word: str) -> int | None:
    """Parse the year field: bit n is the year 1970 + n; None is every year."""
    mask = 0
    for item in dict.fromkeys(word.split(",")):
        span = _read_span(YEAR, item)
        if span.low > span.high:
            raise FaultError(f"year range {span.low}-{span.high} runs backwards")
        mask |= sum(1 << year - FIRST_YEAR for year in range(span.low, span.high + 1, span.step))
    if "*" in word.split(","):
        return None
    for year, following in pairwise(_years_of(mask)):
        if following - year > HORIZON_YEARS:
            raise FaultError(
                f"no year between {year} and {following}: a schedule ends if it has no fire for {HORIZON_YEARS} years"
            )
    return mask


def _read_list(field: Field, word: str) -> int:
    """Parse a list of spans as a mask."""
    mask = 0
    for item in dict.fromkeys(word.split(",")):
        mask |= _bits(field, _read_span(field, item))
    return mask


def _bits(field: Field, span: _Span) -> int:
    """Return the values of a span; of one that wraps around, the steps go on beyond the highest value."""
    low, high, step = span
    size = field.high - field.low + 1
    last = high if low <= high else high + size
    values = ((value - field.low) % size + field.low for value in range(low, last + 1, step))
    return sum(1 << value for value in values)


def _read_days(of_month: str, of_week: str) -> tuple[int, int, NamedDays]:
    """Parse the two day fields: their masks, and the days that masks cannot name."""
    days, last, nearest = _read_days_of_month(of_month)
    week_days, nth = _read_days_of_week(of_week)
    if nth and days != _everything(DAY_OF_MONTH):
        raise FaultError(f"day of month {_shown(of_month)} is beside {_shown(of_week)}: write * instead")
    if nearest is not None and week_days != _everything(DAY_OF_WEEK):
        raise FaultError(f"day of week {_shown(of_week)} is beside {_shown(of_month)}: write * instead")
    return days, week_days, NamedDays(last, nearest, nth)


def _star_of(word: str) -> int:
    """Return STAR for a day field by which both must match.

    As crond does: for each that begins with a star, also with one that has a step or is followed by other items.
    """
    return STAR if word.startswith("*") else 0


def _read_days_of_month(word: str) -> tuple[int, bool, int | None]:
    """Parse the day of month: its mask, whether the last day matches too, and the day of a `W`."""
    if word == "?":
        return _everything(DAY_OF_MONTH), False, None
    nearest = _nearest(word)
    if nearest is not None:
        day = _number(nearest[1] or nearest[2])
        if not DAY_OF_MONTH.low <= day <= DAY_OF_MONTH.high:
            raise FaultError(f"day of month {_shown(word)} is not a day from 1W to 31W")
        return 0, False, day
    mask, last = _star_of(word), False
    for item in dict.fromkeys(word.split(",")):
        if item == "l":
            last = True
            continue
        begin, hyphen, end = item.partition("-")
        is_to_last = hyphen and end.partition("/")[0] == "l" and begin != "l"
        mask |= _bits(DAY_OF_MONTH, _read_span(DAY_OF_MONTH, f"{begin}-31{end[1:]}" if is_to_last else item))
    return mask, last, None


def _read_days_of_week(word: str) -> tuple[int, tuple[NthWeekday, ...]]:
    """Parse the day of week: its mask, or the weekdays with numbers."""
    if word == "?":
        return _everything(DAY_OF_WEEK), ()
    mask, nth = _star_of(word), set[NthWeekday]()
    for item in dict.fromkeys(word.split(",")):
        found = _read_nth(item)
        nth |= found
        if not found:
            mask |= _bits(DAY_OF_WEEK, _read_span(DAY_OF_WEEK, item))
    if nth and mask:
        raise FaultError(
            f"day of week {_shown(word)} mixes weekdays of each week with such as 2#1 or L5: write one kind"
        )
    return (_everything(DAY_OF_WEEK) & ~STAR if nth else mask), tuple(sorted(nth))


def _read_nth(item: str) -> set[NthWeekday]:
    """Parse `2#1`, `mon-fri#1` or `L5`; nothing if the item is none of them."""
    if last := _last_weekday(item):
        days, number = last[1], LAST
    elif numbered := _nth(item):
        days, number = numbered[1], _number(numbered[2])
        if not 1 <= number <= _MAX_NTH:
            raise FaultError(f"day of week {_shown(item)} is not the first to fifth of a month: expected #1 to #5")
    else:
        return set()
    return {NthWeekday(weekday, number) for weekday in values_of(_bits(DAY_OF_WEEK, _read_span(DAY_OF_WEEK, days)))}


def _everything(field: Field) -> int:
    return (2 << field.high) - (1 << field.low) | STAR


# -- items ---------------------------------------------------------------------------------------------------------


def _read_span(field: Field, item: str) -> _Span:
    """Parse `*`, `n` or `a-b`, each with or without `/step`."""
    span, slash, stepped = item.partition("/")
    step = _number(stepped) if slash and _digits(stepped) else 1
    if slash and not (_digits(stepped) and step):
        raise _fault(field, item, "needs a step of 1 or more after the slash")
    if span == "*":
        return _Span(field.low, field.high, step)
    first, hyphen, last = span.partition("-")
    low = _read_value(field, item, first)
    high = _read_value(field, item, last) if hyphen else low
    if not hyphen:
        value = low % _SUNDAY_TOO if field is DAY_OF_WEEK else low
        return _Span(value, field.high if slash else value, step)
    if field is DAY_OF_WEEK and (low, high) == (0, _SUNDAY_TOO):
        return _Span(field.low, field.high, step)
    if field is DAY_OF_WEEK:
        low, high = low % _SUNDAY_TOO, high % _SUNDAY_TOO
    if low == high:
        raise _fault(field, item, f"is one value in a crontab, and each to croniter: write {low} or *")
    return _Span(low, high, step)


def _read_value(field: Field, item: str, text: str) -> int:
    """Parse a number or a name within the bounds of a field; weekday 7 is one."""
    if text in field.names:
        return field.low + field.names.index(text)
    high = _SUNDAY_TOO if field is DAY_OF_WEEK else field.high
    if not _digits(text):
        raise _fault(field, item, f"is not {replace(field, high=high).expected}")
    number = _number(text)
    if number < field.low:
        raise _fault(field, item, f"is below {field.low}")
    if number > high:
        raise _fault(field, item, f"is above {high}")
    return number


def _number(digits: str) -> int:
    """Read ASCII digits; a number beyond every range is as good as any other."""
    significant = digits.lstrip("0")
    return int(significant or "0") if len(significant) <= _MAX_NUMBER_DIGITS else _BEYOND


def _shown(text: str) -> str:
    shown = text.upper() if text.isascii() else text
    return repr(shown if len(shown) <= _MAX_SHOWN_CHARS else f"{shown[:_MAX_SHOWN_CHARS]}…")


# -- usual mistakes ------------------------------------------------------------------------------------------------

_MISTAKES = (
    ((*FIELDS, YEAR), r"\?(?:/.*)?", "is misplaced: ? stands alone, for the day of month or the day of week"),
    ((DAY_OF_MONTH,), "lw|wl", "is not in the syntax: the last weekday of a month is written 31W"),
    ((DAY_OF_MONTH,), "l.*", "is not in the syntax: L alone is the last day of a month"),
    ((DAY_OF_MONTH,), ".*w.*", "is not in the syntax: W follows one day, such as 15W, which stands alone"),
    ((DAY_OF_WEEK,), "l", "needs a weekday: L5 is the last Friday of a month; the last day is L as day of month"),
    (
        (DAY_OF_WEEK,),
        "[0-9a-z]{1,3}l|l[a-z]{3}",
        "is not in the syntax: L comes first, as in L5 for the last Friday of a month",
    ),
    ((DAY_OF_WEEK,), ".*#.*", "is not in the syntax: expected such as 2#1, TUE#1 or MON-FRI#1"),
)
"""Fields, items that other programs read there, and what is wrong with them; the first one that fits."""


def _fault(field: Field, item: str, reason: str) -> FaultError:
    """Return why an item is invalid; `reason` is what the grammar says, unless it is a usual mistake."""
    usual = (said for fields, form, said in _MISTAKES if field in fields and re.fullmatch(form, item))
    return FaultError(f"{field.name} {_shown(item)} {next(usual, reason)}")
