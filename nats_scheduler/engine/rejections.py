"""The subjects whose last message is a rejected schedule, and why.

The rule: a rejection is reported once, by the holder of its shard, when everything stored has been read.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import ScheduleRejected
from nats_scheduler.engine.held import Held
from nats_scheduler.engine.ownership import Ownership
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import decoded, header_value
from nats_scheduler.message.rejection import MAX_KEPT_CHARS, Rejection
from nats_scheduler.message.stored import StoredMessage


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


def rejected_message(message: StoredMessage, rejection: Rejection, dialects: Sequence[Dialect]) -> Rejected:
    """Return what is kept of a rejected message; its dialect is the first one with a pattern, or with any header."""
    block = message.block
    written = [d for d in dialects if header_value(block, d.schedule)]
    others = (d for d in dialects if any(header_value(block, name) is not None for name in d.names))
    dialect = written[0] if written else next(others, dialects[0])
    pattern, target = (decoded(header_value(block, name) or b"") for name in (dialect.schedule, dialect.target))
    return _kept(message, rejection, dialect, pattern, target)


def rejected_schedule(held: Held, rejection: Rejection) -> Rejected:
    """Return what is kept of a schedule that is valid, and rejected because the operator limits their number."""
    terms = held.terms
    return _kept(held, rejection, terms.dialect, held.pattern.text, terms.target)


def _kept(of: StoredMessage | Held, rejection: Rejection, dialect: Dialect, pattern: str, target: str) -> Rejected:
    texts = pattern[:MAX_KEPT_CHARS], target[:MAX_KEPT_CHARS]
    return Rejected(of.subject, of.sequence, rejection.shortened(), of.stored_at, dialect, *texts)


class Rejections:
    """The rejected schedules of one stream."""

    def __init__(self, ownership: Ownership, emit: Callable[[Action], None]) -> None:
        self._ownership = ownership
        self._emit = emit
        self.by_subject: dict[str, Rejected] = {}

    def at(self, subject: str) -> int:
        """Return the sequence of the rejected message on a subject, 0 if there is none."""
        return self.by_subject[subject].sequence if subject in self.by_subject else 0

    def add(self, rejected: Rejected, *, is_live: bool) -> None:
        """Keep a rejection, and report it if it is ours and the engine `is_live`."""
        self.by_subject[rejected.subject] = rejected
        if is_live and self._ownership.is_ours_on(rejected.subject):
            self.report(rejected)

    def report(self, rejected: Rejected) -> None:
        """Report a rejection."""
        self._emit(Report(ScheduleRejected(rejected.subject, rejected.sequence, rejected.rejection)))

    def discard(self, subject: str) -> int:
        """Keep no rejection on a subject; returns the sequence of the one that was kept, 0 if there was none."""
        rejected = self.by_subject.pop(subject, None)
        return 0 if rejected is None else rejected.sequence
