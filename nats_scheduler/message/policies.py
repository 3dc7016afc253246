"""Policies: how a schedule wants to be treated, in headers of our own that no server knows.

A policy is a header `Nats-Schedule-X-<Name>` beside the headers of ADR-51, or `X-Nats-Schedule-X-<Name>` beside the
portable ones. A server stores these headers and does not send them on, so a schedule of ADR-51 fires without its
policies once a server fires it.

The rules:

- A name that is unknown, or a value that is invalid, rejects the schedule: a policy that was silently left out would
  be one that its author relies on. Servers know no such error, so the rejection has the code 0 and a text of its own.
- Names are case-sensitive, as those of all headers of a schedule.
- Policies are read after everything that a server checks, so its errors come first.

Cost: nothing for a schedule without policies; some microseconds for one with them.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import NamedTuple

from nats_scheduler.message.dialect import PORTABLE, Dialect
from nats_scheduler.message.rejection import POLICY_INVALID, Rejection
from nats_scheduler.schedule.bounds import MAX_LIMIT, NO_BOUNDS, Bounded, Bounds
from nats_scheduler.schedule.calendars import (
    MAX_NAME_CHARS,
    NAME_GRAMMAR,
    Calendar,
    in_order,
    is_calendar_name,
    read_days,
)
from nats_scheduler.schedule.durations import format_duration, parse_duration
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import Cron, Every, Pattern, Syntax, SyntaxCron
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

# Values of policies that are more than a number or a text.
#
# The rule: a parser returns the value, or the reason why the text is none, which follows the text in a sentence.

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


# What happens to a fire that comes due while the fire before it is unfinished: `X-Overlap`, `X-Consumer`,
# `X-Timeout`.
#
# A fire is finished when its message is no longer stored. On a stream that keeps what was acknowledged it is finished
# too when the consumer that `X-Consumer` names has acknowledged it. `X-Timeout` counts it as finished so long after
# it was stored.
#
# The rules:
#
# - On a stream that keeps what was acknowledged, `X-Overlap` needs `X-Consumer`: nothing else shows what is finished.
# - `X-Consumer` and `X-Timeout` have no effect without `X-Overlap`, so they reject a schedule that lacks it.
#
# Cost: nothing for a schedule without these policies.

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


MAX_EXCEPTIONS = 1_000
"""Most days and ranges in one `X-Except`."""

CALENDAR = "calendar:"
"""What a part of `X-Except` begins with that names a calendar."""

MAX_CALENDARS = 8
"""Most calendars that one schedule names."""

MAX_JITTER_NS = 24 * HOUR
"""Longest jitter: a fire that is sent more than a day later is better written as a fire of that later time."""

MAX_TEXT_CHARS = 256
"""Longest note, and longest name of an owner."""

PAUSED = "X-Paused"
"""No policy: what the name of the header with the pattern ends in while a schedule is paused (`message.reading`)."""


class PolicyText(NamedTuple):
    """One policy as it was written: its name without the prefix, such as `X-Start`, and its value."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies of a schedule."""

    written: tuple[PolicyText, ...] = ()
    """All of them, in the order of their names."""
    bounds: Bounds = NO_BOUNDS
    """What `X-Start`, `X-End`, `X-Limit`, `X-Anchor` and `X-Except` leave of the fire times of the pattern."""
    consumer: str | None = None
    """The consumer whose acknowledgement finishes a fire, on a stream that keeps what was acknowledged."""
    grace: int = DEFAULT_GRACE_NS
    """A fire that is sent later than this (ns) after its send time counts as missed."""
    jitter: int | None = None
    """How long (ns) each fire is delayed at most; `message.timetable` says by how much it is."""
    missed: Missed = MAKE_UP_ONCE
    """What happens to fires that could not be stored in time."""
    note: str | None = None
    overlap: Overlap = Overlap.ALLOW
    """What happens to a fire that comes due while the one before is unfinished."""
    owner: str | None = None
    report: bool = False
    """Whether each fire says for which time it is, which fire was stored before it, and how many were dropped."""
    syntax: Syntax | None = None
    """How the pattern is written; None is the server's grammar, which is that of patterns beside it too."""
    target_elsewhere: str | None = None
    """The target if it is in another stream (`message.definition`)."""
    timeout: int | None = None
    """How long (ns) after it was stored an unfinished fire counts as finished; None for never."""

    @property
    def are_kept(self) -> bool:
        """Whether more must be kept of a schedule with these policies than of one without any
        (`engine.holding.held`)."""
        if self is NO_POLICIES:
            return False  # as for most of a million schedules at a start
        needs_fire_before = self.overlap is not Overlap.ALLOW or self.missed != MAKE_UP_ONCE or self.report
        return needs_fire_before or self.jitter is not None or bool(self.bounds.calendars)


NO_POLICIES = Policies()


