"""Build the headers of a generated message: what a fire stores in the target.

Rule: what ADR-51 says, byte for byte (`docs/reference/headers.md`, "The generated message"): remove some headers, keep
the rest, append in the server's order. What would lend a right of the sidecar is removed too (`message.rights`).
The sidecar's own two additions, the identity and the guard, are added afterwards. So one of the steps always has the
block that the native scheduler would have stored.
Cost: a few microseconds for a block of ten headers.
Limit: the base must be a stored block; the server's own limit of 64 KiB is not checked here.
"""

import re
from collections.abc import Sequence

from nats_scheduler.message.dialect import ADR51, DIALECTS, PORTABLE, Dialect
from nats_scheduler.message.effective_headers import are_effective, with_effective_headers
from nats_scheduler.message.headers import (
    MSG_ID,
    MSG_ROLLUP,
    MSG_TTL,
    Header,
    decoded,
    encoded,
    header_value,
    with_header,
    with_headers,
    without_headers,
    without_status,
)
from nats_scheduler.message.identity import parse_beside
from nats_scheduler.message.rights import without_lent
from nats_scheduler.message.schedule_form import Terms
from nats_scheduler.schedule.patterns import Pattern

PURGE = b"purge"
EXPECTED_SEQUENCE = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"

NOT_LAST, BEING_STORED = 10071, 10164
NUMBERED_BEFORE, LAST_UNKNOWN = 10063, 10163
"""The server's codes of what follows."""

WRONG_LAST_SEQUENCE = frozenset({NOT_LAST, BEING_STORED})
"""The server's codes if another message is the last one on the subject, or is being stored there by other nodes."""

UNDECIDED = frozenset({NUMBERED_BEFORE, LAST_UNKNOWN, BEING_STORED})
"""The server's codes if it cannot say yet what the last message is: nothing is stored, and an attempt soon after is.

Another message is being stored on the subject, which may not be stored in the end if the leader changes (10164, 10163);
or the leader has numbered the message as one before it led (10063).
"""

NOT_AVAILABLE = frozenset({10008, 10009})
"""The server's codes while a cluster elects a leader: what was asked for may have been done before."""

_STRIPPED_NAMES = (MSG_ID, MSG_TTL, MSG_ROLLUP)
_STRIPPED_PREFIXES = (ADR51.schedule, b"Nats-Expected-")
_PORTABLE_PREFIXES = (PORTABLE.schedule, *_STRIPPED_PREFIXES)
_NOTHING_KEPT = re.compile(rb"NATS/1\.0\r\n(?:Nats-Schedule[^\r\n]*+\r\n)++\r\n")
_NOTHING_KEPT_PORTABLE = re.compile(rb"NATS/1\.0\r\n(?:(?:X-)?Nats-Schedule[^\r\n]*+\r\n)++\r\n")
"""A block that has nothing but the headers of a schedule, as most schedules have.

A line without a colon is no header, and goes too: nothing of such a block gets into the fire.
"""

_PLAIN_TEXT = re.compile(r"[!-~]++")
_FIRST_OF_OURS = "Nats-"
"""The names of the identity and of the guard begin so: a subject that contains it may hide them."""
_PLAIN_FIRE = (
    b"NATS/1.0\r\n%b: %b\r\n%b: %b\r\n"
    + MSG_ID
    + b": %b\r\n"
    + EXPECTED_SEQUENCE
    + b": %d\r\n"
    + EXPECTED_SUBJECT
    + b": %b\r\n\r\n"
)


def generated_block(base: bytes | None, pattern: Pattern, terms: Terms, schedule: str, next_fire: int | None) -> bytes:
    """Build the header block of the message that a fire stores.

    `base` is the block of the schedule message, or of the source's last message; `schedule` is the subject of the
    schedule; `next_fire` is the time of the next fire (ns), None if there is none and the schedule is to be purged.
    """
    dialect = terms.dialect
    appended = [
        (dialect.scheduler, encoded(schedule)),
        (dialect.next, PURGE if next_fire is None else pattern.format(next_fire).encode()),
    ]
    return with_headers(carried_block(base, dialect), appended + _effective_headers(terms))


def fire_block(
    base: bytes | None, pattern: Pattern, terms: Terms, schedule: str, next_fire: int | None, ours: Sequence[Header]
) -> bytes | None:
    """Build the complete block of a fire: the generated message's and `ours`, placed so that every server finds them.

    The TTL and the roll-up are placed in the same way, if the native scheduler's own search would find them.
    None if the values hide a header and no order of the headers helps.
    """
    block = generated_block(base, pattern, terms, schedule, next_fire)
    effective = _effective_headers(terms)
    if not effective or are_effective(block, effective):
        return with_effective_headers(block, ours)
    moved = [(name, value) for name, value in effective if header_value(block, name)]
    names = {name for name, _value in moved}
    left = terms._replace(ttl="" if MSG_TTL in names else terms.ttl, rollup=terms.rollup and MSG_ROLLUP not in names)
    return with_effective_headers(generated_block(base, pattern, left, schedule, next_fire), [*moved, *ours])


