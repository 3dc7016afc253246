"""Values of policies that are more than a number or a text.

The rule: a parser returns the value, or the reason why the text is none, which follows the text in a sentence.
"""

import re
from enum import StrEnum
from typing import NamedTuple

from nats_scheduler.schedule.durations import format_duration, parse_duration
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid

DEFAULT_GRACE_NS = 10 * SECOND
"""A fire that is later than this counts as missed: a failover takes less."""

MIN_GRACE_NS = 1 * SECOND
"""Shortest grace: fires of a burst are that late, and none of them was missed."""

MAX_MADE_UP = 1_000_000
"""Largest number in `all <N>`."""


class Kept(StrEnum):
    """What is sent of the fires that came due and could not be stored in time."""

    ONCE = "once"
    """The latest one."""
    SKIP = "skip"
    """None, once they are later than the grace."""
    ALL = "all"
    """Each, oldest first."""


class Missed(NamedTuple):
    """What happens to missed fires; as a text, the value of `X-Missed`."""

    kept: Kept = Kept.ONCE
    most: int | None = None
    """So many of the latest, if all are sent; None is no limit."""

    def __str__(self) -> str:
        """Write it as a publisher does."""
        return str(self.kept) if self.most is None else f"{self.kept} {self.most}"


MAKE_UP_ONCE = Missed()
"""What happens without a policy."""


def read_missed(value: str) -> Missed | str:
    """Read the value of `X-Missed`."""
    match = _ALL(value)
    if match is not None and match[1] is not None:
        most = int(match[1])
        return Missed(Kept.ALL, most) if 1 <= most <= MAX_MADE_UP else f"is not all with 1 to {MAX_MADE_UP:,}"
    if value not in list(Kept):
        return f"is none of once, skip, all, and all with a number, such as 'all 10': 1 to {MAX_MADE_UP:,}"
    return Missed(Kept(value))


def read_duration(value: str) -> int | str:
    """Read a duration (ns) of any length."""
    duration = parse_duration(value)
    return f"is not a duration: {duration.reason}" if isinstance(duration, Invalid) else duration


def read_grace(value: str) -> int | str:
    """Read the value of `X-Grace` (ns)."""
    duration = read_duration(value)
    if isinstance(duration, int) and duration < MIN_GRACE_NS:
        return f"is less than {format_duration(MIN_GRACE_NS)}: fires of a burst are that late"
    return duration


def read_report(value: str) -> bool | str:
    """Read the value of `X-Report`."""
    return True if value == "true" else "is not 'true', the only value"


_ALL = re.compile(r"all(?: ([0-9]{1,9}))?").fullmatch
