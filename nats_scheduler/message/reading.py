"""Read what a stored message means to the scheduler: a schedule, a fire, a cancel, a rejection or nothing.

Rule: one message, one reading, decided only by its headers, its subject and its stream's rules.
`read_message` gets every message of a served stream, and most mean nothing. So its first line discards those that do
not contain the letters `Nats-Schedule`.
The others are checked in the server's order (`docs/reference/headers.md`, "Order of checks", 1 to 16). Before and after
these come the checks of the message's own TTL, which a server of 2.10 does not make.
Cost: 0.1 to 0.2 µs for an ordinary message, less than 10 µs for an `@at` schedule, 2 to 3 µs of it to parse the time.
Limit: only the engine can check whether a cancel names a schedule (check 15).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nats_scheduler.message import rejection
from nats_scheduler.message.definition import (
    NO_TTL,
    Definition,
    definition_of,
    read_ttl,
    schedules_disabled,
    ttls_disabled,
)
from nats_scheduler.message.dialect import DIALECTS, Dialect
from nats_scheduler.message.fields import schedule_fields
from nats_scheduler.message.headers import MSG_ID, MSG_TTL, decoded, header_value
from nats_scheduler.message.identity import IDENTITY_PREFIX, parse_identity
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.message.subjects import is_literal_subject

SCHEDULE_SUBSTRING = b"Nats-Schedule"
"""Every message that means something to the scheduler contains this, in both dialects."""


_IDENTITY_PREFIX = IDENTITY_PREFIX.encode()


class Generated(NamedTuple):
    """The fire that a message is: its schedule's subject and sequence, and the fire time in nanoseconds."""

    schedule: str
    sequence: int
    fire_time: int
    schedule_stored_at: int = 0
    """When (ns) the schedule was stored, if the caller has set it; the fire itself does not contain it."""
    delay: int = 0
    """How long (ns) after its fire time it was to be sent, if the caller has set it."""


class Reading(NamedTuple):
    """What a message means: a tuple, because a million are created at start.

    `definition` and `cancels` (the subject of another schedule) may both be set: a new schedule can end an old one.
    A `rejection` is always the only value, and so is `generated`.
    """

    definition: Definition | None = None
    rejection: Rejection | None = None
    generated: Generated | None = None
    cancels: str | None = None


def read_message(
    block: bytes | None, subject: str, stored_at: int, rules: StreamRules, dialects: Sequence[Dialect]
) -> Reading | None:
    """Read a stored message; None if it means nothing to the scheduler.

    `stored_at` is its stream timestamp in nanoseconds. `dialects` are those that are served; the first one in which the
    message is a schedule decides, and the others are then ignored.
    """
    # `find`, not `in`: the latter first tries to convert its operand to a number, and costs three times as much.
    if not block or block.find(SCHEDULE_SUBSTRING) < 0:
        return None
    if block.find(_IDENTITY_PREFIX) >= 0 and (generated := read_generated(block)):
        return Reading(generated=generated)
    return read_published(block, subject, stored_at, rules, dialects)


def read_published(
    block: bytes, subject: str, stored_at: int, rules: StreamRules, dialects: Sequence[Dialect]
) -> Reading | None:
    """Do what `read_message` does with a message that is no fire, even if it claims to be one."""
    reading = None
    for dialect in dialects:
        fields = schedule_fields(block, dialect)
        if fields.get(dialect.schedule):
            reading = _read_as(fields, block, subject, stored_at, rules, dialect)
            break
        reading = reading or _read_as(fields, block, subject, stored_at, rules, dialect)
    return _with_ttl(reading, block, rules)


def _read_as(
    fields: Mapping[bytes, str],
    block: bytes,
    subject: str,
    stored_at: int,
    rules: StreamRules,
    dialect: Dialect,
) -> Reading | None:
    """Read a message in one dialect: first the schedule, then the cancel; the first fault decides."""
    if not fields:
        return None
    definition = definition_of(fields, block, subject, rules, dialect, stored_at)
    if isinstance(definition, Rejection):
        return Reading(rejection=definition)
    cancels = _read_cancel(fields, subject, rules, dialect)
    if isinstance(cancels, Rejection):
        return Reading(rejection=cancels)
    if definition is None and cancels is None:
        return None
    return Reading(definition=definition, cancels=cancels)


def _with_ttl(reading: Reading | None, block: bytes, rules: StreamRules) -> Reading | None:
    """Check the TTL of a message that means something to the scheduler, as the first or the last of all checks.

    As the server does: a valid TTL on a stream without TTLs is the first of all faults, an invalid TTL is the last one,
    on any stream (`test_the_ttl_of_the_schedule_itself_is_judged_first_or_last`).
    """
    if reading is None or not (ttl := decoded(header_value(block, MSG_TTL) or b"")):
        return reading
    seconds = read_ttl(ttl)
    if seconds and not rules.allow_msg_ttl:
        return Reading(rejection=ttls_disabled(MSG_TTL, ttl, rules))
    if seconds is None and reading.rejection is None:
        return Reading(rejection=rejection.STORAGE_TTL_INVALID.rejection(MSG_TTL.decode(), ttl, NO_TTL))
    return reading


def has_schedule_header(block: bytes, dialects: Sequence[Dialect]) -> bool:
    """Return whether a message has a `Nats-Schedule`, valid or not, in one of the dialects."""
    return any(header_value(block, dialect.schedule) for dialect in dialects)


def read_generated(block: bytes) -> Generated | None:
    """Recognise a fire of a sidecar: it has an identity, and its `Nats-Scheduler` names the same schedule.

    Both dialects count, whichever are served now: a fire from before an upgrade is still a fire.
    """
    value = header_value(block, MSG_ID)
    identity = None if value is None else parse_identity(decoded(value))
    if identity is None:
        return None
    for dialect in DIALECTS:
        if _names_scheduler(block, dialect.scheduler, identity[0]):
            return Generated(*identity)
    return None


def is_fire_since(block: bytes, schedule: str, sequence: int, first: int) -> bool:
    """Return whether a message claims to be a fire of this version of a schedule, from fire time `first` (ns) on."""
    generated = read_generated(block)
    return generated is not None and generated[:2] == (schedule, sequence) and generated.fire_time >= first


def _names_scheduler(block: bytes, name: bytes, schedule: str) -> bool:
    """Return whether `Nats-Scheduler` names the schedule, in a line of its own, as the sidecar writes it.

    This is not the server's search: a header of the sample may hide the line, or the sample may end in a bare LF before
    it. Then it is no header to any other program, as in a message that the native scheduler stores
    (`test_a_fire_is_known_though_its_sample_ended_in_a_bare_line_feed`).
    """
    return b"\n%b: %b\r\n" % (name, schedule.encode("utf-8", "surrogateescape")) in block


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
