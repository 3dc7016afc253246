"""Durations as Go parses and prints them (`1h30m`, `250ms`, `1.5s`), and the TTLs in headers.

The accepted texts, and the nanoseconds they mean, are exactly those of Go's `time.ParseDuration`; the printed text is
that of `Duration.String`. That includes Go's arithmetic: 64-bit limits (±2562047h47m16.854775807s), and fractions that
are computed with a 64-bit float. A term that is repeated is parsed once, since 64 KB of terms are legal.
"""

from __future__ import annotations

import re

from nats_scheduler.schedule.instants import HOUR, MICROSECOND, MILLISECOND, MINUTE, NANOSECOND, SECOND
from nats_scheduler.schedule.invalid import FaultError, Invalid

_UNIT_NS = {
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
"""Splits the whole text; a part that is no term has no unit, or no digits."""

_LIMIT_NS = 1 << 63
_WORD_MASK = (1 << 64) - 1
_MAX_WHOLE_DIGITS = 19
"""The limit has this many digits."""

_EXPECTED_DURATION = "expected a duration such as 90s, 1h30m or 1.5s"
_TOO_LONG = "longer than 2562047h47m16.854775807s"


def parse_duration(text: str) -> int | Invalid:
    """Parse a duration as nanoseconds: an optional sign, then one or more `decimal unit` in any order."""
    is_negative = text.startswith("-")
    unsigned = text[1:] if is_negative or text.startswith("+") else text
    if unsigned == "0":
        return 0
    try:
        total = _sum(unsigned)
    except FaultError as fault:
        return Invalid(text, fault.reason)
    if is_negative:
        return -total
    return Invalid(text, _TOO_LONG) if total == _LIMIT_NS else total  # only a negative one may be 1 << 63 long


def _sum(text: str) -> int:
    """Add up the terms of a duration."""
    if not text:
        raise FaultError(_EXPECTED_DURATION)
    total = 0
    known: dict[tuple[str, str, str], int] = {}
    for term in _terms(text):
        if term not in known:
            known[term] = _term_value(*term)
        # As the server does: the sum is a 64-bit word, so two terms of 1 << 63 add up to zero
        # (`test_durations_are_read_and_refused_as_go_does`).
        total = (total + known[term]) & _WORD_MASK
        if total > _LIMIT_NS:
            raise FaultError(_TOO_LONG)
    return total


def _term_value(whole: str, fraction: str, unit: str) -> int:
    """Return the nanoseconds of one `decimal unit`."""
    if not unit or not (whole or fraction):
        raise FaultError(_EXPECTED_DURATION)
    if unit not in _UNIT_NS:
        raise FaultError(f"unknown unit {unit[:20]!r} (ns, us, µs, ms, s, m and h are known)")
    digits, size = whole.lstrip("0") or "0", _UNIT_NS[unit]
    if len(digits) > _MAX_WHOLE_DIGITS or int(digits) > _LIMIT_NS // size:
        raise FaultError(_TOO_LONG)
    value = int(digits) * size + _fraction_value(fraction, size)
    if value > _LIMIT_NS:
        raise FaultError(_TOO_LONG)
    return value


def _fraction_value(digits: str, size: int) -> int:
    """Return the nanoseconds of the digits after the point, by Go's float arithmetic."""
    value, scale = 0, 1.0
    for digit in digits:
        longer = value * 10 + int(digit)
        if longer > _LIMIT_NS or value > (_LIMIT_NS - 1) // 10:
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


NEVER = -1
"""The TTL of a message that never expires."""

_all_digits = re.compile(r"[0-9]+").fullmatch

_MAX_SIGNIFICANT_DIGITS = 64
"""10 ** 64 is a multiple of 2 ** 64, so only the last 64 digits change a 64-bit word."""


def parse_ttl(text: str) -> int | Invalid:
    """Parse a TTL as seconds: NEVER for `never` in any case, 0 for `00` (no TTL).

    What the server's `parseMessageTTL` accepts is accepted, with the same seconds: a text that is a valid duration is
    one, otherwise its digits are seconds. An empty text means an absent header, which the caller handles; here it is
    invalid.

    As the server does: the fraction of a second is cut off (`test_a_ttl_is_a_duration_or_seconds_or_never`).
    """
    if text.lower() == "never":
        return NEVER
    duration = parse_duration(text)
    if isinstance(duration, Invalid):
        return _plain_seconds(text)
    if duration < SECOND:
        return Invalid(text, "a TTL is at least 1s")
    whole, fraction = divmod(duration, SECOND)
    # Computed with a float, as the server does: a fraction just below a second may round a very long TTL up.
    return int(float(whole) + fraction / SECOND)


def _plain_seconds(text: str) -> int | Invalid:
    """Parse decimal digits as seconds.

    As the server does: digits of any length are accepted, the number wraps at 64 bits, and it is invalid if the result
    is negative (`test_a_ttl_is_a_duration_or_seconds_or_never`).
    """
    if _all_digits(text) is None:
        return Invalid(text, "expected a duration such as 5m, a number of seconds or 'never'")
    word = int(text[-_MAX_SIGNIFICANT_DIGITS:]) & ((1 << 64) - 1)
    if word >> 63:
        return Invalid(text, "more seconds than fit in 63 bits")
    return word
