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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, NamedTuple

from nats_scheduler.message.dialect import PORTABLE, Dialect
from nats_scheduler.message.headers import shown
from nats_scheduler.message.rejection import POLICY_INVALID, Rejection
from nats_scheduler.message.spread import offset_of
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_covered, is_literal_subject
from nats_scheduler.schedule.bounds import MAX_LIMIT, NO_BOUNDS, Bounded, Bounds, OnExcepted
from nats_scheduler.schedule.calendars import MAX_NAME_CHARS, NAME_GRAMMAR, Calendar, is_calendar_name
from nats_scheduler.schedule.clock_policy import BY_THE_CLOCK, ClockPolicy, Fold, Gap
from nats_scheduler.schedule.days import DayRows, read_days, read_every_nth
from nats_scheduler.schedule.durations import format_duration, parse_duration
from nats_scheduler.schedule.instants import HOUR, SECOND
from nats_scheduler.schedule.invalid import FaultError, Invalid
from nats_scheduler.schedule.patterns import Cron, Every, Pattern, Syntax, parse_pattern, with_clock
from nats_scheduler.schedule.rfc3339 import parse_rfc3339

DEFAULT_GRACE_NS = 10 * SECOND
"""A fire that is later than this counts as missed: a failover takes less."""

DEFAULT_CATCH_UP_RATE = 500
"""Missed fires of a stream that are sent in a second, unless the operator says so."""

MIN_GRACE_NS = 1 * SECOND
"""Shortest grace: fires of a burst are that late, and none of them was missed."""

MAX_DURATION_CHARS = 64
"""Longest duration: the server's grammar, which reads any length, allows `1s0h0h0h…`, and costs as much."""

MAX_MADE_UP = 1_000_000
"""Largest number in `all <N>`."""


class Kept(StrEnum):
    """The part that is sent of the fires that came due and could not be stored in time."""

    ONCE = "once"
    """The latest one."""
    SKIP = "skip"
    """None, once they are later than the grace."""
    ALL = "all"
    """Each, oldest first."""


class Missed(NamedTuple):
    """The policy for missed fires; as a text, the value of `X-Missed`."""

    kept: Kept = Kept.ONCE
    most: int | None = None
    """The number of the latest fires that are sent, if all are to be; None is no limit."""

    def __str__(self) -> str:
        """Write it as a publisher does."""
        return str(self.kept) if self.most is None else f"{self.kept} {self.most}"


MAKE_UP_ONCE = Missed()
"""The policy for missed fires of a schedule that names none."""


def _missed(value: str) -> Missed:
    match = _ALL(value)
    if match is not None and match[1] is not None:
        if not 1 <= int(match[1]) <= MAX_MADE_UP:
            raise FaultError(f"is not all with 1 to {MAX_MADE_UP:,}")
        return Missed(Kept.ALL, int(match[1]))
    if value not in list(Kept):
        raise FaultError(f"is none of once, skip, all, and all with a number, such as 'all 10': 1 to {MAX_MADE_UP:,}")
    return Missed(Kept(value))


def _span(is_valid: Callable[[int], bool], fault: str) -> Callable[[str], int]:
    """Return what reads a duration (ns) for which a condition holds; `fault` says that it does not."""

    def read(value: str) -> int:
        if len(value) > MAX_DURATION_CHARS:
            raise FaultError(f"has {len(value):,} characters: expected a duration of at most {MAX_DURATION_CHARS}")
        duration = parse_duration(value)
        if isinstance(duration, Invalid):
            raise FaultError(f"is not a duration: {duration.reason}")
        if not is_valid(duration):
            raise FaultError(fault)
        return duration

    return read


def _true(value: str) -> bool:
    if value != "true":
        raise FaultError("is not 'true', the only value")
    return True


def _read_instant(value: str) -> int:
    instant = parse_rfc3339(value)
    if isinstance(instant, Invalid):
        raise FaultError(f"is not a time: {instant.reason}")
    return instant


def _limit(value: str) -> int:
    if not _NUMBER(value) or not 1 <= int(value) <= MAX_LIMIT:
        raise FaultError(f"is not a number of fires: expected 1 to {MAX_LIMIT:,}")
    return int(value)


def _text(value: str) -> str:
    if not value.strip():
        raise FaultError("is empty: expected a text")
    if len(value) > MAX_TEXT_CHARS:
        raise FaultError(f"has {len(value):,} characters: expected at most {MAX_TEXT_CHARS}")
    return value


