"""What happens to a fire that comes due while the fire before it is unfinished: `X-Overlap`, `X-Consumer`, `X-Timeout`.

A fire is finished when its message is no longer stored. On a stream that keeps what was acknowledged it is finished
too when the consumer that `X-Consumer` names has acknowledged it. `X-Timeout` counts it as finished so long after it
was stored.

The rules:

- On a stream that keeps what was acknowledged, `X-Overlap` needs `X-Consumer`: nothing else shows what is finished.
- `X-Consumer` and `X-Timeout` have no effect without `X-Overlap`, so they reject a schedule that lacks it.

Cost: nothing for a schedule without these policies.
"""

import re
from collections.abc import Collection
from enum import StrEnum
from typing import NamedTuple

from nats_scheduler.message.policy_values import read_duration

MAX_CONSUMER_NAME_CHARS = 255
"""Longest name of a consumer, as the server has it."""

_FORBIDDEN = re.compile(r"[\s.*>/\\\x00-\x1f\x7f]").search
"""What the server allows in no name of a consumer, and control characters, which no request can contain."""

_UNSENDABLE = re.compile(r"[\ud800-\udfff]").search
"""What stands in a value for bytes that are not UTF-8."""


class Overlap(StrEnum):
    """What happens to a fire that comes due while the one before is unfinished."""

    ALLOW = "allow"
    """It is sent all the same."""
    SKIP = "skip"
    """It is dropped."""
    QUEUE = "queue"
    """It waits until the one before is finished; of several that wait, the latest is sent."""


class MisplacedPolicy(NamedTuple):
    """A policy that is valid by itself, and not beside the others or on this stream."""

    name: str
    """Its name without the prefix, such as `X-Timeout`."""
    reason: str


def consumer_fault(name: str) -> str:
    """Return why no consumer can have this name; "" if one can."""
    if not name:
        return "is empty: expected the name of a consumer"
    if len(name) > MAX_CONSUMER_NAME_CHARS:
        return f"has {len(name):,} characters: expected at most {MAX_CONSUMER_NAME_CHARS}"
    if _UNSENDABLE(name):
        return "is not UTF-8: no request can name such a consumer"
    if _FORBIDDEN(name):
        return "is no name of a consumer: it has no blanks, dots, slashes or wildcards"
    return ""


def read_timeout(value: str) -> int | str:
    """Read a timeout in ns; the reason if it is none."""
    duration = read_duration(value)
    return "is not more than 0" if isinstance(duration, int) and duration <= 0 else duration


def misplaced_policy(overlap: Overlap, names: Collection[str], *, needs_consumer: bool) -> MisplacedPolicy | None:
    """Return the first policy among `names` that is missing something; None if nothing is missing.

    `needs_consumer` if the stream keeps what was acknowledged.
    """
    for name in ("X-Consumer", "X-Timeout"):
        if name in names and "X-Overlap" not in names:
            return MisplacedPolicy(name, "has no effect without X-Overlap")
    if needs_consumer and overlap is not Overlap.ALLOW and "X-Consumer" not in names:
        reason = "needs X-Consumer on this stream, which keeps what was acknowledged (limits retention)"
        return MisplacedPolicy("X-Overlap", reason)
    return None
