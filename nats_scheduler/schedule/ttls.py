"""The grammar of `Nats-TTL` and `Nats-Schedule-TTL`: a duration, plain seconds, or `never`.

One rule: what the server's `parseMessageTTL` accepts is accepted, with the same seconds.
A text is a duration if it can be; only otherwise are its digits taken for seconds.
Limit: an empty text is an absent header and is the caller's business; here it is refused.
"""

from __future__ import annotations

import re

from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid

NEVER = -1
"""The TTL of a message that never expires."""

_all_digits = re.compile(r"[0-9]+").fullmatch

_DIGITS_OF_WORD = 64
"""10 ** 64 is a multiple of 2 ** 64, so only so many digits reach a 64-bit word."""


def parse_ttl(text: str) -> int | Invalid:
    """Read a TTL in seconds; NEVER for `never` in any case, 0 for `00` (no TTL).

    As the server does: the part below a second is dropped (`test_a_ttl_drops_the_part_below_a_second`).
    """
    if text.lower() == "never":
        return NEVER
    duration = parse_duration(text)
    if isinstance(duration, Invalid):
        return _plain_seconds(text)
    if duration < SECOND:
        return Invalid(text, "a TTL is at least 1s")
    whole, fraction = divmod(duration, SECOND)
    # Through a float, since the server does it so: above 2 ** 53 ns of fraction a second may be gained.
    return int(float(whole) + fraction / SECOND)


def _plain_seconds(text: str) -> int | Invalid:
    """Read decimal digits as seconds.

    As the server does: digits of any length are accepted, the number wraps at 64 bits and is refused where it wraps
    to a negative one (`test_a_ttl_of_many_digits_wraps_as_on_the_server`).
    """
    if _all_digits(text) is None:
        return Invalid(text, "expected a duration such as 5m, a number of seconds or 'never'")
    word = int(text[-_DIGITS_OF_WORD:]) & ((1 << 64) - 1)
    if word >> 63:
        return Invalid(text, "more seconds than fit in 63 bits")
    return word
