"""Read the definition of a schedule from a stored message, or return why a newer server would reject it.

The rules:

- Checks 1 to 11 of `docs/reference/headers.md` ("Order of checks") are made in the server's order, with its codes; the
  first check that fails decides. A publisher gets one code for what is wrong, so the order is part of the interface,
  and each step is one function.
- Subjects are compared as stored; a stream's subject transform has already been applied.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from nats_scheduler.message import rejection
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect, schedule_fields
from nats_scheduler.message.headers import MSG_ROLLUP, decoded, header_value, with_headers
from nats_scheduler.message.policies import (
    ignored_policies,
    is_target_elsewhere,
    portable_advice,
    read_policies,
    read_syntax,
    with_policies,
)
from nats_scheduler.message.rejection import Rejection, ServerError
from nats_scheduler.message.schedule_form import ScheduleForm, Terms, terms_of
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_covered, is_literal_subject
from nats_scheduler.message.timetable import Timetable, first_fire_of, never_fires
from nats_scheduler.schedule.cron_fires import HORIZON_YEARS
from nats_scheduler.schedule.durations import parse_ttl
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.patterns import InvalidPattern, InvalidTimeZone, Pattern, parse_pattern

NO_TTL = "is not a duration such as '5m' or 'never'"
"""The reason for an invalid TTL; it follows the header and its value in a sentence."""

_LINE_BREAK = re.compile(r"[\r\n]").search
_ANY_STREAM = StreamRules(name="any", subjects=(">",))
"""The rules of a stream in which only the pattern can be wrong."""


class Definition(NamedTuple):
    """The definition of a schedule: its pattern, and its terms, which many schedules share.

    A tuple, because a million of them are created at start.
    """

    pattern: Pattern
    terms: Terms

    def timetable(self, stored_at: int) -> Timetable:
        """Return when a schedule with this definition fires that was stored at `stored_at` (ns)."""
        return Timetable(self.pattern, stored_at)


def read_definition(
    block: bytes, subject: str, rules: StreamRules, dialect: Dialect, stored_at: int
) -> Definition | Rejection | None:
    """Read the schedule in `block`, stored on `subject` at `stored_at` (ns); None if it is no schedule.

    As the server does: a time zone is checked even if there is no schedule, and on a stream without schedules a fault
    of the pattern or the time zone is 10188 too (`test_a_stream_without_schedules_answers_10188`).
    """
    return definition_of(schedule_fields(block, dialect), block, subject, rules, dialect, stored_at)


def definition_of(
    fields: Mapping[bytes, str],
    block: bytes,
    subject: str,
    rules: StreamRules,
    dialect: Dialect,
    stored_at: int,
) -> Definition | Rejection | None:
    """Do what `read_definition` does, with `fields`, the dialect's headers that were found in the block before."""
    pattern = _read_pattern(fields, rules, dialect, stored_at)
    if pattern is None or isinstance(pattern, Rejection):
        return pattern
    is_to_other_stream = rules.has_policies and is_target_elsewhere(fields, dialect)
    fault = _fault(fields, block, subject, rules, dialect, is_to_other_stream=is_to_other_stream)
    if fault is not None:
        return fault
    policies = (
        read_policies(fields, dialect, pattern, subject, rules)
        if rules.has_policies
        else ignored_policies(fields, dialect)
    )
    if isinstance(policies, Rejection):
        return policies
    bounded = with_policies(pattern, policies, subject)
    if bounded is not pattern and first_fire_of(bounded, stored_at) is None:
        reason = (
            "never fires between its X-Start and X-End, on days that X-Every and X-Except leave: "
            f"expected a fire within {HORIZON_YEARS} years"
        )
        return rejection.POLICY_INVALID.rejection(dialect.schedule.decode(), pattern.text, reason)
    return Definition(bounded, terms_of(fields, dialect, policies))


