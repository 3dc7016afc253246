"""Instants, spans and foreign texts as people read them, in tables, warnings and answers.

Rule: an instant is in UTC, with no more digits than are of use to a reader; a text of others cannot contain a terminal
command.
Cost: a microsecond.
"""

from __future__ import annotations

import shlex

from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.paused import paused_name
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import DAY, HOUR, MILLISECOND, SECOND, round_to_second
from nats_scheduler.schedule.rfc3339 import format_rfc3339

SHOWN_IN_DAYS_FROM_NS = 2 * DAY
"""A span (ns) from here on is shown in days."""

SHOWN_IN_YEARS_FROM_NS = 730 * DAY
"""A span (ns) from here on is shown in years of 365 days."""


def how_to_resume(stream: str, subject: str, dialect: Dialect) -> str:
    """Return what to do to resume a paused schedule in a dialect: by our command, or with any client."""
    command = shlex.join(["nats-scheduler", "resume", stream, subject])
    by_hand = f"publish its message again with {paused_name(dialect).decode()} renamed to {dialect.schedule.decode()}"
    return f"{command}; or {by_hand}"


def printable(text: str) -> str:
    """Return text with every character that is not printable escaped."""
    return text if text.isprintable() else repr(text)[1:-1]


def shortened(instant: int) -> int:
    """Return an instant (ns) rounded down to the second, or to the millisecond if it is between two seconds."""
    return instant - instant % (MILLISECOND if instant % SECOND >= MILLISECOND else SECOND)


def time_text(instant: int) -> str:
    """Return an instant (ns) in UTC as text, to the second or to the millisecond."""
    return format_rfc3339(shortened(instant))


def moment_text(instant: int) -> str:
    """Return an instant (ns) of the past in UTC as text, to the second."""
    return format_rfc3339(instant - instant % SECOND)


def span_text(nanoseconds: int) -> str:
    """Return a span (ns) as text, to the second; long spans in days and hours, or in years and days."""
    if nanoseconds < SHOWN_IN_DAYS_FROM_NS:
        return format_duration(round_to_second(nanoseconds))
    if nanoseconds < SHOWN_IN_YEARS_FROM_NS:
        return f"{nanoseconds // DAY}d{nanoseconds % DAY // HOUR}h"
    days = nanoseconds // DAY
    return f"{days // 365}y{days % 365}d"
