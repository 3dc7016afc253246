"""When a message expires: what its `Nats-TTL` says, for those messages that the sidecar answers for.

The rule: a schedule and a generated message have a lifetime here, any other message has none.
An application that puts `Nats-TTL` on a message of its own, on a server that does not know the header, gets what it
has always got there: a message that stays.
The grammar is the server's (`schedule.ttls`); `Nats-TTL` belongs to the server and has one spelling in both dialects.

Cost: one `bytes.find` for a message without TTL, some microseconds for one that has it.
Limit: what is no TTL by the server's grammar counts as none, since a server that checks it would have stored nothing.
"""

from collections.abc import Sequence
from functools import lru_cache

from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.reading import read_generated
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.invalid import Invalid
from nats_scheduler.schedule.ttls import parse_ttl

TTL = b"Nats-TTL"


def expiry_of(message: StoredMessage, dialects: Sequence[Dialect]) -> int | None:
    """Return when a schedule or a generated message expires (ns since the Unix epoch); None if it never does.

    A schedule is one in the dialects that are served, valid or not; a generated message counts in either.
    """
    lifetime = lifetime_of(message.block)
    if lifetime is None:
        return None
    is_ours = any(header_value(message.block, d.schedule) for d in dialects) or read_generated(message.block)
    return message.stored_at + lifetime if is_ours else None


def lifetime_of(block: bytes) -> int | None:
    """Return the lifetime (ns) that a message's headers ask for; None if there is none, or it never ends."""
    if block.find(TTL) < 0:
        return None
    text = header_value(block, TTL)
    return _lifetime(text) if text else None


@lru_cache(maxsize=256)
def _lifetime(text: bytes) -> int | None:
    """Read a TTL; cached because the schedules of a stream share a few."""
    seconds = parse_ttl(text.decode("utf-8", "surrogateescape"))
    return None if isinstance(seconds, Invalid) or seconds <= 0 else seconds * SECOND