_ALL = re.compile(r"all(?: ([0-9]{1,9}))?").fullmatch
_NUMBER = re.compile(r"[0-9]{1,4}").fullmatch


MAX_CONSUMER_NAME_CHARS = 255
"""Longest name of a consumer, as the server has it."""

_FORBIDDEN = re.compile(r"[\s.*>/\\\x00-\x1f\x7f]").search
"""Characters that the server allows in no name of a consumer, and control characters, which no request can contain."""

_UNSENDABLE = re.compile(r"[\ud800-\udfff]").search
"""The characters that stand in a value for bytes that are not UTF-8."""


class Overlap(StrEnum):
    """The policy for a fire that comes due while the one before is unfinished.

    A fire is finished when its message is no longer stored. On a stream that keeps what was acknowledged it is finished
    too when the consumer that `X-Consumer` names has acknowledged it. With `X-Timeout` it counts as finished when that
    time has passed since it was stored. `X-Done-Within` asks the same, so long after the fire was stored.
    """

    ALLOW = "allow"
    """It is sent all the same."""
    SKIP = "skip"
    """It is dropped."""
    QUEUE = "queue"
    """It waits until the one before is finished; of several that wait, the latest is sent."""


def _overlap(value: str) -> Overlap:
    if value not in list(Overlap):
        raise FaultError(f"is not what a fire may do: expected one of {', '.join(Overlap)}")
    return Overlap(value)


def read_consumer(name: str) -> str:
    """Return the name of a consumer if it can be one; raises `FaultError`."""
    if not name:
        raise FaultError("is empty: expected the name of a consumer")
    if len(name) > MAX_CONSUMER_NAME_CHARS:
        raise FaultError(f"has {len(name):,} characters: expected at most {MAX_CONSUMER_NAME_CHARS}")
    if _UNSENDABLE(name):
        raise FaultError("is not UTF-8: no request can name such a consumer")
    if _FORBIDDEN(name):
        raise FaultError("is no name of a consumer: it has no blanks, dots, slashes or wildcards")
    return name


MAX_EXCEPT_PARTS = 1_000
"""Most days and ranges in one `X-Except`."""

CALENDAR = "calendar:"
"""The beginning of a part of `X-Except` that names a calendar."""

MAX_CALENDARS = 8
"""Most calendars that one schedule names."""

MAX_JITTER_NS = 24 * HOUR
"""Longest jitter: a fire that is sent more than a day later is better written as a fire of that later time."""

MIN_SPREAD_NS = 1 * SECOND
"""Shortest spread: offsets are whole milliseconds."""

MAX_SPREAD_NS = 24 * HOUR
"""Longest spread, for the same reason."""

MAX_GUESSED_CHARS = 40
"""So much of an unknown name is compared with those that are known; each character costs a microsecond."""

MAX_TEXT_CHARS = 256
"""Longest note, and longest name of an owner."""

PAUSED = "X-Paused"
"""No policy: what the name of the header with the pattern ends in while a schedule is paused (`message.paused`)."""


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
    """The bounds of its fire times: `X-Start`, `X-End`, `X-Limit`, `X-Anchor`, `X-Every`, `X-Except`, `X-Excepted`."""
    clock: ClockPolicy = BY_THE_CLOCK
    """What it does at the local times that a change of the clock skips or repeats."""
    debounce: bool = False
    """True if it is meant to replace, or to be replaced, before it fires (`engine.receiving.replaced`)."""
    consumer: str | None = None
    """The consumer whose acknowledgement finishes a fire, on a stream that keeps what was acknowledged."""
    done_within: int | None = None
    """The time (ns) after its storage from which an unfinished fire is reported; None for never."""
    grace: int = DEFAULT_GRACE_NS
    """A fire that is sent later than this (ns) after its send time counts as missed."""
    jitter: int | None = None
    """The longest delay (ns) of each fire; `message.jitter` says by how much it is delayed."""
    missed: Missed = MAKE_UP_ONCE
    """The policy for fires that could not be stored in time."""
    note: str | None = None
    overlap: Overlap = Overlap.ALLOW
    """The policy for a fire that comes due while the one before is unfinished."""
    owner: str | None = None
    report: bool = False
    """True if each fire says for which time it is, which fire was stored before it, and how many were dropped."""
    spread: int | None = None
    """The time (ns) over which schedules are spread; `message.spread` says by how much the fire times of each move."""
    syntax: Syntax | None = None
    """The syntax of the pattern; None is the server's grammar, which is that of patterns beside it too."""
    target_stream: str | None = None
    """The target if it is in another stream."""
    timeout: int | None = None
    """The time (ns) after its storage from which an unfinished fire counts as finished; None for never."""

    @property
    def asking(self) -> str:
        """The first policy that asks whether a fire is finished; "" if none does."""
        return "X-Overlap" if self.overlap is not Overlap.ALLOW else "X-Done-Within" if self.done_within else ""

    @property
    def are_kept(self) -> bool:
        """True if more is kept of a schedule with these policies than of one without any (`engine.holding.held`)."""
        if self is NO_POLICIES:
            return False  # as for most of a million schedules at a start
        needs_fire_before = self.overlap is not Overlap.ALLOW or self.missed != MAKE_UP_ONCE or self.report
        return needs_fire_before or self.jitter is not None or bool(self.bounds.calendars)