def _fault(
    fields: Mapping[bytes, str],
    block: bytes,
    subject: str,
    rules: StreamRules,
    dialect: Dialect,
    *,
    is_to_other_stream: bool,
) -> Rejection | None:
    """Check all but the pattern and the policies (checks 4 to 11), then the operator's restrictions.

    Of a target in another stream nothing is checked here (`message.policies`), nor whether that stream has TTLs.
    """
    ttl, rollup = fields.get(dialect.ttl, ""), fields.get(dialect.rollup, "")
    source, target = fields.get(dialect.source, ""), fields.get(dialect.target, "")
    return (
        _ttl_fault(ttl, rollup, rules, dialect, allow_msg_ttl=rules.allow_msg_ttl or is_to_other_stream)
        or _schedule_fault(subject)
        or (None if is_to_other_stream else _target_fault(target, subject, fields, dialect))
        or _source_fault(source, target, subject, dialect)
        or _coverage_fault(rejection.TARGET_INVALID, dialect.target, target, rules)
        or _coverage_fault(rejection.SOURCE_INVALID, dialect.source, source, rules)
        or _storage_rollup_fault(block)
        or (None if is_to_other_stream else rules.restrictions.target_fault(dialect.target, target))
        or rules.restrictions.source_fault(dialect.source, source)
    )


def read_pattern(
    text: str, time_zone: str | None, stored_at: int, syntax: str | None = None
) -> Pattern | Rejection | None:
    """Read a pattern that is in no message yet, as that of a message stored at `stored_at` (ns).

    With a syntax (`schedule.cron_syntax`) it is one of a message with portable headers.
    Return None for "no schedule", as `read_definition` does. Blanks around a value do not survive in a header.
    """
    dialect = ADR51 if syntax is None else PORTABLE
    for kind, value in ((InvalidPattern, text), (InvalidTimeZone, time_zone)):
        if value is not None and _LINE_BREAK(value):
            return _pattern_fault(kind(value, "a header is one line"), text, time_zone, _ANY_STREAM, dialect)
    block = with_headers(None, pattern_form(text, time_zone, syntax).items(dialect))
    return _read_pattern(schedule_fields(block, dialect), _ANY_STREAM, dialect, stored_at)


def pattern_form(text: str, time_zone: str | None, syntax: str | None) -> ScheduleForm:
    """Return the form with a pattern, and nothing else; each value is one line."""
    return ScheduleForm(text, time_zone, policies=() if syntax is None else (("X-Syntax", syntax),))


def _read_pattern(
    fields: Mapping[bytes, str], rules: StreamRules, dialect: Dialect, stored_at: int
) -> Pattern | Rejection | None:
    """Read the pattern and the time zone (checks 1 to 3), and check that the schedule has a first fire time."""
    text = fields.get(dialect.schedule, "")
    zone = fields.get(dialect.time_zone)
    if not text and zone is None:
        return None
    syntax = read_syntax(fields, text) if dialect is PORTABLE else None
    if isinstance(syntax, Rejection):
        return syntax if rules.schedules_enabled else schedules_disabled(dialect.schedule, text, rules)
    pattern = parse_pattern(text, zone, syntax)
    if pattern is None:
        return None
    if isinstance(pattern, Invalid):
        if isinstance(pattern, InvalidPattern) and (advice := portable_advice("X-Syntax", fields, dialect)):
            pattern = InvalidPattern(text, pattern.reason + advice)
        return _pattern_fault(pattern, text, zone, rules, dialect)
    if not rules.schedules_enabled:
        return schedules_disabled(dialect.schedule, text, rules)
    if never_fires(pattern, stored_at):
        never = InvalidPattern(text, "it does not fire within the next five years")
        return _pattern_fault(never, text, zone, rules, dialect)
    return pattern


def _pattern_fault(
    invalid: InvalidPattern | InvalidTimeZone,
    text: str,
    zone: str | None,
    rules: StreamRules,
    dialect: Dialect,
) -> Rejection:
    """Reject the time zone or the pattern; on a stream without schedules, reject for that reason."""
    if isinstance(invalid, InvalidTimeZone):
        error, header, value = rejection.TIME_ZONE_INVALID, dialect.time_zone, zone or ""
        reason = f"is not a time zone such as 'Europe/Berlin': {invalid.reason}"
    else:
        error, header, value = rejection.PATTERN_INVALID, dialect.schedule, text
        reason = f"is not a valid pattern: {invalid.reason}"
    if not rules.schedules_enabled:
        return schedules_disabled(header, value, rules)
    return error.rejection(header.decode(), value, reason)


def schedules_disabled(header: bytes, value: str, rules: StreamRules) -> Rejection:
    """Reject a header because its stream has no schedules (10188)."""
    reason = f"is on stream {rules.name!r}, which has no schedules: set allow_msg_schedules"
    return rejection.SCHEDULES_DISABLED.rejection(header.decode(), value, reason)