def read_policies(
    fields: Mapping[bytes, str], dialect: Dialect, pattern: Pattern, *, keeps_acknowledged: bool = False
) -> Policies | Rejection:
    """Read the policies among the headers of a schedule with this pattern; the first that is invalid rejects it.

    `keeps_acknowledged` if its stream is known to keep what was acknowledged (limits retention).
    """
    prefix = extension_prefix(dialect)
    names = sorted(name for name in fields if name.startswith(prefix))
    policies = NO_POLICIES
    for name in names:
        short, value = _short(name, dialect), fields[name]
        take = _POLICIES.get(short)
        taken = _unknown(short, dialect) if take is None else take(policies, value, pattern)
        if isinstance(taken, str):
            return POLICY_INVALID.rejection(name.decode("utf-8", "backslashreplace"), value, taken)
        policies = taken
    if not names:
        return policies
    start, end = policies.bounds.start, policies.bounds.end
    if start is not None and end is not None and start >= end:
        name = prefix + b"End"
        return POLICY_INVALID.rejection(name.decode(), fields[name], "is not later than X-Start: nothing would fire")
    written = _written(names, fields, dialect)
    overlap, shorts = policies.overlap, [one.name for one in written]
    if misplaced := misplaced_policy(overlap, shorts, needs_consumer=keeps_acknowledged):
        name = dialect.schedule + b"-" + misplaced.name.encode()
        return POLICY_INVALID.rejection(name.decode(), fields[name], misplaced.reason)
    return replace(policies, written=written)


def read_syntax(fields: Mapping[bytes, str], pattern: str) -> Syntax | Rejection | None:
    """Read in which syntax the pattern of a portable schedule is written; None is the server's.

    The policy decides how the pattern is parsed, and so it is read before the others. It is portable only: a server
    would read a pattern of ADR-51 by its own grammar, and fire at other times.
    """
    value = fields.get(_SYNTAX)
    if value is None or not pattern:
        return None
    if value not in list(Syntax):
        return POLICY_INVALID.rejection(_SYNTAX.decode(), value, f"is no syntax: expected {' or '.join(Syntax)}")
    if pattern.startswith(("@at ", "@every ")):
        reason = f"is for patterns of fields: {pattern.partition(' ')[0]!r} means the same without it"
        return POLICY_INVALID.rejection(_SYNTAX.decode(), value, reason)
    return Syntax(value)


def ignored_policies(fields: Mapping[bytes, str], dialect: Dialect) -> Policies:
    """Return the policies of a schedule that a server fires, as they are written: they have no effect there."""
    prefix = extension_prefix(dialect)
    names = sorted(name for name in fields if name.startswith(prefix))
    if not names:
        return NO_POLICIES
    written = _written(names, fields, dialect)
    values = dict(written)
    syntax = syntax_of(values) if dialect is PORTABLE else None
    return Policies(written, note=values.get("X-Note"), owner=values.get("X-Owner"), syntax=syntax)


def syntax_of(written: Mapping[str, str]) -> Syntax | None:
    """Return the syntax that the policies of a portable schedule name, by their names without the prefix."""
    value = written.get("X-Syntax")
    return Syntax(value) if value in list(Syntax) else None


def syntax_advice(fields: Mapping[bytes, str], dialect: Dialect) -> str:
    """Return what to add to the reason why a pattern is invalid: that its syntax is not read beside ADR-51."""
    is_unread = dialect is not PORTABLE and extension_prefix(dialect) + b"Syntax" in fields
    return f"; {_PORTABLE_ONLY}" if is_unread else ""


def with_policies(pattern: Pattern, policies: Policies) -> Pattern:
    """Return the pattern with the bounds that policies set; the pattern itself if they set none."""
    return pattern if policies.bounds == NO_BOUNDS else Bounded(pattern, policies.bounds)


def extension_prefix(dialect: Dialect) -> bytes:
    """Return what the names of all policies in a dialect begin with."""
    return dialect.schedule + b"-X-"


def _written(names: Iterable[bytes], fields: Mapping[bytes, str], dialect: Dialect) -> tuple[PolicyText, ...]:
    return tuple(PolicyText(_short(name, dialect), fields[name]) for name in names)


def _short(name: bytes, dialect: Dialect) -> str:
    return name[len(dialect.schedule) + 1 :].decode("utf-8", "backslashreplace")


def _unknown(short: str, dialect: Dialect) -> str:
    if short == PAUSED:
        return f"is no policy: a paused schedule has its pattern in this header, and no {dialect.schedule.decode()}"
    near = get_close_matches(short.lower(), [name.lower() for name in _POLICIES], n=1, cutoff=0.7)
    meant = next((name for name in _POLICIES if near and name.lower() == near[0]), None)
    known = f"{meant} may be meant" if meant else f"expected one of {', '.join(sorted(_POLICIES))}"
    return f"is an unknown policy, and names are case-sensitive: {known}"


# -- each policy: returns the policies with this one, or the reason why its value is invalid ----------------------