NO_POLICIES = Policies()


ANY_STREAM = StreamRules("any", (">",), is_any=True)
"""The rules for policies of which it is not known in which stream they are."""


class Beside(NamedTuple):
    """The surroundings of a policy: the headers and the pattern of the schedule, and where it is stored."""

    pattern: Pattern
    fields: Mapping[bytes, str]
    dialect: Dialect
    subject: str
    rules: StreamRules


def read_policies(
    fields: Mapping[bytes, str], dialect: Dialect, pattern: Pattern, subject: str = "", rules: StreamRules = ANY_STREAM
) -> Policies | Rejection:
    """Read the policies among the headers of a schedule with this pattern; the first that is invalid rejects it."""
    prefix = extension_prefix(dialect)
    names = sorted(name for name in fields if name.startswith(prefix))
    if not names:
        return NO_POLICIES
    policies, beside = Policies(_written(names, fields, dialect)), Beside(pattern, fields, dialect, subject, rules)
    for name, written in zip(names, policies.written, strict=True):
        try:
            policies = _policy(written.name, dialect).take(policies, written.value, beside)
        except FaultError as fault:
            return POLICY_INVALID.rejection(shown(name), written.value, fault.reason)
    if (misplaced := _misplaced(policies, keeps_acknowledged=rules.keeps_acknowledged)) is not None:
        short, reason = misplaced
        name = dialect.schedule + b"-" + short.encode()
        return POLICY_INVALID.rejection(name.decode(), fields[name], reason)
    return policies


_NEEDED = {
    "X-Consumer": ("X-Overlap", "X-Done-Within"),
    "X-Excepted": ("X-Except",),
    "X-Timeout": ("X-Overlap",),
}
"""What a policy has no effect without: one of these."""


def _misplaced(policies: Policies, *, keeps_acknowledged: bool) -> PolicyText | None:
    """Return the first policy that is valid by itself and not beside the others or on this stream, and why.

    On a stream that keeps what was acknowledged, a policy that asks whether a fire is finished needs `X-Consumer`:
    nothing else shows what is finished.
    """
    names = [one.name for one in policies.written]
    start, end = policies.bounds.start, policies.bounds.end
    if start is not None and end is not None and start >= end:
        return PolicyText("X-End", "is not later than X-Start: nothing would fire")
    for name, needed in _NEEDED.items():
        if name in names and not any(one in names for one in needed):
            return PolicyText(name, f"has no effect without {' or '.join(needed)}")
    asking = next((name for name in ("X-Done-Within", "X-Overlap") if name in names), "")
    if asking and policies.target_stream is not None:
        reason = f"is beside {asking}, which asks about messages in the schedule's own stream: expected one of them"
        return PolicyText("X-Target", reason)
    if keeps_acknowledged and policies.asking and "X-Consumer" not in names:
        reason = "needs X-Consumer on this stream, which keeps what was acknowledged (limits retention)"
        return PolicyText(policies.asking, reason)
    return None


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
    is_meant = values.get("X-Debounce") == "true"
    return Policies(written, note=values.get("X-Note"), owner=values.get("X-Owner"), syntax=syntax, debounce=is_meant)


def syntax_of(written: Mapping[str, str]) -> Syntax | None:
    """Return the syntax that the policies of a portable schedule name, by their names without the prefix."""
    value = written.get("X-Syntax")
    return Syntax(value) if value in list(Syntax) else None