def _ttl_fault(ttl: str, rollup: str, rules: StreamRules, dialect: Dialect, *, allow_msg_ttl: bool) -> Rejection | None:
    """Check the TTL's grammar, the roll-up, and then whether the stream has TTLs (checks 4 to 6)."""
    if ttl and read_ttl(ttl) is None:
        return rejection.TTL_INVALID.rejection(dialect.ttl.decode(), ttl, NO_TTL)
    if rollup and rollup != "sub":
        reason = "is not 'sub', the only roll-up of a generated message"
        return rejection.ROLLUP_INVALID.rejection(dialect.rollup.decode(), rollup, reason)
    if ttl and not allow_msg_ttl:
        return ttls_disabled(dialect.ttl, ttl, rules)
    return None


def ttls_disabled(header: bytes, value: str, rules: StreamRules) -> Rejection:
    """Reject a header because its stream has no message TTLs (10166)."""
    reason = f"is on stream {rules.name!r}, which has no message TTLs: set allow_msg_ttl"
    return rejection.TTL_DISABLED.rejection(header.decode(), value, reason)


def read_ttl(text: str) -> int | None:
    """Read a TTL in seconds; None if it is invalid. Cached, because the schedules of a fleet have only a few TTLs."""
    return _read_cached_ttl(text) if len(text) <= _MAX_CACHED_TTL_CHARS else _read_ttl(text)


def _read_ttl(text: str) -> int | None:
    ttl = parse_ttl(text)
    return None if isinstance(ttl, Invalid) else ttl


_MAX_CACHED_TTL_CHARS = 64
"""Longer ones are not cached: a header may hold 64 KB."""

_read_cached_ttl = lru_cache(maxsize=64)(_read_ttl)


def _schedule_fault(subject: str) -> Rejection | None:
    """Check the subject of the schedule itself.

    A server stores a message that is published to `orders.>` under that subject. The native scheduler then ends the
    schedule with a purge of `orders.>`, which deletes every message on a subject that it matches
    (`test_a_schedule_on_a_wildcard_is_refused_before_it_purges`).
    """
    if is_literal_subject(subject):
        return None
    reason = "is the subject of the schedule, but not a literal one: its purge would delete all that it matches"
    return rejection.TARGET_INVALID.rejection("subject", subject, reason)


def _target_fault(target: str, subject: str, fields: Mapping[bytes, str], dialect: Dialect) -> Rejection | None:
    """Check the subject of the target (check 7)."""
    fault = subject_fault(target, subject)
    if not fault:
        return None
    advice = "" if target else portable_advice("X-Target", fields, dialect)
    return rejection.TARGET_INVALID.rejection(dialect.target.decode(), target, fault + advice)


def _source_fault(source: str, target: str, subject: str, dialect: Dialect) -> Rejection | None:
    """Check the subject of the source (check 8)."""
    if not source:
        return None
    fault = "is also the target: sample another subject" if source == target else subject_fault(source, subject)
    return rejection.SOURCE_INVALID.rejection(dialect.source.decode(), source, fault) if fault else None


def subject_fault(
    named: str,
    subject: str,
    expected: str = "a subject such as 'orders.due'",
    itself: str = "the schedule itself: expected another one",
) -> str:
    """Return why `named` cannot be a subject that a message on `subject` names; "" if it can."""
    if not named:
        return f"is missing or empty: expected {expected}"
    if not is_literal_subject(named):
        return "is not a literal subject such as 'orders.due': no wildcards, blanks or empty tokens"
    return f"is the subject of {itself}" if named == subject else ""


def _coverage_fault(error: ServerError, header: bytes, named: str, rules: StreamRules) -> Rejection | None:
    """Check that the stream covers the target, and the source if there is one (checks 9 and 10)."""
    if not named or is_covered(named, rules.subjects):
        return None
    reason = f"is not a subject of stream {rules.name!r}: expected one of {', '.join(rules.subjects) or 'none'}"
    return error.rejection(header.decode(), named, reason)


def _storage_rollup_fault(block: bytes) -> Rejection | None:
    """Check the roll-up of the schedule message itself (check 11): `sub`, in any case."""
    value = header_value(block, MSG_ROLLUP)
    if not value or value.lower() == b"sub":
        return None
    reason = "is not 'sub': a schedule rolls up its own subject only"
    return rejection.ROLLUP_INVALID.rejection(MSG_ROLLUP.decode(), decoded(value), reason)
