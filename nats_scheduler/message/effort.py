"""Estimate how long it takes to read messages, from their bytes alone: what a step of an engine takes at once.

Most messages cost a fraction of a microsecond to read, or a few; a schedule with policies may cost a hundred times as
much. A publisher can send many of those at once, so how many are read at a time follows from this estimate,
and not from their number.

The rule: the estimate is in microseconds, and is right within some factor for what programs publish. What is dear is
never taken for cheap: each name of a policy and each long block counts.
Cost: 0.05 µs a message, if many are estimated together.
"""

from collections.abc import Sequence

MESSAGE = 1
"""Any message."""

AT_SCHEDULE = 3
"""A schedule with `@at`."""

SCHEDULE = 10
"""Any other schedule."""

ZONE = 20
"""More for a time zone."""

POLICY = 100
"""More for each policy: it may need searches for fire times."""

USUAL_BLOCK_BYTES = 512
"""What is longer costs more."""

BYTES_EACH = 32
"""Bytes beyond that which cost a microsecond."""

_SCHEDULE = b"Schedule:"
_AT = b"Schedule: @at "
_ZONE = b"Schedule-Time-Zone"
_POLICY = b"Schedule-X-"
"""Parts of the names in both dialects."""


def effort_of(blocks: Sequence[bytes]) -> int:
    """Return the estimate (µs) for messages with these header blocks."""
    number, text = len(blocks), b"".join(blocks)
    excess = max(len(text) - USUAL_BLOCK_BYTES * number, 0) // BYTES_EACH
    if (schedules := text.count(_SCHEDULE)) == 0:
        return MESSAGE * number + POLICY * text.count(_POLICY) + excess
    at = min(text.count(_AT), number)
    others = ZONE * text.count(_ZONE) + POLICY * text.count(_POLICY)
    return MESSAGE * number + (AT_SCHEDULE - 1) * at + (SCHEDULE - 1) * (schedules - at) + others + excess
