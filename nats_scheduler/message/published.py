"""What a client published in one dialect: a schedule, a cancel, both, or a fault.

The rules:

- The checks are those of `docs/reference/headers.md` ("Order of checks"), in the server's order; the first fault
  decides. The schedule comes first (checks 1 to 11, `message.definition`), then the cancel (12 to 14 and 16).
- The checks of the message's own TTL surround these; a server of 2.10 does not make them.
- Whether a cancel names a schedule (check 15) only the engine knows.
"""

from collections.abc import Mapping
from typing import TypeAlias

from nats_scheduler.message import rejection
from nats_scheduler.message.definition import (
    NO_TTL,
    Definition,
    definition_of,
    read_ttl,
    schedules_disabled,
    subject_fault,
    ttls_disabled,
)
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import MSG_TTL, decoded, header_value
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import StreamRules

Published: TypeAlias = tuple[Definition | None, str | None] | Rejection | None
"""The schedule and the subject of the schedule that it cancels, or the first fault; None if it is neither."""


def read_in_dialect(
    fields: Mapping[bytes, str],
    block: bytes,
    subject: str,
    stored_at: int,
    rules: StreamRules,
    dialect: Dialect,
) -> Published:
    """Read a message in one dialect: first the schedule, then the cancel.

    `fields` are the dialect's headers that were found in the block; `stored_at` is the stream timestamp in nanoseconds.
    """
    if not fields:
        return None
    definition = definition_of(fields, block, subject, rules, dialect, stored_at)
    if isinstance(definition, Rejection):
        return definition
    cancels = _read_cancel(fields, subject, rules, dialect)
    if isinstance(cancels, Rejection):
        return cancels
    return None if definition is None and cancels is None else (definition, cancels)


def with_ttl_checked(published: Published, block: bytes, rules: StreamRules) -> Published:
    """Check the TTL of a message that means something to the scheduler, as the first or the last of all checks.

    As the server does: a valid TTL on a stream without TTLs is the first of all faults, an invalid TTL is the last one,
    on any stream (`test_the_ttl_of_the_schedule_itself_is_judged_first_or_last`).
    """
    if published is None or not (ttl := decoded(header_value(block, MSG_TTL) or b"")):
        return published
    seconds = read_ttl(ttl)
    if seconds and not rules.allow_msg_ttl:
        return ttls_disabled(MSG_TTL, ttl, rules)
    if seconds is None and not isinstance(published, Rejection):
        return rejection.STORAGE_TTL_INVALID.rejection(MSG_TTL.decode(), ttl, NO_TTL)
    return published


def _read_cancel(
    fields: Mapping[bytes, str], subject: str, rules: StreamRules, dialect: Dialect
) -> str | Rejection | None:
    """Read the atomic cancel (checks 12 to 14 and 16): the subject of the schedule that ends."""
    following = fields.get(dialect.next)
    scheduler = fields.get(dialect.scheduler, "")
    header, value, fault = dialect.scheduler, scheduler, ""
    if not following:
        if not scheduler:
            return None
        fault = f"is without {dialect.next.decode()}: expected 'purge' there, or neither"
    elif following != "purge":
        header, value, fault = dialect.next, following, "is not 'purge', the only value that a client may set"
    else:
        itself = "the message itself: a schedule ends another one"
        fault = subject_fault(scheduler, subject, "the subject of the schedule that ends", itself)
    if fault:
        return rejection.SCHEDULER_INVALID.rejection(header.decode(), value, fault)
    return scheduler if rules.schedules_enabled else schedules_disabled(dialect.scheduler, scheduler, rules)