def portable_advice(name: str, fields: Mapping[bytes, str], dialect: Dialect) -> str:
    """Return what to add to the reason why a schedule is invalid: that a policy is not read beside ADR-51."""
    is_unread = dialect is not PORTABLE and dialect.schedule + b"-" + name.encode() in fields
    return f"; {_PORTABLE_ONLY[name]}" if is_unread else ""


def is_target_elsewhere(fields: Mapping[bytes, str], dialect: Dialect) -> bool:
    """Return whether a target in another stream takes the place of the target."""
    return dialect is PORTABLE and X_TARGET in fields and not fields.get(dialect.target)


def with_policies(pattern: Pattern, policies: Policies, subject: str) -> Pattern:
    """Return the pattern of a schedule on a subject with what its policies change; itself if they change nothing.

    Without a subject (`message.spread.NO_SUBJECT`) it is not spread.
    """
    if policies.clock != BY_THE_CLOCK and isinstance(pattern, Cron):
        pattern = with_clock(pattern, policies.clock)
    offset = offset_of(subject, policies.spread)
    return Bounded(pattern, policies.bounds, offset) if offset or policies.bounds != NO_BOUNDS else pattern


def extension_prefix(dialect: Dialect) -> bytes:
    """Return what the names of all policies in a dialect begin with."""
    return dialect.schedule + b"-X-"


def policy_header(name: str, dialect: Dialect) -> bytes:
    """Return the header of a policy: `Nats-Schedule-X-End` for `X-End`."""
    return dialect.schedule + b"-" + name.encode()


def _written(names: Iterable[bytes], fields: Mapping[bytes, str], dialect: Dialect) -> tuple[PolicyText, ...]:
    return tuple(PolicyText(_short(name, dialect), fields[name]) for name in names)


def _short(name: bytes, dialect: Dialect) -> str:
    return shown(name[len(dialect.schedule) + 1 :])


class Policy(NamedTuple):
    """One policy."""

    take: Callable[[Policies, str, Beside], Policies]
    """Returns the policies with this one, from its value and what it is beside; raises `FaultError`."""
    words: Callable[[Policies], str] | None = None
    """Says what it changes, in words that follow those of the pattern; "" if it changes nothing.

    None for bounds, of which `schedule.explain` has the words, and for what changes no fire.
    """
    is_label: bool = False
    """True if it changes no fire: it only says something to people, and to what reports to them."""


def _policy(short: str, dialect: Dialect) -> Policy:
    """Return the policy with a name; raises `FaultError` if there is none."""
    if short in POLICIES:
        return POLICIES[short]
    if short == PAUSED:
        name = dialect.schedule.decode()
        raise FaultError(f"is no policy: a paused schedule has its pattern in this header, and no {name}")
    raise FaultError(f"is an unknown policy, and names are case-sensitive: {_expected(short)}")


def _expected(short: str) -> str:
    """Return which policy is meant by a name that is none, or all of them if it is near none."""
    near = get_close_matches(short[:MAX_GUESSED_CHARS].lower(), [name.lower() for name in POLICIES], n=1, cutoff=0.7)
    meant = next((name for name in POLICIES if near and name.lower() == near[0]), None)
    return f"{meant} may be meant" if meant else f"expected one of {', '.join(sorted(POLICIES))}"


def _value(field: str, read: Callable[[str], Any]) -> Callable[[Policies, str, Beside], Policies]:
    """Return what takes a policy whose value does not depend on the pattern."""
    return lambda policies, value, _beside: replace(policies, **{field: read(value)})


def _bounds_with(**read: Callable[[str], Any]) -> Callable[[Policies, str, Beside], Policies]:
    """Return what takes a policy that is one of the bounds, or several of them."""
    return lambda policies, value, _beside: _with_bounds(policies, **{field: of(value) for field, of in read.items()})


def _with_bounds(policies: Policies, **bounds: Any) -> Policies:
    return replace(policies, bounds=replace(policies.bounds, **bounds))


def _anchor(policies: Policies, value: str, beside: Beside) -> Policies:
    instant = _read_instant(value)
    if not isinstance(beside.pattern, Every):
        raise FaultError(f"is where the grid of '@every' begins, and {beside.pattern.text!r} has none")
    if instant % SECOND:
        raise FaultError("has a fraction of a second: the grid of '@every' begins at a whole one")
    return _with_bounds(policies, anchor=instant)