def plain_fire_block(
    base: bytes, pattern: Pattern, terms: Terms, schedule: str, next_fire: int | None, identity: str, last: int
) -> bytes | None:
    """Return what `fire_block` returns for a fire with an identity and a guard that expects the sequence `last`.

    `base` is the stored block of the schedule. None, unless the schedule is as most are: it has no other headers than
    those of a schedule, its fires have no TTL and no roll-up, and its subject cannot hide a header. For such a fire
    nothing has to be searched, and that takes a third of the time.
    """
    dialect = terms.dialect
    if terms.ttl or terms.rollup or _FIRST_OF_OURS in schedule or not _PLAIN_TEXT.fullmatch(schedule):
        return None
    if not _keeps_nothing(base, dialect):
        return None
    name, following = schedule.encode(), PURGE if next_fire is None else pattern.format(next_fire).encode()
    return _PLAIN_FIRE % (dialect.scheduler, name, dialect.next, following, identity.encode(), last, name)


def identity_header(identity: str) -> Header:
    """Return the header by which a server recognises a fire that it has already stored."""
    return MSG_ID, encoded(identity)


def guard_headers(schedule: str, sequence: int) -> tuple[Header, Header]:
    """Return the guard: the server stores the fire only if `sequence` is still the last message on `schedule`.

    Servers from 2.11 on respect the second header; an older one would compare with the target instead.
    """
    return (
        (EXPECTED_SEQUENCE, b"%d" % sequence),
        (EXPECTED_SUBJECT, encoded(schedule)),
    )


def as_stored_natively(block: bytes) -> bytes:
    """Return the block of a schedule as the native scheduler finds it: with the roll-up that the server appended.

    The roll-up is removed again, with one exception: after a bare LF the server finds no name. There the roll-up stays,
    and so the first header of the fire is not hidden in the same way
    (`test_a_schedule_that_ends_in_a_bare_line_feed_keeps_the_rollup`).
    """
    if block.count(b"\n") == block.count(b"\r\n") or header_value(block, MSG_ROLLUP):
        return block
    return with_header(without_status(block), MSG_ROLLUP, b"sub")


def _effective_headers(terms: Terms) -> list[Header]:
    """Return the headers of ADR-51 in a generated message that the server acts on."""
    headers = []
    if terms.ttl:
        headers.append((MSG_TTL, encoded(terms.ttl)))
    if terms.rollup:
        headers.append((MSG_ROLLUP, b"sub"))
    return headers


def carried_block(base: bytes | None, dialect: Dialect) -> bytes:
    """Return the headers of `base` that go into the generated message."""
    if base is not None and _keeps_nothing(base, dialect):
        return b""
    prefixes = _STRIPPED_PREFIXES if dialect is ADR51 else _PORTABLE_PREFIXES
    # The native scheduler stores its messages itself. The sidecar publishes them, so the server acts on their headers.
    return without_lent(without_headers(base, _STRIPPED_NAMES, prefixes))


def _keeps_nothing(base: bytes, dialect: Dialect) -> bool:
    """Return whether it is seen at once that no header of a schedule goes into the generated message."""
    return (_NOTHING_KEPT_PORTABLE if dialect is PORTABLE else _NOTHING_KEPT).fullmatch(base) is not None


def is_generated_by(block: bytes | None, schedule: str) -> bool:
    """Return whether a message says that the schedule on this subject generated it, and not because of a request."""
    name = encoded(schedule)
    return any(header_value(block, dialect.scheduler) == name for dialect in DIALECTS) and not _is_beside(block)


def _is_beside(block: bytes | None) -> bool:
    """Return whether a message is a fire that was requested: no fire of the schedule waits for it."""
    identity = header_value(block, MSG_ID)
    return identity is not None and parse_beside(decoded(identity)) is not None


DUE = PORTABLE.schedule + b"-X-Due"
"""The fire time, as `Nats-Schedule-Next` writes it."""
PREVIOUS = PORTABLE.schedule + b"-X-Previous"
"""The fire time of the last fire before that is known to be stored; absent if there is none."""
MISSED = PORTABLE.schedule + b"-X-Missed"
"""The number of fires that were dropped between the two."""

BY = PORTABLE.schedule + b"-X-By"
"""The kind of request that it was stored for, with or without `X-Report`: `fire` or `backfill`; absent from others."""

_BY_LINE = b"\n" + BY + b": "

REPORT_NAMES = (DUE, PREVIOUS, MISSED)


def is_requested(block: bytes) -> bool:
    """Return whether a fire says that was requested it: when it is stored says nothing about punctuality."""
    return _BY_LINE in block


def report_headers(pattern: Pattern, fire_time: int, previous: int | None, missed: int) -> list[Header]:
    """Return the headers that `X-Report` adds to a fire; times are in nanoseconds.

    Their names begin with `X-Nats-` beside the headers of ADR-51 too: servers remove headers that begin with
    `Nats-Schedule` from what they generate. A fire that copies the headers of another one, its sample, has only its own
    report.
    """
    headers = [(DUE, pattern.format(fire_time).encode())]
    if previous is not None:
        headers.append((PREVIOUS, pattern.format(previous).encode()))
    return [*headers, (MISSED, b"%d" % missed)]
