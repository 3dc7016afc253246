"""Build a fire completely, so that only bytes are sent at its due time, and check whether the server would accept it.

The rule: what would make the server close the connection, or what it would take for a request, is never sent. What it
would refuse is refused here, with its code and text, and costs no request. After the headers of ADR-51 come the
identity and, if the server supports it, the guard; they come first if the server would not find them there.

Cost: some microseconds for a block of ten headers.
"""

from collections.abc import Sequence
from dataclasses import replace

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.holding.deadlines import deadline_headers
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.generated import (
    REPORT_NAMES,
    as_stored_natively,
    fire_block,
    guard_headers,
    identity_header,
    plain_fire_block,
)
from nats_scheduler.message.headers import MSG_ID, Header, header_value, without_headers
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.restrictions import Restrictions
from nats_scheduler.message.stored import StoredMessage

MAX_BLOCK_BYTES = 65_535
"""Largest header block the server stores (10097)."""

MAX_TARGET_BYTES = 3_500
"""Longest target that is sent: with our reply subject it stays under the server's control line of 4,096 bytes."""

TARGET_TOO_LONG = Refused(
    400, 10190, f"the target is longer than the {MAX_TARGET_BYTES} bytes that can be published to"
)
TARGET_IS_REQUEST = Refused(
    400, 10190, "the target is one of the server's own subjects, or of the sidecars', on which they take requests"
)
SOURCE_IS_REQUEST = Refused(
    400, 10203, "the source is one of the server's own subjects, or of the sidecars', on which they take requests"
)
HEADER_TOO_LARGE = Refused(400, 10097, "header size exceeds maximum allowed of 64k")
NO_CODE = 400
"""The code if no server has one for it."""
IDENTITY_HIDDEN = Refused(
    400, NO_CODE, "header names in its values would hide the identity or the guard of the fire from the server"
)
PAYLOAD_TOO_LARGE = 10054
UNSAFE = b""
"""The block of a fire that cannot be sent."""


def assembled(
    held: Held,
    content: StoredMessage,
    source: StoredMessage | None,
    fire_time: int,
    next_fire: int | None,
    *,
    guard: bool,
    last: int | None = None,
    taken: int = 0,
    report: Sequence[Header] = (),
    rolls_up_by_purge: bool = False,
) -> Fire:
    """Build the fire of a schedule from its message, `content`, or from the last message of its source.

    `last` is the sequence that the guard expects on the schedule's subject, the schedule's own if it is None;
    `taken` as for `fire_identity`; `report` is what the fire says of itself. With `rolls_up_by_purge` it does not say
    that it rolls up its target.
    """
    deadline = deadline_headers(held.terms.policies)
    report = [*report, *deadline] if deadline else report
    last = held.sequence if last is None else last
    identity = fire_identity(held.subject, held.sequence, fire_time, taken)
    is_to_roll_up = rolls_up_by_purge and held.terms.rollup
    terms = held.terms._replace(rollup=False) if is_to_roll_up else held.terms
    named = held.pattern, terms, held.subject, next_fire
    block = plain_fire_block(content.block, *named, identity, last) if guard and source is None and not report else None
    if block is None:
        base = as_stored_natively(content.block) if source is None else source.block
        if report:
            base = without_headers(base, {*REPORT_NAMES, *(name for name, _value in report)})
        ours = [*report, identity_header(identity), *(guard_headers(held.subject, last) if guard else ())]
        block = fire_block(base, *named, ours)
    body = (source or content).body or b""
    target = held.terms.target
    stored_at = held.stored_at
    times = fire_time, next_fire
    fire = Fire(
        held.subject,
        held.sequence,
        *times,
        target,
        block or UNSAFE,
        body,
        stored_at,
        held.is_to_other_stream,
        last,
        taken=taken,
    )
    fire.is_to_roll_up, fire.is_watched = is_to_roll_up, bool(deadline)
    if held.jitters:
        fire.delay = held.send_time_of(fire_time) - fire_time
    return fire


def with_another_identity(fire: Fire, taken: int) -> Fire:
    """Return the same fire with another identity; `taken` as for `fire_identity`."""
    before = header_value(fire.block, MSG_ID) or b""
    identity = identity_header(fire_identity(fire.schedule, fire.sequence, fire.fire_time, taken))[1]
    block = fire.block.replace(b"%b: %b\r\n" % (MSG_ID, before), b"%b: %b\r\n" % (MSG_ID, identity), 1)
    return replace(fire, block=block, taken=taken)


def refusal_of(fire: Fire, source: str | None, restrictions: Restrictions) -> Refused | None:
    """Return why a fire is never sent: the server would close the connection, take it for a request, or refuse it."""
    if restrictions.is_request(fire.target):
        return TARGET_IS_REQUEST
    if restrictions.reads_requests(source):
        return SOURCE_IS_REQUEST
    if len(fire.target.encode("utf-8", "surrogateescape")) > MAX_TARGET_BYTES:
        return TARGET_TOO_LONG
    if len(fire.block) > MAX_BLOCK_BYTES:
        return HEADER_TOO_LARGE
    if not fire.block:
        return IDENTITY_HIDDEN
    return None


def too_large(fire: Fire, max_payload: int) -> Refused | None:
    """Return why a fire is larger than what the server takes at the moment; None if it is not."""
    size = len(fire.block) + len(fire.body)
    if size <= max_payload:
        return None
    described = f"message of {size} bytes exceeds the server's max_payload of {max_payload}"
    return Refused(400, PAYLOAD_TOO_LARGE, described)
