"""Read what a client published in one dialect: a schedule, a cancel, both, or a fault.

Rule: the checks of `docs/reference/headers.md` ("Order of checks") in the server's order; the first fault decides.
The schedule comes first (checks 1 to 11, `message.definition`), then the cancel (12 to 14 and 16). The checks of the
message's own TTL surround these; a server of 2.10 does not make them.
Limit: only the engine can check whether a cancel names a schedule (check 15).
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
    ttls_disabled,
)
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import MSG_TTL, decoded, header_value
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_literal_subject

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
    if not following:
        return _lone_scheduler(scheduler, dialect) if scheduler else None
    if following != "purge":
        return _cancel_fault(dialect.next, following, "is not 'purge', the only value that a client may set")
    if fault := _scheduler_fault(scheduler, subject):
        return _cancel_fault(dialect.scheduler, scheduler, fault)
    if not rules.schedules_enabled:
        return schedules_disabled(dialect.scheduler, scheduler, rules)
    return scheduler


def _scheduler_fault(scheduler: str, subject: str) -> str:
    """Return the reason why `scheduler` cannot be the subject of a schedule that this message ends; "" if it can."""
    if not scheduler:
        return "is missing or empty: expected the subject of the schedule that ends"
    if not is_literal_subject(scheduler):
        return "is not a literal subject such as 'orders.due': no wildcards, blanks or empty tokens"
    return "is the subject of the message itself: a schedule ends another one" if scheduler == subject else ""


def _lone_scheduler(scheduler: str, dialect: Dialect) -> Rejection:
    return _cancel_fault(
        dialect.scheduler,
        scheduler,
        f"is without {dialect.next.decode()}: expected 'purge' there, or neither",
    )


def _cancel_fault(header: bytes, value: str, reason: str) -> Rejection:
    return rejection.SCHEDULER_INVALID.rejection(header.decode(), value, reason)
