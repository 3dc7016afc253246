"""The cron grammar of nats-server: six fields, read into bit masks.

The rules:

- Exactly the texts that the server accepts are accepted, with the same meaning, oddities included. `L`, `W`, `#`, day
  7, wrapped ranges and a year field are not in the grammar.
- A field becomes one integer in which bit n is set if n matches, plus STAR, so that matching is arithmetic. The two day
  fields are also combined once (`schedule.cron_fields`).
- Different patterns often have fields in common, so the masks of fields are cached; `patterns` shares equal patterns.
- A list may fill a header of 64 KB and is parsed in some milliseconds: items with the same meaning are parsed once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from nats_scheduler.schedule.cron_fields import MONTH_LENGTHS, STAR, CronFields, days_by_length
from nats_scheduler.schedule.instants import days_in_month
from nats_scheduler.schedule.invalid import FaultError, Invalid

WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
"""Go's `unicode.IsSpace`; Python's `str.split()` also splits at \\x1c–\\x1f."""

_words = re.compile(f"[^{WHITE_SPACE}]+").findall
_number = re.compile(r"\+?([0-9]+)").fullmatch
_MAX_NUMBER = (1 << 63) - 1
_MAX_DIGITS = 19
"""The largest number has this many digits."""
_LEAP_YEAR = 2000
_MAX_CACHED_FIELD_CHARS = 64
"""Longer fields are not cached, so that the cache stays small."""
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

    @property
    def expected(self) -> str:
        """Say what may be written in the field."""
        names = f", a name {self.names[0]}–{self.names[-1]}" if self.names else ""
        return f"a number {self.low}–{self.high}{names}, a range or *"


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
    try:
        seconds, minutes, hours, days_of_month, months, days_of_week = map(_field_of, range(len(FIELDS)), words)
        days = days_by_length(days_of_month, days_of_week)
        check_possible(seconds, minutes, hours, months, days)
    except FaultError as fault:
        return Invalid(text, fault.reason)
    return CronFields(
        seconds & ~STAR, minutes & ~STAR, hours & ~STAR, days_of_month, months & ~STAR, days_of_week, days
    )


def _explain_count(words: list[str]) -> str:
    """Return the reason why this number of fields is wrong."""
    expected = "expected 6 fields (second minute hour day-of-month month day-of-week)"
    return f"{expected}, got {len(words)}"


def _field_of(number: int, word: str) -> int:
    """Parse field 0–5; a long one is not cached."""
    return _read_field(number, word) if len(word) > _MAX_CACHED_FIELD_CHARS else _read_cached_field(number, word)


def _read_field(number: int, word: str) -> int:
    """Parse the list of ranges of field 0–5 as a mask; raises `FaultError`.

    As the server does: empty items are ignored, and a list of nothing but commas matches nothing
    (`test_empty_items_of_a_list_are_ignored`).
    """
    mask = 0
    for item in _items(word):
        mask |= _read_item(FIELDS[number], item) if item else 0
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


def _read_item(field: Field, item: str) -> int:
    """Parse `*`, `n` or `a-b`, each with or without `/step`."""
    span, *steps = item.split("/")
    if len(steps) > 1:
        raise FaultError(f"{field.name} {item!r} has two slashes")
    step = _read_number(steps[0]) if steps else 1
    if not step:
        raise FaultError(f"{field.name} {item!r} needs a step of 1 or more after the slash")
    low, high, star = _read_span(field, item, span, bool(steps))
    bits = _MULTIPLES[min(step, _MAX_STEP)] << low & (2 << high) - 1
    # As the server does: a step above 1 makes a star a restriction (`test_a_stepped_star_is_a_restriction`).
    return bits | STAR if star and step == 1 else bits


def _read_span(field: Field, item: str, span: str, stepped: bool) -> tuple[int, int, bool]:
    """Parse the part before the step: return the lowest and the highest value, and whether it is a star."""
    first, *rest = span.split("-")
    if first in ("*", "?"):
        # As the server does: what follows a hyphen after a star is ignored (`test_text_after_a_star_is_ignored`).
        return field.low, field.high, True
    if len(rest) > 1:
        raise FaultError(f"{field.name} {item!r} has two hyphens")
    low = _read_value(field, first)
    high = _read_value(field, rest[0]) if rest else low
    if low is None or high is None:
        raise FaultError(f"{field.name} {item!r} is not {field.expected}")
    if stepped and not rest:
        high = field.high
    if low < field.low:
        raise FaultError(f"{field.name} {low} is below {field.low}")
    if high > field.high or low > field.high:
        raise FaultError(f"{field.name} {max(low, high)} is above {field.high}")
    if low > high:
        raise FaultError(f"{field.name} range {low}-{high} runs backwards (ranges do not wrap around)")
    return low, high, False


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
    digits = _number(text)
    if digits is None:
        return None
    significant = digits[1].lstrip("0") or "0"
    # Python raises an error for thousands of digits, and Go for every number of more than 63 bits.
    return int(significant) if len(significant) <= _MAX_DIGITS and int(significant) <= _MAX_NUMBER else None


def check_possible(seconds: int, minutes: int, hours: int, months: int, days: tuple[tuple[int, ...], ...]) -> None:
    """Raise `FaultError` if a pattern can never match in any year."""
    for field, mask in zip(FIELDS, (seconds, minutes, hours), strict=False):
        if mask == 0:
            raise FaultError(f"the list of the {field.name} field is empty, so nothing ever matches")
    longest = _longest_month(months)
    if not (longest and any(days[longest - MONTH_LENGTHS[0]])):
        raise FaultError("none of the given months has one of the given days")


@lru_cache(maxsize=4_096)
def _longest_month(months: int) -> int:
    """Return the most days that one of the months can have, 0 if there is none."""
    return max((days_in_month(_LEAP_YEAR, month) for month in range(1, 13) if months >> month & 1), default=0)
