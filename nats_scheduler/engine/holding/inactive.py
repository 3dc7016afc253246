"""The subjects whose last message is no schedule that fires: it is rejected, paused, or its headers are misnamed.

The rules:

- There is at most one on a subject: the message that was stored last. What is held on a subject is not here.
- A rejection is reported once, by the owner of the stream, when everything stored has been read.
- What is removed is discarded a moment after it is known (`engine.receiving.admission`).
- A message whose headers look like those of a schedule is reported once: when it is read, or, if it was stored before,
  when this instance becomes the owner; one that another message covers is not.

Cost: two look-ups for a question; some hundred bytes for each rejected or paused schedule, and for up to
`MAX_MISNAMED_NOTED` misnamed messages.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import HeadersMisnamed, ScheduleRejected
from nats_scheduler.engine.holding.held import Held
from nats_scheduler.engine.holding.lifetimes import PausedSchedule
from nats_scheduler.engine.holding.ownership import Ownership
from nats_scheduler.engine.holding.progress import Progress
from nats_scheduler.message.dialect import Dialect
from nats_scheduler.message.headers import decoded, header_value
from nats_scheduler.message.misnamed import Misnamed
from nats_scheduler.message.paused import paused_name, paused_pattern
from nats_scheduler.message.rejection import FAILED, MAX_KEPT_CHARS, Rejection
from nats_scheduler.message.stored import StoredMessage

IF_RESUMED = "; it is paused, and would be rejected if it was resumed"
"""The text after the reason for which a paused schedule is rejected."""


class Rejected(NamedTuple):
    """A message that is rejected as a schedule, active or paused.

    Its texts are as they were written, up to `MAX_KEPT_CHARS`: a stream may hold a million of them.
    """

    subject: str
    sequence: int
    rejection: Rejection
    stored_at: int
    """The instant (ns) at which the message was stored."""
    dialect: Dialect
    pattern: str
    target: str
    is_paused: bool = False
    """True if it is paused: it is rejected for what it would be if it was resumed."""


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


def failed(stored: Held | StoredMessage, error: str, dialects: Sequence[Dialect]) -> Rejected | None:
    """Return what is kept of a schedule that made the engine fail; None for a message that has none of its headers."""
    reason = f"made nats-scheduler fail, and is not used until it is stored again or the sidecar starts anew: {error}"
    if isinstance(stored, Held):
        name, value = stored.terms.dialect.schedule, stored.pattern.text
        return rejected_schedule(stored, FAILED.rejection(decoded(name), value, reason))
    names = [one.schedule for one in dialects] + [paused_name(one) for one in dialects]
    name = next((name for name in names if header_value(stored.block, name)), b"")
    if not name:
        return None
    value = decoded(header_value(stored.block, name) or b"")
    return rejected_message(stored, FAILED.rejection(decoded(name), value, reason), dialects)


def _kept(of: StoredMessage | Held, rejection: Rejection, dialect: Dialect, pattern: str, target: str) -> Rejected:
    texts = pattern[:MAX_KEPT_CHARS], target[:MAX_KEPT_CHARS]
    return Rejected(of.subject, of.sequence, rejection.shortened(), of.stored_at, dialect, *texts)


MAX_MISNAMED_NOTED = 10_000
"""Most messages that are noted; beyond that the oldest is discarded."""

MAX_MISNAMED_REPORTS = 100
"""Most reports at a takeover, of messages that were stored before: the log would drop further lines."""


class Inactive:
    """The rejected and paused schedules of one stream, and its messages with misnamed headers."""

    def __init__(self, progress: Progress, ownership: Ownership, emit: Callable[[Action], object]) -> None:
        self._progress = progress
        self._ownership = ownership
        self._emit = emit
        self.rejected: dict[str, Rejected] = {}
        """By subject, as are `paused` and `misnamed`."""
        self.paused: dict[str, PausedSchedule] = {}
        self.misnamed: dict[str, HeadersMisnamed] = {}
        """The last messages on their subjects whose headers look like those of a schedule and are none."""

    def __bool__(self) -> bool:
        """Return whether there is any."""
        return bool(self.rejected or self.paused)

    def on(self, subject: str) -> Rejected | PausedSchedule | None:
        """Return what is rejected or paused on a subject."""
        return self.rejected.get(subject) or self.paused.get(subject)

    def at(self, subject: str) -> int:
        """Return the sequence of what is rejected or paused on a subject, 0 if there is nothing."""
        if not self.rejected and not self.paused:
            return 0
        known = self.on(subject)
        return 0 if known is None else known.sequence

    def reject(self, rejected: Rejected) -> None:
        """Keep a rejection, and report it if it is ours and everything stored has been read."""
        self.rejected[rejected.subject] = rejected
        if self._progress.is_live and self._ownership.is_owner:
            self.report(rejected)

    def report(self, rejected: Rejected) -> None:
        """Report a rejection."""
        self._emit(Report(ScheduleRejected(rejected.subject, rejected.sequence, rejected.rejection)))

    def pause(self, paused: PausedSchedule) -> None:
        """Keep a paused schedule."""
        self.paused[paused.subject] = paused

    def discard(self, subject: str) -> Rejected | PausedSchedule | None:
        """Keep nothing on a subject; returns what was there."""
        if not self.rejected and not self.paused:
            return None
        return self.rejected.pop(subject, None) or self.paused.pop(subject, None)

    # -- messages whose headers look like those of a schedule ----------------------------------------------------------

    def covers_misnamed(self, message: StoredMessage) -> None:
        """Discard the note of an earlier message on the same subject."""
        known = self.misnamed.get(message.subject)
        if known is not None and known.sequence < message.sequence:
            del self.misnamed[message.subject]

    def misnamed_gone(self, subject: str, sequence: int) -> None:
        """Discard the note of a message that is not stored any more."""
        known = self.misnamed.get(subject)
        if known is not None and known.sequence == sequence:
            del self.misnamed[subject]

    def found_misnamed(self, message: StoredMessage, headers: Sequence[Misnamed], *, is_reported: bool) -> None:
        """Note a message, and report it now if `is_reported`."""
        known = self.misnamed.get(message.subject)
        if known is not None and known.sequence >= message.sequence:
            return
        event = HeadersMisnamed(message.subject, message.sequence, message.stored_at, tuple(headers))
        self.misnamed[message.subject] = event
        if len(self.misnamed) > MAX_MISNAMED_NOTED:
            del self.misnamed[next(iter(self.misnamed))]
        if is_reported:
            self._emit(Report(event))

    def report_misnamed(self) -> None:
        """Report the messages that are noted."""
        for event in islice(self.misnamed.values(), MAX_MISNAMED_REPORTS):
            self._emit(Report(event))
