"""The messages of a stream whose headers look like those of a schedule: reported once, and listed.

The rule: a message is reported when it is read, or, if it was stored before, when this instance gains its shard; one
that another message covers is not. Cost: a truth test for each message while there is none, and memory for up to
`MAX_MISNAMED_NOTED` of them.
"""

from collections.abc import Callable, Sequence
from itertools import islice

from nats_scheduler.engine.actions import Action, Report
from nats_scheduler.engine.events import HeadersMisnamed
from nats_scheduler.engine.shards import shard_of
from nats_scheduler.message.misnamed import Misnamed
from nats_scheduler.message.stored import StoredMessage

MAX_MISNAMED_NOTED = 10_000
"""Most messages that are noted; beyond that the oldest is discarded."""

MAX_MISNAMED_REPORTS = 100
"""Most reports when shards are gained, of messages that were stored before: the log would drop further lines."""


class Misnaming:
    """The misnamed headers of one stream's messages."""

    def __init__(self, emit: Callable[[Action], None]) -> None:
        self._emit = emit
        self.noted: dict[str, HeadersMisnamed] = {}
        """The last messages on their subjects whose headers are misnamed, by subject."""

    def covered(self, message: StoredMessage) -> None:
        """Discard the note of an earlier message on the same subject."""
        known = self.noted.get(message.subject)
        if known is not None and known.sequence < message.sequence:
            del self.noted[message.subject]

    def gone(self, subject: str, sequence: int) -> None:
        """Discard the note of a message that is not stored any more."""
        known = self.noted.get(subject)
        if known is not None and known.sequence == sequence:
            del self.noted[subject]

    def found(self, message: StoredMessage, headers: Sequence[Misnamed], *, is_reported: bool) -> None:
        """Note a message, and report it now if `is_reported`."""
        known = self.noted.get(message.subject)
        if known is not None and known.sequence >= message.sequence:
            return
        event = HeadersMisnamed(message.subject, message.sequence, message.stored_at, tuple(headers))
        self.noted[message.subject] = event
        if len(self.noted) > MAX_MISNAMED_NOTED:
            del self.noted[next(iter(self.noted))]
        if is_reported:
            self._emit(Report(event))

    def report(self, shards: frozenset[int]) -> None:
        """Report the messages noted in these shards."""
        ours = (event for event in self.noted.values() if shard_of(event.subject) in shards)
        for event in islice(ours, MAX_MISNAMED_REPORTS):
            self._emit(Report(event))
