"""Spread: how much later the fire times of a schedule with `X-Spread` are than those of its pattern.

The rules:

- The offset follows from the subject of the schedule and the spread alone. So it stays over edits, restarts, instances
  and machines, and the distances between the fire times of a schedule stay what its pattern says.
- It is a part of the spread, in whole milliseconds: at least 0, and less than the spread.
- The fire times themselves move (`schedule.bounds`), so each time that is shown, stored or asked for is the one at
  which a fire comes. A jitter, which delays what is sent, is added to that (`message.jitter`).

Limit: of a schedule that is only asked about and has no subject, the offset is not known, and 0.
"""

from hashlib import blake2b

from nats_scheduler.message.headers import encoded
from nats_scheduler.schedule.instants import MILLISECOND

NO_SUBJECT = "nats-scheduler.check"
"""It stands for the subject of a schedule that is only asked about and has none."""


def hashed_part(name: str, span: int) -> int:
    """Return a part of a span that follows from a name: at least 0, and less than `span`, unless that is 0.

    It is the BLAKE2b hash of the name (8 bytes, as a big-endian number), divided by 2 to the power of 64, of the span.
    """
    return int.from_bytes(blake2b(encoded(name), digest_size=8).digest(), "big") * span >> 64


def offset_of(subject: str, spread: int | None) -> int:
    """Return the offset (ns) of a schedule on a subject; 0 without a spread (ns), or for `NO_SUBJECT`."""
    if spread is None or subject == NO_SUBJECT:
        return 0
    return hashed_part(subject, spread // MILLISECOND) * MILLISECOND
