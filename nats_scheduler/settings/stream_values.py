"""Settings that differ by stream: lists of `STREAM=VALUE`, because flags and variables contain lists of text.

The entries for a stream apply to it; if there are none, the entries for `*` apply. A stream without either is not
restricted, except that no target in another stream is allowed. An entry cannot name a stream whose name contains `=`.
"""

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.subjects import is_valid_subject
from nats_scheduler.schedule.durations import parse_duration
from nats_scheduler.schedule.instants import MILLISECOND
from nats_scheduler.settings.duration_range import DurationRange

STREAM_WILDCARD = "*"

_STREAM_PATTERN = r"^(\*|[^\s.*>/\\=]+)="


def restrictions_on(
    stream: str, targets: Sequence[str], sources: Sequence[str], elsewhere: Sequence[str], max_schedules: Sequence[str]
) -> Restrictions:
    """Return the restrictions of a stream from lists of `STREAM=VALUE`; of several maxima the smallest applies."""
    numbers = values_for(stream, max_schedules)
    return Restrictions(
        targets=values_for(stream, targets),
        sources=values_for(stream, sources),
        elsewhere=values_for(stream, elsewhere) or (),
        max_schedules=min(map(int, numbers)) if numbers is not None else None,
    )


def values_for(stream: str, entries: Sequence[str]) -> tuple[str, ...] | None:
    """Return the values for a stream, otherwise those for every stream; None if there are neither."""
    pairs = [entry.partition("=")[::2] for entry in entries]
    for name in (stream, STREAM_WILDCARD):
        values = tuple(value for named, value in pairs if named == name)
        if values:
            return values
    return None


def _with_valid_subject(entry: str) -> str:
    if not is_valid_subject(entry.partition("=")[2]):
        raise ValueError("not a subject")
    return entry


DEFAULT_BUDGET_NS = 5 * MILLISECOND
"""How late (ns) a fire may be sent to share its wake with others, unless the operator says so."""

MAX_BUDGET_NS = 500 * MILLISECOND
"""The process reads nothing for so long after fires: it has to receive the heartbeats of others in time."""


def _with_valid_budget(entry: str) -> str:
    stream, separator, value = entry.rpartition("=")
    duration = parse_duration(value)
    if not isinstance(duration, int) or not 0 <= duration <= MAX_BUDGET_NS:
        raise ValueError(f"not {DurationRange(0, MAX_BUDGET_NS).expected}")
    return _for_each_stream(entry, stream, separator)


MAX_CATCH_UP_RATE = 1_000_000
"""More than any server stores in a second."""


def _with_valid_rate(entry: str) -> str:
    stream, separator, value = entry.rpartition("=")
    if not re.fullmatch(r"[0-9]{1,7}", value) or not 1 <= int(value) <= MAX_CATCH_UP_RATE:
        raise ValueError(f"not a number of 1 to {MAX_CATCH_UP_RATE}")
    return _for_each_stream(entry, stream, separator)


def _for_each_stream(entry: str, stream: str, separator: str) -> str:
    """Return an entry `STREAM=VALUE`, that of every stream if it names none."""
    if separator and not re.match(_STREAM_PATTERN, entry):
        raise ValueError(f"{stream!r} is not the name of a stream")
    return entry if separator else f"{STREAM_WILDCARD}={entry}"


StreamSubject = Annotated[
    str, StringConstraints(pattern=_STREAM_PATTERN + r"\S+$"), AfterValidator(_with_valid_subject)
]
"""`ORDERS=orders.due.>` or `*=due.>`."""

StreamBudget = Annotated[str, AfterValidator(_with_valid_budget)]
"""`ORDERS=250ms`, or `50ms` for every stream."""

StreamRate = Annotated[str, AfterValidator(_with_valid_rate)]
"""`ORDERS=50`, or `200` for every stream."""

StreamNumber = Annotated[str, StringConstraints(pattern=_STREAM_PATTERN + r"[0-9]{1,9}$")]
"""`ORDERS=1000` or `*=100000`."""
