"""The operator's restrictions as settings: lists of `STREAM=VALUE`, because flags and variables contain lists of text.

Rule: the entries for a stream apply to it; if there are none, the entries for `*` apply.
A stream without either is not restricted, except that no target in another stream is allowed.
Cost: once per stream. Limit: an entry cannot name a stream whose name contains `=`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.subjects import is_valid_subject

STREAM_WILDCARD = "*"

_STREAM_PATTERN = r"^(\*|[^\s.*>/\\=]+)="


def restrictions_on(
    stream: str, targets: Sequence[str], sources: Sequence[str], elsewhere: Sequence[str], max_schedules: Sequence[str]
) -> Restrictions:
    """Return the restrictions of a stream from lists of `STREAM=VALUE`; of several maxima the smallest applies."""
    numbers = _values_for(stream, max_schedules)
    return Restrictions(
        targets=_values_for(stream, targets),
        sources=_values_for(stream, sources),
        elsewhere=_values_for(stream, elsewhere) or (),
        max_schedules=min(map(int, numbers)) if numbers is not None else None,
    )


def _values_for(stream: str, entries: Sequence[str]) -> tuple[str, ...] | None:
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


StreamSubject = Annotated[
    str, StringConstraints(pattern=_STREAM_PATTERN + r"\S+$"), AfterValidator(_with_valid_subject)
]
"""`ORDERS=orders.due.>` or `*=due.>`."""

StreamNumber = Annotated[str, StringConstraints(pattern=_STREAM_PATTERN + r"[0-9]{1,9}$")]
"""`ORDERS=1000` or `*=100000`."""
