"""What is kept of a message that is rejected as a schedule, active or paused.

The rule: its texts are cut, since a stream may hold a million of them.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from nats_scheduler.engine.held import Held
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import decoded, header_value
from nats_scheduler.message.paused import paused_pattern
from nats_scheduler.message.rejection import MAX_KEPT_CHARS, Rejection
from nats_scheduler.message.stored import StoredMessage

IF_RESUMED = "; it is paused, and would be rejected if it was resumed"
"""What follows the reason for which a paused schedule is rejected."""


class Rejected(NamedTuple):
    """A message that is rejected as a schedule; its texts are as they were written, up to `MAX_KEPT_CHARS`."""

    subject: str
    sequence: int
    rejection: Rejection
    stored_at: int
    """When (ns) the message was stored."""
    dialect: Dialect
    pattern: str
    target: str
    is_paused: bool = False
    """Whether it is paused: it is rejected for what it would be if it was resumed."""


def rejected_message(message: StoredMessage, rejection: Rejection, dialects: Sequence[Dialect]) -> Rejected:
    """Return what is kept of a rejected message; its dialect is the first one with a pattern, or with any header."""
    block = message.block
    written = [d for d in dialects if header_value(block, d.schedule)]
    others = (d for d in dialects if any(header_value(block, name) is not None for name in d.names))
    dialect = written[0] if written else next(others, dialects[0])
    pattern, target = (decoded(header_value(block, name) or b"") for name in (dialect.schedule, dialect.target))
    return _kept(message, rejection, dialect, pattern, target)


def rejected_paused(message: StoredMessage, rejection: Rejection, dialect: Dialect) -> Rejected:
    """Return what is kept of a paused schedule that would be rejected if it was resumed, and says so in its reason."""
    rejection = replace(rejection, reason=rejection.reason[: MAX_KEPT_CHARS - len(IF_RESUMED)] + IF_RESUMED)
    target = decoded(header_value(message.block, dialect.target) or b"")
    kept = _kept(message, rejection, dialect, paused_pattern(message.block, dialect), target)
    return kept._replace(is_paused=True)


def rejected_schedule(held: Held, rejection: Rejection) -> Rejected:
    """Return what is kept of a schedule that is valid, and rejected because the operator limits their number."""
    terms = held.terms
    return _kept(held, rejection, terms.dialect, held.pattern.text, terms.target)


def _kept(of: StoredMessage | Held, rejection: Rejection, dialect: Dialect, pattern: str, target: str) -> Rejected:
    texts = pattern[:MAX_KEPT_CHARS], target[:MAX_KEPT_CHARS]
    return Rejected(of.subject, of.sequence, rejection.shortened(), of.stored_at, dialect, *texts)
