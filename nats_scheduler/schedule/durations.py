"""Durations as Go reads and prints them: `1h30m`, `250ms`, `1.5s`.

One rule: the accepted texts, and the nanoseconds they mean, are exactly those of Go's `time.ParseDuration`; the
printed text is that of `Duration.String`.
That includes Go's arithmetic: 64-bit limits, and fractions that go through a 64-bit float.
Cost: about a microsecond a term, and less for one that stood in the text before: 64 KB of terms are legal.
Limit: ±2562047h47m16.854775807s.
"""

from __future__ import annotations

import re

from nats_scheduler.schedule.instants import HOUR, MICROSECOND, MILLISECOND, MINUTE, NANOSECOND, SECOND
from nats_scheduler.schedule.invalid import Invalid

_UNITS = {
    "ns": NANOSECOND,
    "us": MICROSECOND,
    "\u00b5s": MICROSECOND,  # micro sign
    "\u03bcs": MICROSECOND,  # Greek letter mu
    "ms": MILLISECOND,
    "s": SECOND,
    "m": MINUTE,
    "h": HOUR,
}

_terms = re.compile(r"(?=.)([0-9]*+)(?:\.([0-9]*+))?([^.0-9]*+)", re.DOTALL).findall
"""Takes the whole text apart; what is no term comes without a unit, or without digits."""

_LIMIT = 1 << 63
_WORD = (1 << 64) - 1
_DIGITS_OF_LIMIT = 19
_SAFE_FRACTION = 18
"""So many digits always fit in 63 bits."""

_EXPECTED = "expected a duration such as 90s, 1h30m or 1.5s"
_TOO_LONG = "longer than 2562047h47m16.854775807s"


def parse_duration(text: str) -> int | Invalid:
    """Read a duration in nanoseconds: a sign, then one or more `decimal unit` in any order."""
    negative = text.startswith("-")
    at = 1 if negative or text.startswith("+") else 0
    if text[at:] == "0":
        return 0
    if at == len(text):
        return Invalid(text, _EXPECTED)
    total = 0
    known: dict[tuple[str, str, str], int | str] = {}
    for term in _terms(text[at:]):
        value = known.get(term)
        if value is None:
            value = known[term] = _term_value(*term)
        if isinstance(value, str):
            return Invalid(text, value)
        # As the server does: the sum is a 64-bit word, and two terms of 1 << 63 make zero
        # (`test_a_sum_of_two_largest_terms_wraps_to_zero`).
        total = (total + value) & _WORD
        if total > _LIMIT:
            return Invalid(text, _TOO_LONG)
    return _signed(text, total, negative)


def _signed(text: str, total: int, negative: bool) -> int | Invalid:
    """Apply the sign; only a negative duration may be 1 << 63 long."""
    if negative:
        return -total
    return Invalid(text, _TOO_LONG) if total == _LIMIT else total


def _term_value(whole: str, fraction: str, unit: str) -> int | str:
    """Give the nanoseconds of one `decimal unit`, or the reason why it is refused."""
    if not unit or not (whole or fraction):
        return _EXPECTED
    if unit not in _UNITS:
        return f"unknown unit {unit[:20]!r} (ns, us, µs, ms, s, m and h are known)"
    digits = whole.lstrip("0")
    if len(digits) > _DIGITS_OF_LIMIT:
        return _TOO_LONG
    size = _UNITS[unit]
    value = int(digits or "0")
    if value > _LIMIT // size:
        return _TOO_LONG
    value = value * size + (_fraction_value(fraction, size) if fraction else 0)
    return _TOO_LONG if value > _LIMIT else value


def _fraction_value(digits: str, size: int) -> int:
    """Give the nanoseconds of the digits after the point, by Go's float arithmetic."""
    if len(digits) <= _SAFE_FRACTION:
        return int(float(int(digits)) * (size / 10.0 ** len(digits)))
    value, scale = 0, 1.0
    for digit in digits:
        if value > (_LIMIT - 1) // 10:
            break
        longer = value * 10 + ord(digit) - ord("0")
        if longer > _LIMIT:
            break
        value, scale = longer, scale * 10
    return int(float(value) * (size / scale))


def format_duration(ns: int) -> str:
    """Print a duration in nanoseconds: `1h30m0s`, `1.5s`, `250ms`; below a second in the largest fitting unit."""
    sign, ns = ("-", -ns) if ns < 0 else ("", ns)
    if ns == 0:
        return "0s"
    if ns < SECOND:
        return sign + _small(ns)
    minutes, rest = divmod(ns, MINUTE)
    text = _decimal(rest, SECOND) + "s"
    if minutes:
        hours, minutes = divmod(minutes, 60)
        text = f"{hours}h{minutes}m{text}" if hours else f"{minutes}m{text}"
    return sign + text


def _small(ns: int) -> str:
    """Print a duration of 1–999,999,999 ns."""
    if ns < MICROSECOND:
        return f"{ns}ns"
    if ns < MILLISECOND:
        return _decimal(ns, MICROSECOND) + "\u00b5s"
    return _decimal(ns, MILLISECOND) + "ms"


def _decimal(value: int, unit: int) -> str:
    """Print value / unit exactly, without trailing zeros; the unit is a power of ten."""
    whole, rest = divmod(value, unit)
    if rest == 0:
        return str(whole)
    digits = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0")
    return f"{whole}.{digits}"