def _every(policies: Policies, value: str, beside: Beside) -> Policies:
    if not isinstance(beside.pattern, Cron):
        raise FaultError(f"is for patterns of fields: {_kind(beside.pattern)} fires on all days")
    return _with_bounds(policies, every=read_every_nth(value))


def _clock_change(policies: Policies, value: str, beside: Beside) -> Policies:
    parts = [part.strip(" ") for part in value.split(",", 2)]
    gaps = [Gap(part) for part in parts if part in list(Gap)]
    folds = [Fold(part) for part in parts if part in list(Fold)]
    if len(gaps) > 1 or len(folds) > 1 or len(gaps) + len(folds) < len(parts):
        named = f"{' or '.join(Gap)}, {', '.join(list(Fold)[:-1])} or {list(Fold)[-1]}"
        raise FaultError(f"is not what a fire may do: expected {named}, or one of each, such as 'after,first'")
    if not isinstance(beside.pattern, Cron):
        raise FaultError(f"is for patterns of the wall clock, and {beside.pattern.text!r} does not follow one")
    if beside.pattern.zone is None:
        name = beside.dialect.time_zone.decode()
        raise FaultError(f"has no effect without {name}: the clock of UTC is never changed")
    return replace(policies, clock=ClockPolicy(*gaps or (Gap.SKIP,), *folds or (Fold.BOTH,)))


def _excepted(policies: Policies, value: str, beside: Beside) -> Policies:
    if value not in list(OnExcepted):
        raise FaultError(f"is not what a fire of an excepted day may do: expected one of {', '.join(OnExcepted)}")
    on_excepted = OnExcepted(value)
    if on_excepted is not OnExcepted.SKIP and not isinstance(beside.pattern, Cron):
        raise FaultError(f"moves fires of patterns of fields: those of {_kind(beside.pattern)} can only be left out")
    return _with_bounds(policies, on_excepted=on_excepted)


def _kind(pattern: Pattern) -> str:
    """Return what a pattern that has no fields begins with: `'@every'`."""
    return repr(pattern.text.partition(" ")[0])


def _read_excepted(value: str) -> DayRows:
    parts = [part.strip(" ") for part in value.split(",")]
    if len(parts) > MAX_EXCEPT_PARTS:
        raise FaultError(f"has {len(parts):,} parts: expected at most {MAX_EXCEPT_PARTS:,}")
    try:
        return DayRows(read_days(part) for part in parts if not part.startswith(CALENDAR))
    except FaultError as fault:
        raise FaultError(f"{fault.reason}, or {CALENDAR}<name>") from None


def _calendars(value: str) -> tuple[Calendar, ...]:
    parts = [part.strip(" ") for part in value.split(",")]
    names = {part.removeprefix(CALENDAR) for part in parts if part.startswith(CALENDAR)}
    for name in names:
        if not is_calendar_name(name):
            raise FaultError(f"names the calendar {name[:MAX_NAME_CHARS]!r}: expected {NAME_GRAMMAR}")
    if len(names) > MAX_CALENDARS:
        raise FaultError(f"names {len(names):,} calendars: expected at most {MAX_CALENDARS}")
    return tuple(map(Calendar, sorted(names)))


def _syntax(policies: Policies, _value: str, beside: Beside) -> Policies:
    pattern = beside.pattern
    if isinstance(pattern, Cron) and pattern.syntax is not None:
        return replace(policies, syntax=pattern.syntax)
    if not isinstance(pattern, Cron):
        raise FaultError("is for patterns of fields, and this pattern has none")
    advice = _PORTABLE_ONLY["X-Syntax"]
    raise FaultError(f"has no effect on a server, which reads {pattern.text!r} by its own grammar: {advice}")


X_TARGET = PORTABLE.schedule + b"-X-Target"
"""The header that names a target in another stream; it is portable only.

Beside `Nats-Schedule` a server from 2.12 on refuses a schedule without a target in its stream. It is a policy, and not
a value of the target header, so that a program that does not know it finds no target, and not one that it takes for a
subject of the stream.
"""


