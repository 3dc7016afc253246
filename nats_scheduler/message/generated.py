"""Build the headers of a generated message: what a fire stores in the target.

Rule: what ADR-51 says, byte for byte (behaviour 4.2): strip, keep the rest, append in the server's order. Our
own two additions, the identity and the guard, are added afterwards, so that the block a consumer of the native
scheduler would see is always one of the steps.
Cost: a few microseconds for a block of ten headers.
Limit: the base must be a stored block; the server's own limit of 64 KiB is not checked here.
"""

from collections.abc import Sequence

from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import ADR51, PORTABLE, Dialect
from nats_scheduler.message.headers import header_value, with_header, with_headers, without_headers, without_status
from nats_scheduler.message.placing import Header, are_obeyed, with_obeyed
from nats_scheduler.schedule.patterns import Pattern

MSG_ID = b"Nats-Msg-Id"
MSG_TTL = b"Nats-TTL"
MSG_ROLLUP = b"Nats-Rollup"
PURGE = b"purge"
EXPECTED_SEQUENCE = b"Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT = b"Nats-Expected-Last-Subject-Sequence-Subject"

_STRIPPED_NAMES = (MSG_ID, MSG_TTL, MSG_ROLLUP)
_STRIPPED_PREFIXES = (ADR51.schedule, b"Nats-Expected-")
# The native scheduler stores its messages itself; ours are published, and a server of 2.12 or later takes
# these headers of a publish for orders: it would wait for the rest of a batch, or refuse the fire (10168, 10227).
_PORTABLE_NAMES = (*_STRIPPED_NAMES, b"Nats-Stream-Source", b"Nats-Incr")
_PORTABLE_PREFIXES = (PORTABLE.schedule, *_STRIPPED_PREFIXES, b"Nats-Batch-")


def generated_block(base: bytes | None, pattern: Pattern, terms: Terms, schedule: str, next_fire: int | None) -> bytes:
    """Build the header block of the message that a fire stores.

    `base` is the block of the schedule message, or of the source's last message; `schedule` the subject of
    the schedule; `next_fire` the instant of the next fire, None if there is none and the schedule is to be
    purged.
    """
    dialect = terms.dialect
    appended = [
        (dialect.scheduler, schedule.encode("utf-8", "surrogateescape")),
        (dialect.next, PURGE if next_fire is None else pattern.format(next_fire).encode()),
    ]
    return with_headers(_kept(base, dialect), appended + _obeyed(terms))


def fire_block(
    base: bytes | None, pattern: Pattern, terms: Terms, schedule: str, next_fire: int | None, ours: Sequence[Header]
) -> bytes | None:
    """Build the complete block of a fire: the generated message's, and `ours`, where every server finds them.

    So it is with the TTL and the roll-up, as far as the native scheduler's own search would find them.
    None if the values hide what no order of the headers uncovers.
    """
    block = generated_block(base, pattern, terms, schedule, next_fire)
    obeyed = _obeyed(terms)
    if not obeyed or are_obeyed(block, obeyed):
        return with_obeyed(block, ours)
    moved = [(name, value) for name, value in obeyed if header_value(block, name)]
    names = {name for name, _value in moved}
    left = terms._replace(ttl="" if MSG_TTL in names else terms.ttl, rollup=terms.rollup and MSG_ROLLUP not in names)
    return with_obeyed(generated_block(base, pattern, left, schedule, next_fire), [*moved, *ours])


def identity_header(identity: str) -> Header:
    """Return the header by which a server knows a fire that it has stored already."""
    return MSG_ID, identity.encode("utf-8", "surrogateescape")


def guard_headers(schedule: str, sequence: int) -> tuple[Header, Header]:
    """Return the guard: the server stores the fire only while `sequence` is the last message on `schedule`.

    Servers from 2.11 on honour the second header; an older one would compare with the target instead.
    """
    return (
        (EXPECTED_SEQUENCE, b"%d" % sequence),
        (EXPECTED_SUBJECT, schedule.encode("utf-8", "surrogateescape")),
    )


def as_stored_natively(block: bytes) -> bytes:
    """Return the block of a schedule as the native scheduler finds it: with the roll-up that the server appended.

    It is stripped again, but for one case: behind a bare LF no name is found, and there it keeps the first header of
    the fire from being hidden in the same way (`test_a_schedule_that_ends_in_a_bare_line_feed_keeps_the_rollup`).
    """
    if block.count(b"\n") == block.count(b"\r\n") or header_value(block, MSG_ROLLUP):
        return block
    return with_header(without_status(block), MSG_ROLLUP, b"sub")


def with_identity(block: bytes, identity: str) -> bytes:
    """Append the identity of the fire as `Nats-Msg-Id`."""
    return with_headers(block, (identity_header(identity),))


def with_guard(block: bytes, schedule: str, sequence: int) -> bytes:
    """Append the guard."""
    return with_headers(block, guard_headers(schedule, sequence))


def _obeyed(terms: Terms) -> list[Header]:
    """Return the headers of ADR-51 in a generated message that the server acts upon."""
    headers = []
    if terms.ttl:
        headers.append((MSG_TTL, terms.ttl.encode("utf-8", "surrogateescape")))
    if terms.rollup:
        headers.append((MSG_ROLLUP, b"sub"))
    return headers


def _kept(base: bytes | None, dialect: Dialect) -> bytes:
    """Return what of `base` goes into the generated message."""
    if dialect.name == "adr51":
        return without_headers(base, _STRIPPED_NAMES, _STRIPPED_PREFIXES)
    return without_headers(base, _PORTABLE_NAMES, _PORTABLE_PREFIXES)
