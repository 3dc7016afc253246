"""The header block of a schedule that a Python program says, for the stream that stores it.

The rule: which headers are written is decided where the command line decides it too (`control.spelling`). The block
reads to what was written: a value that would hide another header from a server is refused.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

from nats_scheduler.client.serving import Serving, Sidecar
from nats_scheduler.client.times import nanoseconds_of
from nats_scheduler.client.values import Elsewhere
from nats_scheduler.client.when import InvalidScheduleError, When
from nats_scheduler.control.spelling import spelling_of
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect, schedule_fields
from nats_scheduler.message.headers import Header, one_line, with_headers
from nats_scheduler.message.policies import X_TARGET, policy_header
from nats_scheduler.message.rejection import TTL_INVALID
from nats_scheduler.message.rights import lent_header
from nats_scheduler.schedule.durations import format_duration
from nats_scheduler.schedule.instants import SECOND

Headers = Mapping[str, str] | Sequence[tuple[str, str]]

_NAME = re.compile(r"[!-9;-~]+").fullmatch
_BREAK = re.compile(r"[\r\n]").search


@dataclass(frozen=True, slots=True)
class Wanted:
    """A schedule that is to be stored."""

    when: When
    target: str | Elsewhere
    source: str | None = None
    ttl: timedelta | Literal["never"] | None = None
    rollup: bool = False
    headers: Headers = ()


def spelled(wanted: Wanted, serving: Serving, now: int) -> tuple[bytes, tuple[str, ...]]:
    """Return the header block of a schedule that is stored now (ns) on a stream, and what to know of it.

    Raises `NotServedError` if nothing would fire it.
    """
    dialect, notes = spelling_of(serving.served, _headers(wanted, ADR51, now), now, missing=_missing(serving))
    return _block(wanted, dialect, now), notes


def _missing(serving: Serving) -> str:
    if serving.sidecar is Sidecar.UNKNOWN:
        return "this user may not ask whether one runs"
    if serving.sidecar is Sidecar.NOT_HERE:
        return "the sidecar that answers does not serve the stream"
    return "no sidecar answers"


def _block(wanted: Wanted, dialect: Dialect, now: int) -> bytes:
    """Return the header block; subjects come last where their texts would hide other headers."""
    headers, others = _headers(wanted, dialect, now), headers_of(wanted.headers)
    subjects = [header for header in headers if header[0] in (dialect.target, dialect.source, X_TARGET)]
    rest = [header for header in headers if header not in subjects]
    expected = {name: one_line(value).decode("utf-8", "surrogateescape") for name, value in headers}
    for order in (headers, [*rest, *subjects], [*rest, *subjects[::-1]]):
        block = with_headers(None, [*order, *others])
        if schedule_fields(block, dialect) == expected:
            return block
    raise InvalidScheduleError("a value of the schedule contains the name of another header, and hides it from servers")


def _headers(wanted: Wanted, dialect: Dialect, now: int) -> list[Header]:
    named: list[tuple[bytes, str | None]] = [
        target_header(wanted.target, dialect),
        (dialect.source, wanted.source),
        (dialect.ttl, ttl_text(wanted.ttl)),
        (dialect.rollup, "sub" if wanted.rollup else None),
    ]
    values = [(name, line_of(name.decode(), value)) for name, value in named if value is not None]
    return [*wanted.when.headers(dialect, now), *values]


def target_header(target: str | Elsewhere, dialect: Dialect) -> tuple[bytes, str]:
    """Return the header that names a target, and its value."""
    if isinstance(target, Elsewhere):
        return policy_header("X-Target", dialect), target.subject
    return dialect.target, target


def ttl_text(ttl: timedelta | Literal["never"] | None) -> str | None:
    """Return a TTL as a header has it; raises `InvalidScheduleError` for less than a second."""
    if ttl is None:
        return None
    if not isinstance(ttl, timedelta):
        if ttl == "never":
            return "never"
        raise InvalidScheduleError(f"ttl of {ttl!r}: expected a timedelta, or 'never'", TTL_INVALID.code)
    nanoseconds = nanoseconds_of(ttl, "ttl")
    if nanoseconds < SECOND:
        raise InvalidScheduleError(f"ttl of {ttl} is less than a second", TTL_INVALID.code)
    return format_duration(nanoseconds)


def headers_of(headers: Headers) -> list[Header]:
    """Return further headers of the program; raises `ValueError` for what is none, or is one of a schedule."""
    items: Iterable[tuple[str, str]] = headers.items() if isinstance(headers, Mapping) else headers
    return [(checked_name(name).encode(), line_of(name, value)) for name, value in items]


def checked_name(name: str) -> str:
    """Return the name of a header of the program's own."""
    if not _NAME(name):
        raise InvalidScheduleError(f"header of {name!r}: a name has ASCII letters, digits and '-', and no blanks")
    if name.startswith((ADR51.schedule.decode(), PORTABLE.schedule.decode())):
        raise InvalidScheduleError(f"header of {name!r} belongs to the schedule: give it as an argument")
    if lent_header(with_headers(None, [(name.encode(), b"")])) is not None:
        raise InvalidScheduleError(f"header of {name!r} would make the server do more than to store the message")
    return name


def line_of(name: str, value: str) -> bytes:
    """Return the value of a header as bytes; raises `InvalidScheduleError` if it has a line break, and `TypeError`."""
    if not isinstance(value, str):
        raise TypeError(f"{name} of {value!r} is no text")
    if _BREAK(value):
        raise InvalidScheduleError(f"{name} of {value[:80]!r} has a line break: a header is one line")
    return value.encode("utf-8", "surrogateescape")
