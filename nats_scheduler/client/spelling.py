"""The header block of a schedule that a Python program says, for the stream that stores it.

The rule: which headers are written is decided where the command line decides it too (`control.spelling`). The block
reads to what was written: a value that would hide another header from a server is refused.
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from nats_scheduler.client.serving import Serving, Sidecar
from nats_scheduler.client.times import nanoseconds_of
from nats_scheduler.client.values import Elsewhere, named_policies
from nats_scheduler.client.when import InvalidScheduleError, PolicyArguments, When, policy_texts
from nats_scheduler.control.changes import Author, Change, Kind
from nats_scheduler.control.current import Current
from nats_scheduler.control.errors import NotPossibleError
from nats_scheduler.control.spelling import spelling_of
from nats_scheduler.control.store import ScheduleStore, opened
from nats_scheduler.control.storing import check_subject, recorded
from nats_scheduler.control.words import Edit, is_same_pattern, named_header
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect, schedule_fields
from nats_scheduler.message.generated import PURGE, guard_headers
from nats_scheduler.message.headers import Header, one_line, with_effective_headers, with_headers
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


# What a Python program says of an edit, as the headers to set and to remove of one stored schedule.
#
# The rules:
#
# - What is not named stays as it is. A new `when` takes the place of the pattern, its time zone and its syntax; of
#   the policies it changes those that it has.
# - An edit is written in the spelling that the schedule has.
#
# Cost: some microseconds. Limit: whether the schedule is valid then is decided where it is stored (`control.edits`).


@dataclass(frozen=True, slots=True)
class Wish:
    """The changes that a program wants; what is None, or empty, stays."""

    when: When | None = None
    body: bytes | None = None
    target: str | Elsewhere | None = None
    source: str | None = None
    ttl: timedelta | Literal["never"] | None = None
    rollup: bool | None = None
    headers: Headers = ()
    policies: PolicyArguments = field(default_factory=PolicyArguments)
    unset: Collection[str] = ()

    def check(self) -> None:
        """Raise what is wrong whatever the schedule is: `ValueError` if nothing is to be changed, and `TypeError`."""
        if isinstance(self.unset, str) or not all(isinstance(name, str) for name in self.unset):
            raise TypeError(f"unset of {self.unset!r}: names of headers are expected, such as ['ttl', 'X-Jitter']")
        values = (self.when, self.body, self.target, self.source, self.ttl, self.rollup)
        if all(value is None for value in values) and not (self.headers or self.policies or self.unset):
            raise ValueError("nothing is to be changed: name it, such as when=every(…), body=b'…' or unset=['ttl']")
        headers_of(self.headers)
        ttl_text(self.ttl)


def edit_of(wish: Wish, found: Current, now: int) -> Edit:
    """Return the edit of a stored schedule that a wish is, now (ns)."""
    dialect = found.dialect
    changes: dict[bytes, str | None] = {
        dialect.source: wish.source,
        dialect.ttl: ttl_text(wish.ttl),
        dialect.rollup: "sub" if wish.rollup else None,
    }
    changes = {name: value for name, value in changes.items() if value is not None}
    if wish.rollup is False:
        changes[dialect.rollup] = None
    changes |= _target(wish.target, dialect) | _when(wish, found, now)
    own = headers_of(wish.headers)
    ours = [(name, line_of(name.decode(), value)) for name, value in changes.items() if value is not None]
    removed = [name for name, value in changes.items() if value is None]
    removed += [named_header(dialect, name) for name in wish.unset]
    return Edit([*ours, *own], removed, wish.body)


def _target(target: str | Elsewhere | None, dialect: Dialect) -> dict[bytes, str | None]:
    """Return the headers of both kinds of targets, of which a schedule has one."""
    if target is None:
        return {}
    name, subject = target_header(target, dialect)
    return {dialect.target: None, policy_header("X-Target", dialect): None} | {name: subject}


def _when(wish: Wish, found: Current, now: int) -> dict[bytes, str | None]:
    """Return the headers of the pattern, if it is changed, and of the policies that are."""
    dialect, stored = found.dialect, dict(named_policies(found))
    changes: dict[bytes, str | None] = {}
    written: dict[str, str] = {}
    if wish.when is not None:
        pattern = wish.when.text(now)
        changes = {
            dialect.schedule: pattern,
            dialect.time_zone: wish.when.time_zone,
            policy_header("X-Syntax", dialect): wish.when.syntax,
        }
        if is_same_pattern(pattern.encode(), found.pattern.encode("utf-8", "surrogateescape")):
            del changes[dialect.schedule]  # it says the same already, perhaps as `1h` for `1h0m0s`
        written = dict(wish.when.written_policies)
    texts = dict(policy_texts(stored | written, wish.policies))
    named = {name for name in stored | texts if stored.get(name) != texts.get(name)} | written.keys()
    return changes | {policy_header(name, dialect): texts.get(name) for name in sorted(named)}


# Publish a message that ends a schedule: the atomic cancel of ADR-51.
#
# The message carries `Nats-Scheduler` and `Nats-Schedule-Next: purge`, in the spelling of the schedule. From 2.11 on
# it also carries the guard, so that it is stored only if the schedule is still the version that was read.
#
# Limit: a server of 2.10 ignores the guard. There, and wherever a sidecar fires, the schedule ends when the sidecar
# has read the message (`docs/concepts/promises.md`).


@dataclass(frozen=True, slots=True)
class Cancelled:
    """A message that was stored, and the schedule that ends with it."""

    stream: str
    schedule: str
    """Subject of the schedule."""
    schedule_sequence: int
    subject: str
    sequence: int
    """Stream sequence of the message."""
    is_immediate: bool
    """True if the server purged the schedule in the same step; else a sidecar ends it when it reads the message."""


async def publish_and_cancel(
    store: ScheduleStore,
    stream: str,
    schedule: str,
    subject: str,
    body: bytes,
    headers: Headers,
    *,
    expected: int | None,
    author: Author,
) -> Cancelled:
    """Store a message and end a schedule with it; raises as `Schedules.publish_and_cancel` does."""
    served, found = await opened(store, stream, schedule, expected)
    if found.is_paused:
        raise NotPossibleError(f"{schedule} is paused, and no server ends a paused schedule by a message: cancel it")
    if subject == schedule:
        raise NotPossibleError(f"{subject} is the subject of the schedule itself: publish to another one")
    check_subject(served, subject)
    name = schedule.encode("utf-8", "surrogateescape")
    guard = guard_headers(schedule, found.sequence) if served.server.has_guard else ()
    ending = [(found.dialect.scheduler, name), (found.dialect.next, PURGE), *guard]
    block = with_effective_headers(with_headers(None, headers_of(headers)), ending)
    if block is None:
        raise NotPossibleError("a value of the headers contains the name of another one, and hides it from the server")
    published = await store.publish(stream, subject, block, body, expected=None)
    await recorded(store, Change(Kind.REMOVED, stream, schedule, found.sequence, None, author))
    return Cancelled(
        stream, schedule, found.sequence, subject, published.sequence, is_immediate=found.is_fired_by_server
    )
