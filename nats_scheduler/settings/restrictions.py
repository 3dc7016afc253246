"""The operator's restrictions as settings: lists of `STREAM=VALUE`, because flags and variables hold lists of text.

Rule: a stream that is named in a list has what stands there; any other has what stands for `*`.
Without either it is not restricted.
Cost: once per stream. Limit: a stream whose name holds `=` cannot be named.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.subjects import is_valid_subject

ANY_STREAM = "*"

_NAMED = r"^(\*|[^\s.*>/\\=]+)="


def restrictions_on(
    stream: str, targets: Sequence[str], sources: Sequence[str], max_schedules: Sequence[str]
) -> Restrictions:
    """Return what is allowed on a stream by lists of `STREAM=VALUE`; of several maxima the smallest holds."""
    numbers = _said_of(stream, max_schedules)
    return Restrictions(
        targets=_said_of(stream, targets),
        sources=_said_of(stream, sources),
        max_schedules=min(map(int, numbers)) if numbers is not None else None,
    )


def _said_of(stream: str, entries: Sequence[str]) -> tuple[str, ...] | None:
    """Return the values for a stream, else those for every stream, None if there are neither."""
    pairs = [entry.partition("=")[::2] for entry in entries]
    for name in (stream, ANY_STREAM):
        values = tuple(value for named, value in pairs if named == name)
        if values:
            return values
    return None


def _with_valid_subject(entry: str) -> str:
    if not is_valid_subject(entry.partition("=")[2]):
        raise ValueError("not a subject")
    return entry


StreamSubject = Annotated[str, StringConstraints(pattern=_NAMED + r"\S+$"), AfterValidator(_with_valid_subject)]
"""`ORDERS=orders.due.>` or `*=due.>`."""

StreamNumber = Annotated[str, StringConstraints(pattern=_NAMED + r"[0-9]{1,9}$")]
"""`ORDERS=1000` or `*=100000`."""
