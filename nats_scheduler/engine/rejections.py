"""The subjects whose last message is a rejected schedule, and why.

The rule: a rejection is reported once, by the holder of its shard, when everything stored has been read.
"""

from collections.abc import Callable

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import ScheduleRejected
from nats_scheduler.engine.ownership import Ownership
from nats_scheduler.message.rejection import Rejection


class Rejections:
    """The rejected schedules of one stream."""

    def __init__(self, ownership: Ownership, emit: Callable[[Action], None]) -> None:
        self._ownership = ownership
        self._emit = emit
        self.by_subject: dict[str, tuple[int, Rejection]] = {}
        """The sequence of the message, and the reason."""

    def at(self, subject: str) -> int:
        """Return the sequence of the rejected message on a subject, 0 if there is none."""
        return self.by_subject[subject][0] if subject in self.by_subject else 0

    def add(self, subject: str, sequence: int, rejection: Rejection, *, is_live: bool) -> None:
        """Keep a rejection, and report it if it is ours and the engine `is_live`."""
        kept = rejection.shortened()
        self.by_subject[subject] = sequence, kept
        if is_live and self._ownership.is_ours_on(subject):
            self._emit(Report(ScheduleRejected(subject, sequence, kept)))

    def discard(self, subject: str) -> int:
        """Keep no rejection on a subject; returns the sequence of the one that was kept, 0 if there was none."""
        return self.by_subject.pop(subject, (0, None))[0]
