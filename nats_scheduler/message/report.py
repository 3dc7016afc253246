"""The headers that `X-Report` adds: for which time a fire is, which fire was stored before it, and what was dropped.

A fire that was requested says so in a header of its own, with or without `X-Report`.

Its names begin with `X-Nats-` beside the headers of ADR-51 too: servers remove headers that begin with `Nats-Schedule`
from what they generate. A fire that copies the headers of another one, its sample, has only its own report.
"""

from nats_scheduler.message.dialect import PORTABLE
from nats_scheduler.message.placing import Header
from nats_scheduler.schedule.patterns import Pattern

DUE = PORTABLE.schedule + b"-X-Due"
"""The fire time, as `Nats-Schedule-Next` writes it."""
PREVIOUS = PORTABLE.schedule + b"-X-Previous"
"""The fire time of the last fire before that is known to be stored; absent if there is none."""
MISSED = PORTABLE.schedule + b"-X-Missed"
"""How many fires were dropped between the two."""

BY = PORTABLE.schedule + b"-X-By"
"""What was requested: `fire` or `backfill`; absent from all other fires."""

_BY_LINE = b"\n" + BY + b": "

REPORT_NAMES = (DUE, PREVIOUS, MISSED)


def is_requested(block: bytes) -> bool:
    """Return whether a fire says that was requested it: when it is stored says nothing about punctuality."""
    return _BY_LINE in block


def report_headers(pattern: Pattern, fire_time: int, previous: int | None, missed: int) -> list[Header]:
    """Return the report of a fire; times are in nanoseconds."""
    headers = [(DUE, pattern.format(fire_time).encode())]
    if previous is not None:
        headers.append((PREVIOUS, pattern.format(previous).encode()))
    return [*headers, (MISSED, b"%d" % missed)]