def _target(policies: Policies, value: str, beside: Beside) -> Policies:
    """Take a subject of any other stream of the account that the operator allows (`allowed_targets_elsewhere`).

    Whether any stream has the subject, and accepts message TTLs and roll-ups, is known when it fires.
    """
    _pattern, fields, dialect, subject, rules = beside
    if dialect is not PORTABLE:
        raise FaultError(f"has no effect: {_PORTABLE_ONLY['X-Target']}")
    if fields.get(dialect.target):
        raise FaultError(f"is beside {dialect.target.decode()}: a schedule has one target")
    if not value:
        raise FaultError("is empty: expected a subject of another stream, such as 'jobs.run'")
    if not is_literal_subject(value):
        raise FaultError("is not a literal subject such as 'jobs.run': no wildcards, blanks or empty tokens")
    if not value.isprintable():
        raise FaultError("has characters that cannot be looked for: expected printable UTF-8")
    if rules.restrictions.is_request(value):
        raise FaultError("is one of the server's own subjects, or of the sidecars', on which they take requests")
    if value == subject or (not rules.is_any and is_covered(value, rules.subjects)):
        raise FaultError(f"is a subject of stream {rules.name!r} itself: name it in {PORTABLE.target.decode()}")
    if fault := rules.restrictions.elsewhere_fault(value):
        raise FaultError(fault)
    return replace(policies, target_stream=value)


_GAP_WORDS = "; times that the clock skips fire once, right after the gap"
_FOLD_WORDS = {
    Fold.BOTH: "",
    Fold.FIRST: "; a time that the clock shows twice fires the first time",
    Fold.LAST: "; a time that the clock shows twice fires the second time",
}


def _clock_words(policies: Policies) -> str:
    gap, fold = policies.clock
    return (_GAP_WORDS if gap is Gap.AFTER else "") + _FOLD_WORDS[fold]


def _done_within_words(policies: Policies) -> str:
    within = policies.done_within
    return "" if within is None else f"; a fire that is unfinished {format_duration(within)} later is reported"


def _jitter_words(policies: Policies) -> str:
    return (
        ""
        if policies.jitter is None
        else f", each sent up to {format_duration(policies.jitter)} later, before the next"
    )


def _spread_words(policies: Policies) -> str:
    return "" if policies.spread is None else f", spread over {format_duration(policies.spread)} by its subject"


def _missed_words(policies: Policies) -> str:
    """Say which missed fires are made up, unless that is the latest."""
    kept, most = policies.missed
    if kept is Kept.SKIP:
        return f"; what is more than {format_duration(policies.grace)} late is skipped"
    if kept is Kept.ALL and most is not None:
        return f"; of missed fires the latest {most} are made up" if most > 1 else ""
    return "; each missed fire is made up" if kept is Kept.ALL else ""


def _overlap_words(policies: Policies) -> str:
    """Say what happens to a fire while the one before is unfinished, unless it is sent."""
    if policies.overlap is Overlap.ALLOW:
        return ""
    words = "is skipped" if policies.overlap is Overlap.SKIP else "waits"
    most = "" if policies.timeout is None else f", for {format_duration(policies.timeout)} at most"
    return f"; a fire {words} while the one before is unfinished{most}"


POLICIES: Mapping[str, Policy] = {
    "X-Anchor": Policy(_anchor),
    "X-Clock-Change": Policy(_clock_change, _clock_words),
    "X-Consumer": Policy(_value("consumer", read_consumer)),
    "X-Debounce": Policy(_value("debounce", _true), is_label=True),
    "X-Done-Within": Policy(
        _value(
            "done_within",
            _span(
                lambda span: span >= SECOND, f"is less than {format_duration(SECOND)}: work and its answer take time"
            ),
        ),
        _done_within_words,
    ),
    "X-End": Policy(_bounds_with(end=_read_instant)),
    "X-Every": Policy(_every),
    "X-Except": Policy(_bounds_with(excepted=_read_excepted, calendars=_calendars)),
    "X-Excepted": Policy(_excepted),
    "X-Grace": Policy(
        _value(
            "grace",
            _span(
                lambda span: span >= MIN_GRACE_NS,
                f"is less than {format_duration(MIN_GRACE_NS)}: fires of a burst are that late",
            ),
        )
    ),
    "X-Jitter": Policy(
        _value(
            "jitter",
            _span(
                lambda span: 0 < span <= MAX_JITTER_NS,
                f"is not more than 0 and at most {format_duration(MAX_JITTER_NS)}",
            ),
        ),
        _jitter_words,
    ),
    "X-Limit": Policy(_bounds_with(limit=_limit)),
    "X-Missed": Policy(_value("missed", _missed), _missed_words),
    "X-Note": Policy(_value("note", _text), is_label=True),
    "X-Overlap": Policy(_value("overlap", _overlap), _overlap_words),
    "X-Owner": Policy(_value("owner", _text), is_label=True),
    "X-Report": Policy(_value("report", _true)),
    "X-Spread": Policy(
        _value(
            "spread",
            _span(
                lambda span: MIN_SPREAD_NS <= span <= MAX_SPREAD_NS,
                f"is not {format_duration(MIN_SPREAD_NS)} to {format_duration(MAX_SPREAD_NS)}",
            ),
        ),
        _spread_words,
    ),
    "X-Start": Policy(_bounds_with(start=_read_instant)),
    "X-Syntax": Policy(_syntax),
    "X-Target": Policy(_target),
    "X-Timeout": Policy(_value("timeout", _span(lambda span: span > 0, "is not more than 0"))),
}
"""By their names without the prefix, in the order in which the words of a schedule name them."""

