"""A consumer of a stream in memory, as far as the sidecar sees it: what it has acknowledged.

The rule: `acknowledged_through` is the acknowledgement floor of a server: everything up to it that the consumer
receives and that is still stored is acknowledged.

Cost: a look at each stored message above the floor. Limit: it delivers nothing; a test says what it acknowledges.
"""

from typing import TYPE_CHECKING

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.subjects import subject_matches

if TYPE_CHECKING:
    from nats_scheduler.testing.memory_stream import MemoryStream


class MemoryConsumer:
    """One consumer with explicit acknowledgements."""

    def __init__(self, stream: "MemoryStream", matching: str = ">") -> None:
        """Receive what is stored on the subjects that match, from the first message on."""
        self._stream = stream
        self.matching = matching
        self._acknowledged: set[int] = set()

    def acknowledge(self, sequence: int) -> None:
        """Acknowledge one message."""
        self._acknowledged.add(sequence)

    def acknowledge_all(self) -> None:
        """Acknowledge everything that is stored and that it receives."""
        self._acknowledged.update(message.sequence for message in self.unacknowledged())

    def unacknowledged(self) -> list[StoredMessage]:
        """Return what is stored, received and not acknowledged."""
        received = self._stream.messages(self.matching)
        return [message for message in received if message.sequence not in self._acknowledged]

    def receives(self, subject: str) -> bool:
        """Return whether it receives what is stored on a subject; `>` stands for any."""
        return subject == ">" or subject_matches(subject, self.matching)

    @property
    def first_unacknowledged(self) -> int:
        """The sequence of the first message that it has to acknowledge, 0 if there is none."""
        return next((message.sequence for message in self.unacknowledged()), 0)
