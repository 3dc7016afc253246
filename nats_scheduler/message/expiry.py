"""When a message expires by its `Nats-TTL`, for the messages that the sidecar removes itself (on 2.10).

The rule: only schedules and generated messages have a lifetime here; any other message has none.
A message of an application with a `Nats-TTL`, on a server that does not support the header, stays, as it always did.
The grammar is the server's (`schedule.ttls`); `Nats-TTL` belongs to the server and has one spelling in both dialects.

Cost: one `bytes.find` for a message without TTL, some microseconds for a message with one.
Limit: an invalid TTL counts as none, since a server that checks it would not have stored the message.
"""

from collections.abc import Sequence
from functools import lru_cache

from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import MSG_TTL, decoded, header_value
from nats_scheduler.message.paused import has_paused_header
from nats_scheduler.message.reading import read_beside, read_generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.ttls import parse_ttl


def expiry_of(message: StoredMessage, dialects: Sequence[Dialect]) -> int | None:
    """Return when a schedule or a generated message expires (ns since the Unix epoch); None if it never does.

    A schedule counts in the dialects that are served, valid or not, active or paused; a generated message counts in
    both.
    """
    lifetime = lifetime_of(message.block)
    if lifetime is None:
        return None
    block = message.block
    is_schedule = any(header_value(block, d.schedule) for d in dialects) or has_paused_header(block, dialects)
    is_ours = is_schedule or read_generated(block) or read_beside(block)
    return message.stored_at + lifetime if is_ours else None


def lifetime_of(block: bytes) -> int | None:
    """Return the lifetime (ns) in a message's headers; None if there is none, or if it never ends."""
    if block.find(MSG_TTL) < 0:
        return None
    text = header_value(block, MSG_TTL)
    return _lifetime(text) if text else None


@lru_cache(maxsize=256)
def _lifetime(text: bytes) -> int | None:
    """Read a TTL; cached, because the schedules of a stream have only a few different TTLs."""
    seconds = parse_ttl(decoded(text))
    return None if isinstance(seconds, Invalid) or seconds <= 0 else seconds * SECOND