POLICY_NAMES = tuple(POLICIES)
"""The names of all policies, without the prefix."""

_BY_SHORT_NAME = {name.lower().removeprefix("x-"): name for name in POLICIES}
_PREFIX = re.compile(r"(x-)?nats-schedule-|x-")


def policy_called(given: str) -> str | None:
    """Return the policy that a name means, without `X-` too and in any case; None if it means none."""
    return _BY_SHORT_NAME.get(given.strip().lower().removeprefix("x-"))


def value_fault(name: str, value: str) -> Rejection | None:
    """Return why no schedule can have a value of a policy; None if it is valid beside some pattern and policies."""
    fields = {policy_header(name, PORTABLE): value}
    if name in _NEEDED:
        needed = _NEEDED[name][0]
        fields[policy_header(needed, PORTABLE)] = {"X-Overlap": "queue", "X-Except": "2026-12-25"}[needed]
    text = "@every 1h" if name == "X-Anchor" else "@hourly"
    zone = "UTC" if name == "X-Clock-Change" else None
    syntax = read_syntax(fields, text)
    if isinstance(syntax, Rejection):
        found: Policies | Rejection = syntax
    else:
        pattern = parse_pattern(text, zone, syntax)
        assert isinstance(pattern, Pattern), f"{text!r} is no pattern"
        found = read_policies(fields, PORTABLE, pattern)
    return POLICY_INVALID.rejection(name, value, found.reason) if isinstance(found, Rejection) else None


def named_policies(pairs: Iterable[tuple[str, str]]) -> tuple[PolicyText, ...] | Rejection:
    """Return policies by the names that people write, without `X-` too and in any case, and their values.

    A name that is no policy, or that is given twice, is a rejection.
    """
    named = dict[str, str]()
    for given, value in pairs:
        name = policy_called(given)
        if name is None:
            short = f"X-{_PREFIX.sub('', given.strip().lower()[:MAX_NAME_CHARS], count=1)}"
            return POLICY_INVALID.rejection(given.strip(), value, f"is no policy: {_expected(short)}")
        if name in named:
            return POLICY_INVALID.rejection(given.strip(), value, f"is given twice: {name} of {named[name]!r} is too")
        named[name] = value
    return tuple(PolicyText(name, value) for name, value in named.items())


LABELS = frozenset(name for name, policy in POLICIES.items() if policy.is_label)
"""The policies that change no fire."""


def policies_text(policies: Policies) -> str:
    """Return the policies that change when a schedule fires: `X-End 2026-12-31T00:00:00Z, X-Limit 3`."""
    return ", ".join(f"{name} {value}" for name, value in policies.written if name not in LABELS)


def policy_words(policies: Policies) -> str:
    """Return in plain words what policies change of how a schedule fires; they follow those of its pattern."""
    return "".join(policy.words(policies) for policy in POLICIES.values() if policy.words is not None)


_SYNTAX = extension_prefix(PORTABLE) + b"Syntax"
_PORTABLE_ONLY = {
    "X-Syntax": f"X-Syntax is read beside {PORTABLE.schedule.decode()} only, as {_SYNTAX.decode()}",
    "X-Target": (
        f"a target in another stream is read beside {PORTABLE.schedule.decode()} only, as {X_TARGET.decode()}: "
        "servers refuse a schedule of ADR-51 without a target in its own stream"
    ),
}
"""Why these policies have no effect beside the headers of ADR-51."""
