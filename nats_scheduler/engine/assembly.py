"""Put a fire together, completely, so that at its time only bytes are sent; and see whether the server would take it.

The rule: what the server would close the connection over, or take for an order, is never sent; what it would refuse is
refused here, in its words, before it costs a request.
Behind the headers of ADR-51 stand the identity and, where the server knows it, the guard.

Cost: some microseconds for a block of ten headers.
"""

from dataclasses import dataclass

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.inputs import Refused
from nats_scheduler.message.generated import as_stored_natively, generated_block, with_guard, with_identity
from nats_scheduler.message.identity import fire_identity
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import is_order
from nats_scheduler.schedule.instants import SECOND

MAX_HEADER_BYTES = 65_535
"""Largest header block the server stores (10097)."""

MAX_TARGET_BYTES = 3_500
"""Longest target that is sent: with our reply subject it stays under the server's control line of 4,096 bytes."""

TARGET_TOO_LONG = Refused(
    400, 10190, f"the target is longer than the {MAX_TARGET_BYTES} bytes that can be published to"
)
TARGET_IS_AN_ORDER = Refused(400, 10190, "the target is a subject of the server's own, on which it takes orders")
HEADER_TOO_LARGE = Refused(400, 10097, "header size exceeds maximum allowed of 64k")
PAYLOAD_TOO_LARGE = 10054


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What the server at the other end can do and take."""

    guard: bool
    """It checks `Nats-Expected-Last-Subject-Sequence-Subject` (2.11 and later)."""
    max_payload: int = 1_048_576
    """Bytes of headers and body together."""
    look_ahead: int = 10 * SECOND
    """How long (ns) before its due time the content of a fire is read."""
    silent: bool = False
    """It acknowledges nothing (`no_ack`), and what it stored may be consumed before it is seen."""


def assembled(
    held: Held, content: StoredMessage, source: StoredMessage | None, fire_time: int, next_fire: int | None, guard: bool
) -> Fire:
    """Build the fire of a schedule out of its message, `content`, or of its source's last one."""
    base = as_stored_natively(content.block) if source is None else source.block
    block = generated_block(base, held.pattern, held.terms, held.subject, next_fire)
    block = with_identity(block, fire_identity(held.subject, held.sequence, fire_time))
    if guard:
        block = with_guard(block, held.subject, held.sequence)
    body = (source or content).body or b""
    return Fire(held.subject, held.sequence, fire_time, next_fire, held.terms.target, block, body)


def refusal_of(fire: Fire, limits: ServerLimits) -> Refused | None:
    """Return the refusal of a fire that the server would close the connection for, take for an order, or refuse."""
    if is_order(fire.target):
        return TARGET_IS_AN_ORDER
    if len(fire.target.encode("utf-8", "surrogateescape")) > MAX_TARGET_BYTES:
        return TARGET_TOO_LONG
    if len(fire.block) > MAX_HEADER_BYTES:
        return HEADER_TOO_LARGE
    size = len(fire.block) + len(fire.body)
    if size > limits.max_payload:
        described = f"message of {size} bytes exceeds the server's max_payload of {limits.max_payload}"
        return Refused(400, PAYLOAD_TOO_LARGE, described)
    return None
