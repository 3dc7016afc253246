"""The grammar of `Nats-TTL` and `Nats-Schedule-TTL`: a duration, plain seconds, or `never`.

One rule: what the server's `parseMessageTTL` accepts is accepted, with the same seconds.
A text that is a valid duration is one; otherwise its digits are seconds.
Limit: an empty text means an absent header, which the caller handles; here it is invalid.
"""

from __future__ import annotations

import re

from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid

NEVER = -1
"""The TTL of a message that never expires."""

_all_digits = re.compile(r"[0-9]+").fullmatch

_MAX_SIGNIFICANT_DIGITS = 64
"""10 ** 64 is a multiple of 2 ** 64, so only the last 64 digits change a 64-bit word."""


def parse_ttl(text: str) -> int | Invalid:
    """Parse a TTL as seconds: NEVER for `never` in any case, 0 for `00` (no TTL).

    As the server does: the fraction of a second is cut off (`test_a_ttl_drops_the_part_below_a_second`).
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
    is negative (`test_a_ttl_of_many_digits_wraps_as_on_the_server`).
    """
    if _all_digits(text) is None:
        return Invalid(text, "expected a duration such as 5m, a number of seconds or 'never'")
    word = int(text[-_MAX_SIGNIFICANT_DIGITS:]) & ((1 << 64) - 1)
    if word >> 63:
        return Invalid(text, "more seconds than fit in 63 bits")
    return word
