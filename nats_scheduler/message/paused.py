"""Paused schedules: the header of the pattern has another name, and the rest of the message is the same.

A paused schedule is a message with `Nats-Schedule-X-Paused` in place of `Nats-Schedule` (portable:
`X-Nats-Schedule-X-Paused` in place of `X-Nats-Schedule`). To servers and older sidecars it is an ordinary message, so
nothing fires it; as the last message on its subject it replaces the active schedule, and an active one replaces it.

The rules:

- Pausing and resuming rename the header and change no other byte, so resuming what was paused gives the same block.
- A message with the schedule header of a served dialect is no paused schedule, whatever other headers it has: it is
  read as a schedule, and an `X-Paused` beside it is an unknown policy (`message.policies`), which rejects it.
- A message is a paused schedule only if it would be a schedule, valid or rejected, with the right name. So an empty
  `X-Paused` is an ordinary message, as an empty `Nats-Schedule` is.
- A message that also cancels another schedule (`Nats-Scheduler`) is no paused schedule. As the server does: such a
  message leaves the schedule alive on whose subject it lands. To pause one with these headers, leave them out.

Limits: a message that is a schedule in both dialects has to be paused in both, or it is active in the other one. An
active version that stays stored below a paused one is found by a native server that builds its index anew (after a
crash, or when the flag is switched on): a pause is complete when older versions on the subject are removed.
"""

from collections.abc import Sequence
from typing import NamedTuple

from nats_scheduler.message.definition import Definition
from nats_scheduler.message.dialect import Dialect, schedule_fields
from nats_scheduler.message.headers import CRLF, decoded, header_value
from nats_scheduler.message.policies import PAUSED, extension_prefix
from nats_scheduler.message.published import read_in_dialect, with_ttl_checked
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.stream_rules import StreamRules

_SUFFIX = PAUSED.encode()


class Paused(NamedTuple):
    """A paused schedule: its dialect, and what its message would be if it was resumed."""

    dialect: Dialect
    resumed: Definition | Rejection


def paused_name(dialect: Dialect) -> bytes:
    """Return the name of the header that has the pattern of a paused schedule."""
    return extension_prefix(dialect) + b"Paused"


def paused_block(block: bytes, dialect: Dialect) -> bytes:
    """Return the block of the paused schedule: every `Nats-Schedule` is renamed, nothing else is changed.

    Every one, because any that is left could make the message an active schedule. A block without one is returned as
    it is.
    """
    return _renamed(block, dialect.schedule, paused_name(dialect))


def resumed_block(block: bytes, dialect: Dialect) -> bytes:
    """Return the block of the active schedule: the reverse of `paused_block`."""
    return _renamed(block, paused_name(dialect), dialect.schedule)


def read_paused(
    block: bytes | None, subject: str, rules: StreamRules, dialects: Sequence[Dialect], stored_at: int
) -> Paused | None:
    """Read a paused schedule; None if the message is none.

    `stored_at` (ns) is when the message was stored, or is to be stored if it is resumed now: a pattern may have fire
    times after one and none after the other. `dialects` are those that are served; the first one in which the message
    is paused counts.
    """
    if not block or not has_paused_header(block, dialects):
        return None
    if any(header_value(block, name) for dialect in dialects for name in (dialect.schedule, dialect.scheduler)):
        return None
    for dialect in dialects:
        if header_value(block, paused_name(dialect)) and (
            resumed := _read_resumed(resumed_block(block, dialect), subject, stored_at, rules, dialect)
        ):
            return Paused(dialect, resumed)
    return None


def has_paused_header(block: bytes, dialects: Sequence[Dialect]) -> bool:
    """Return whether a message has the header of a paused schedule, whatever else it has."""
    return block.find(_SUFFIX) >= 0 and any(header_value(block, paused_name(dialect)) for dialect in dialects)


def paused_pattern(block: bytes, dialect: Dialect) -> str:
    """Return the pattern of a paused schedule, as it was written."""
    return decoded(header_value(block, paused_name(dialect)) or b"")


def _read_resumed(
    block: bytes, subject: str, stored_at: int, rules: StreamRules, dialect: Dialect
) -> Definition | Rejection | None:
    """Read a message that was resumed; None if it is no schedule."""
    fields = schedule_fields(block, dialect)
    if not fields.get(dialect.schedule):
        return None
    found = with_ttl_checked(read_in_dialect(fields, block, subject, stored_at, rules, dialect), block, rules)
    return found[0] if isinstance(found, tuple) else found


def _renamed(block: bytes, name: bytes, new_name: bytes) -> bytes:
    return block.replace(CRLF + name + b":", CRLF + new_name + b":")