def _start(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    instant = parse_rfc3339(value)
    if isinstance(instant, Invalid):
        return _not(instant)
    return replace(policies, bounds=replace(policies.bounds, start=instant))


def _end(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    instant = parse_rfc3339(value)
    if isinstance(instant, Invalid):
        return _not(instant)
    return replace(policies, bounds=replace(policies.bounds, end=instant))


def _anchor(policies: Policies, value: str, pattern: Pattern) -> Policies | str:
    instant = parse_rfc3339(value)
    if isinstance(instant, Invalid):
        return _not(instant)
    if not isinstance(pattern, Every):
        return f"is where the grid of '@every' begins, and {pattern.text!r} has none"
    if instant % SECOND:
        return "has a fraction of a second: the grid of '@every' begins at a whole one"
    return replace(policies, bounds=replace(policies.bounds, anchor=instant))


def _limit(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    if not _NUMBER(value) or not 1 <= int(value) <= MAX_LIMIT:
        return f"is not a number of fires: expected 1 to {MAX_LIMIT:,}"
    return replace(policies, bounds=replace(policies.bounds, limit=int(value)))


def _except(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    parts = [part.strip(" ") for part in value.split(",")]
    if len(parts) > MAX_EXCEPTIONS:
        return f"has {len(parts):,} parts: expected at most {MAX_EXCEPTIONS:,}"
    named = {part.removeprefix(CALENDAR) for part in parts if part.startswith(CALENDAR)}
    found = []
    for part in parts:
        if part.startswith(CALENDAR):
            continue
        days = read_days(part)
        if isinstance(days, str):
            return f"{days}, or {CALENDAR}<name>"
        found.append(days)
    if fault := _names_fault(named):
        return fault
    calendars = tuple(map(Calendar, sorted(named)))
    return replace(policies, bounds=replace(policies.bounds, excepted=in_order(found), calendars=calendars))


def _names_fault(calendars: Collection[str]) -> str:
    """Return why calendars cannot be named in this way; "" if they can."""
    for name in calendars:
        if not is_calendar_name(name):
            return f"names the calendar {name[:MAX_NAME_CHARS]!r}: expected {NAME_GRAMMAR}"
    if len(calendars) > MAX_CALENDARS:
        return f"names {len(calendars):,} calendars: expected at most {MAX_CALENDARS}"
    return ""


def _grace(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    grace = read_grace(value)
    return grace if isinstance(grace, str) else replace(policies, grace=grace)


def _consumer(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    return consumer_fault(value) or replace(policies, consumer=value)


def _jitter(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    duration = read_duration(value)
    if isinstance(duration, str):
        return duration
    if not 0 < duration <= MAX_JITTER_NS:
        return f"is not more than 0 and at most {format_duration(MAX_JITTER_NS)}"
    return replace(policies, jitter=duration)


def _missed(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    missed = read_missed(value)
    return missed if isinstance(missed, str) else replace(policies, missed=missed)


def _note(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    fault = _text_fault(value)
    return fault or replace(policies, note=value)


def _overlap(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    if value not in list(Overlap):
        return f"is not what a fire may do: expected one of {', '.join(Overlap)}"
    return replace(policies, overlap=Overlap(value))


def _owner(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    fault = _text_fault(value)
    return fault or replace(policies, owner=value)


def _report(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    report = read_report(value)
    return report if isinstance(report, str) else replace(policies, report=report)


def _syntax(policies: Policies, value: str, pattern: Pattern) -> Policies | str:
    if isinstance(pattern, SyntaxCron):
        return replace(policies, syntax=pattern.syntax)
    if not isinstance(pattern, Cron):
        return "is for patterns of fields, and this pattern has none"
    return f"has no effect on a server, which reads {pattern.text!r} by its own grammar: {_PORTABLE_ONLY}"


def _target(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    return replace(policies, target_elsewhere=value)  # what is wrong with it was found before: `message.definition`


def _timeout(policies: Policies, value: str, _pattern: Pattern) -> Policies | str:
    timeout = read_timeout(value)
    return timeout if isinstance(timeout, str) else replace(policies, timeout=timeout)


_POLICIES: Mapping[str, Callable[[Policies, str, Pattern], Policies | str]] = {
    "X-Anchor": _anchor,
    "X-Consumer": _consumer,
    "X-End": _end,
    "X-Except": _except,
    "X-Grace": _grace,
    "X-Jitter": _jitter,
    "X-Limit": _limit,
    "X-Missed": _missed,
    "X-Note": _note,
    "X-Overlap": _overlap,
    "X-Owner": _owner,
    "X-Report": _report,
    "X-Start": _start,
    "X-Syntax": _syntax,
    "X-Target": _target,
    "X-Timeout": _timeout,
}

_SYNTAX = extension_prefix(PORTABLE) + b"Syntax"
_PORTABLE_ONLY = f"X-Syntax is read beside {PORTABLE.schedule.decode()} only, as {_SYNTAX.decode()}"

POLICY_NAMES = tuple(_POLICIES)
"""The names of all policies, without the prefix."""

_NUMBER = re.compile(r"[0-9]{1,4}").fullmatch


def _not(invalid: Invalid) -> str:
    return f"is not a time: {invalid.reason}"


def _text_fault(value: str) -> str:
    if not value.strip():
        return "is empty: expected a text"
    if len(value) > MAX_TEXT_CHARS:
        return f"has {len(value):,} characters: expected at most {MAX_TEXT_CHARS}"
    return ""
