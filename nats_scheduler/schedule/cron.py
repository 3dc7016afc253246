"""The cron grammar of nats-server: six fields, read into bit masks.

One rule: exactly the texts that the server accepts are accepted, with the same meaning, oddities included.
A field becomes one integer in which bit n is set if n matches, plus STAR, so that matching is arithmetic.
The two day fields are also combined once into seven masks, one for each weekday on which a month can begin.
Different patterns often have fields in common, so the masks of fields are cached.
Cost: a few microseconds for a pattern whose fields are cached, 70 µs otherwise; `patterns` shares equal patterns.
A list may fill a header of 64 KB and is parsed in some milliseconds: items with the same meaning are parsed once.
Limit: `L`, `W`, `#`, day 7, wrapped ranges and a year field are not in the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from nats_scheduler.schedule.cron_calendar import STAR, CronFields
from nats_scheduler.schedule.instants import days_in_month
from nats_scheduler.schedule.invalid import Invalid

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Go's `unicode.IsSpace`; Python's `str.split()` also splits at \\x1c–\\x1f."""

_words = re.compile(f"[^{WHITE_SPACE}]+").findall
_number = re.compile(r"\+?([0-9]+)").fullmatch
_MAX_NUMBER = (1 << 63) - 1
_LEAP_YEAR = 2000
_MAX_CACHED_FIELD_CHARS = 64
"""Longer fields are not cached, so that the cache stays small."""
_MAX_SAFE_DIGITS = 18
"""A number of up to 18 digits always fits in 63 bits."""
_MAX_STEP = 64
"""A step beyond every range: all steps from here on mean the same."""

_MULTIPLES = (0, *(sum(1 << value for value in range(0, 64, step)) for step in range(1, _MAX_STEP + 1)))
"""The multiples of each step, as bits."""

_after_star = re.compile(r"(?<![^,])([*?])-[^,/]*").sub
_leading_zeros = re.compile(r"(?<![^,/-])\+?0+(?=[0-9])").sub


