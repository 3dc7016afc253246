"""Targets in another stream: `X-Nats-Schedule-X-Target` in place of `X-Nats-Schedule-Target`.

The rules:

- Such a schedule names a subject of any other stream of the account that the operator allows for the stream of the
  schedule (`allowed_targets_elsewhere`); by default there is none.
- It is portable only: beside `Nats-Schedule` a server from 2.12 on refuses a schedule without a target in its stream.
- A subject of the schedule's own stream is refused. `X-Nats-Schedule-Target` names that, and promises more.
- Whether the other stream accepts message TTLs and roll-ups is not known here; it refuses the fire if it does not.

Why a policy and not a value of the target header: a program that reads schedules, and does not know the policy, finds
no target, and not one that it takes for a subject of the stream.
Cost: one look-up in the headers of a schedule. Limit: whether any stream has the subject is known when it fires.
"""

from collections.abc import Mapping

from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.policies import extension_prefix
from nats_scheduler.message.rejection import POLICY_INVALID, Rejection
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_api_subject, is_covered, is_literal_subject

X_TARGET = extension_prefix(PORTABLE) + b"Target"
"""The header that names a target in another stream."""

_X_OVERLAP = extension_prefix(PORTABLE) + b"Overlap"
_X_TARGET_OF_ADR51 = extension_prefix(ADR51) + b"Target"

_PORTABLE_ONLY = (
    f"a target in another stream is read beside {PORTABLE.schedule.decode()} only, as {X_TARGET.decode()}: "
    "servers refuse a schedule of ADR-51 without a target in its own stream"
)


def target_elsewhere(fields: Mapping[bytes, str], dialect: Dialect) -> str | None:
    """Return the target in another stream that takes the place of the target; None if there is none."""
    return fields.get(X_TARGET) if dialect is PORTABLE and not fields.get(dialect.target) else None


def elsewhere_fault(fields: Mapping[bytes, str], target: str, subject: str, rules: StreamRules) -> Rejection | None:
    """Return why a schedule on `subject` cannot have this target in another stream; None if it can."""
    fault = _subject_fault(target, subject, rules) or rules.restrictions.elsewhere_fault(target)
    if not fault and _X_OVERLAP in fields:
        fault = "is beside X-Overlap, which asks about messages in the schedule's own stream: expected one of them"
    return POLICY_INVALID.rejection(X_TARGET.decode(), target, fault) if fault else None


def misplaced_fault(fields: Mapping[bytes, str], dialect: Dialect) -> Rejection | None:
    """Reject an `X-Target` that takes no effect: beside another target, or beside the headers of ADR-51."""
    name = X_TARGET if dialect is PORTABLE else _X_TARGET_OF_ADR51
    if (value := fields.get(name)) is None:
        return None
    reason = f"has no effect: {_PORTABLE_ONLY}"
    if dialect is PORTABLE:
        reason = f"is beside {dialect.target.decode()}: a schedule has one target"
    return POLICY_INVALID.rejection(name.decode(), value, reason)


def missing_target_advice(fields: Mapping[bytes, str], dialect: Dialect) -> str:
    """Return what to add to the reason that a schedule has no target: that its `X-Target` is not read."""
    is_unread = dialect is not PORTABLE and _X_TARGET_OF_ADR51 in fields
    return f"; {_PORTABLE_ONLY}" if is_unread else ""


def _subject_fault(target: str, subject: str, rules: StreamRules) -> str:
    if not target:
        return "is empty: expected a subject of another stream, such as 'jobs.run'"
    if not is_literal_subject(target):
        return "is not a literal subject such as 'jobs.run': no wildcards, blanks or empty tokens"
    if not target.isprintable():
        return "has characters that cannot be looked for: expected printable UTF-8"
    if is_api_subject(target):
        return "is one of the server's own subjects, on which it takes requests"
    if target == subject or (not rules.is_any and is_covered(target, rules.subjects)):
        return f"is a subject of stream {rules.name!r} itself: name it in {PORTABLE.target.decode()}"
    return ""