@dataclass(frozen=True, slots=True)
class Field:
    """The bounds of one field, and the names that stand for its values."""

    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Names of low, low + 1, …"""


FIELDS = (
    Field("second", 0, 59),
    Field("minute", 0, 59),
    Field("hour", 0, 23),
    Field("day of month", 1, 31),
    Field("month", 1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    Field("day of week", 0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)


def parse_cron(text: str) -> CronFields | Invalid:
    """Parse six fields: second, minute, hour, day of month, month, day of week.

    A pattern that matches no day of any year, or no time of day, is rejected here, without a search
    (`test_a_pattern_that_can_never_match_is_refused_at_once`).
    """
    words: list[str] = _words(text)
    if len(words) != len(FIELDS):
        return Invalid(text, _explain_count(words))
    masks: list[int] = []
    for number, word in enumerate(words):
        mask = _read_field(number, word) if len(word) > _MAX_CACHED_FIELD_CHARS else _read_cached_field(number, word)
        if isinstance(mask, str):
            return Invalid(text, mask)
        masks.append(mask)
    seconds, minutes, hours, days_of_month, months, days_of_week = masks
    days = day_masks(days_of_month, days_of_week)
    reason = explain_never(seconds, minutes, hours, months, days)
    if reason is not None:
        return Invalid(text, reason)
    return CronFields(
        seconds & ~STAR, minutes & ~STAR, hours & ~STAR, days_of_month, months & ~STAR, days_of_week, days
    )


def _explain_count(words: list[str]) -> str:
    """Return the reason why this number of fields is wrong."""
    expected = "expected 6 fields (second minute hour day-of-month month day-of-week)"
    return f"{expected}, got {len(words)}"


def _read_field(number: int, word: str) -> int | str:
    """Parse the list of ranges of field 0–5 as a mask; return the reason if it is invalid.

    As the server does: empty items are ignored, and a list of nothing but commas matches nothing
    (`test_empty_items_of_a_list_are_ignored`).
    """
    mask = 0
    for item in _items(word):
        bits = _read_item(FIELDS[number], item) if item else 0
        if isinstance(bits, str):
            return bits
        mask |= bits
    return mask


_read_cached_field = lru_cache(maxsize=4_096)(_read_field)


def _items(word: str) -> Iterable[str]:
    """Split a list; of a long one, return each item once, without the parts that the grammar ignores.

    A list that repeats the same items is legal up to the 64 KB of a header; its cost must depend on the number of
    different items, not on its length (`test_a_pattern_of_any_length_is_cheap`).
    """
    if len(word) <= _MAX_CACHED_FIELD_CHARS:
        return word.split(",")
    shortened = _leading_zeros("", _after_star(r"\1", word))
    return dict.fromkeys(shortened.split(","))


def _read_item(field: Field, item: str) -> int | str:
    """Parse `*`, `n` or `a-b`, each with or without `/step`."""
    span, *steps = item.split("/")
    if len(steps) > 1:
        return f"{field.name} {item!r} has two slashes"
    step = _read_number(steps[0]) if steps else 1
    if not step:
        return f"{field.name} {item!r} needs a step of 1 or more after the slash"
    bounds = _read_span(field, item, span, bool(steps))
    if isinstance(bounds, str):
        return bounds
    low, high, star = bounds
    bits = _MULTIPLES[min(step, _MAX_STEP)] << low & (2 << high) - 1
    # As the server does: a step above 1 makes a star a restriction (`test_a_stepped_star_is_a_restriction`).
    return bits | STAR if star and step == 1 else bits


def _read_span(field: Field, item: str, span: str, stepped: bool) -> tuple[int, int, bool] | str:
    """Parse the part before the step: return the lowest and the highest value, and whether it is a star."""
    first, *rest = span.split("-")
    if first in ("*", "?"):
        # As the server does: what follows a hyphen after a star is ignored (`test_text_after_a_star_is_ignored`).
        return field.low, field.high, True
    if len(rest) > 1:
        return f"{field.name} {item!r} has two hyphens"
    low = _read_value(field, first)
    high = _read_value(field, rest[0]) if rest else low
    if low is None or high is None:
        return f"{field.name} {item!r} is not {_expected(field)}"
    if stepped and not rest:
        high = field.high
    return _check_span(field, low, high)


def _check_span(field: Field, low: int, high: int) -> tuple[int, int, bool] | str:
    """Check a range against the bounds of its field."""
    if low < field.low:
        return f"{field.name} {low} is below {field.low}"
    if high > field.high or low > field.high:
        return f"{field.name} {max(low, high)} is above {field.high}"
    if low > high:
        return f"{field.name} range {low}-{high} runs backwards (ranges do not wrap around)"
    return low, high, False


def _expected(field: Field) -> str:
    names = f", a name {field.names[0]}–{field.names[-1]}" if field.names else ""
    return f"a number {field.low}–{field.high}{names}, a range or *"


def _read_value(field: Field, text: str) -> int | None:
    """Parse a number, or a name in any case."""
    number = _read_number(text)
    if number is not None or not field.names:
        return number
    # As the server does: Go converts the dotted capital I to i, so FRİ is Friday
    # (`test_names_are_folded_as_go_folds_them`).
    name = text.replace("\u0130", "i").lower()
    return field.low + field.names.index(name) if name in field.names else None


def _read_number(text: str) -> int | None:
    """Parse the non-negative numbers that Go's `Atoi` accepts: ASCII digits, 63 bits, optionally with a plus."""
    if len(text) <= _MAX_SAFE_DIGITS and text.isascii() and text.isdigit():
        return int(text)
    digits = _number(text)
    if digits is None:
        return None
    significant = digits[1].lstrip("0")
    # Python raises an error for thousands of digits, and Go for every number of more than 63 bits.
    if len(significant) > len(str(_MAX_NUMBER)) or int(significant or "0") > _MAX_NUMBER:
        return None
    return int(significant or "0")


@lru_cache(maxsize=1_024)
def day_masks(days_of_month: int, days_of_week: int) -> tuple[int, ...]:
    """Combine the day fields for each weekday on which a month can begin.

    As the server does: if one of the two has the star, both must match; otherwise one is enough
    (`docs/reference/patterns.md`, "Which day").
    """
    month_days = days_of_month & ~STAR
    both = (days_of_month | days_of_week) & STAR
    masks = []
    for first in range(7):
        week_days = sum(1 << day for day in range(1, 32) if days_of_week >> (first + day - 1) % 7 & 1)
        masks.append(month_days & week_days if both else month_days | week_days)
    return tuple(masks)


@lru_cache(maxsize=1_024)
def _has_a_day(months: int, days: tuple[int, ...]) -> bool:
    """Return whether any of the months can have any of the days."""
    lengths = (days_in_month(_LEAP_YEAR, month) for month in range(1, 13) if months >> month & 1)
    longest = max(lengths, default=0)
    return any(mask & (2 << longest) - 1 for mask in days)


def explain_never(seconds: int, minutes: int, hours: int, months: int, days: tuple[int, ...]) -> str | None:
    """Return the reason why a pattern can never match; None if it can."""
    for field, mask in zip(FIELDS, (seconds, minutes, hours), strict=False):
        if mask == 0:
            return f"the list of the {field.name} field is empty, so nothing ever matches"
    return None if _has_a_day(months, days) else "none of the given months has one of the given days"
