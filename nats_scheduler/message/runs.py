"""Messages that were read together: their subjects, sequences, times and blocks, each in a sequence of its own.

Of a stream with a million ordinary messages nearly every run has no message that means something to the scheduler.
That is found for all of its messages at once, and then none of them is made an object.

A run is the sequence of its messages, and is read like any other one. Its messages have no bodies.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import repeat
from typing import Self, overload

from nats_scheduler.message.stored import NAME_PART_LOWER, NAME_PART_UPPER, StoredMessage

_message = partial(tuple.__new__, StoredMessage)
"""Makes a message from a tuple of its fields, in half the time of a call of `StoredMessage`."""


class MessageRun(Sequence[StoredMessage]):
    """Messages in the order of their stream, at least one."""

    def __init__(
        self, subjects: Sequence[str], sequences: Sequence[bytes], times: Sequence[bytes], blocks: Sequence[bytes]
    ) -> None:
        """Take the fields of the messages; `sequences` and `times` are decimal digits."""
        self.subjects = subjects
        self._sequences = sequences
        self._times = times
        self.blocks = blocks
        """Their header blocks."""

    @classmethod
    def of(cls, messages: Sequence[StoredMessage]) -> Self:
        """Return the run of messages of which only the headers were read."""
        assert all(message.body is None for message in messages), "a message of a run has no body"
        subjects, sequences, times, blocks, _bodies = zip(*messages, strict=True)
        return cls(subjects, [b"%d" % number for number in sequences], [b"%d" % time for time in times], blocks)

    @cached_property
    def is_ordinary(self) -> bool:
        """True if no message means anything to the scheduler, except that it may replace a schedule on its subject."""
        blocks = b"".join(self.blocks)
        return blocks.find(NAME_PART_LOWER) < 0 and blocks.find(NAME_PART_UPPER) < 0

    def __len__(self) -> int:
        """Return how many messages there are."""
        return len(self.subjects)

    @property
    def sequences(self) -> Iterator[int]:
        """Their sequences in the stream."""
        return map(int, self._sequences)

    @property
    def times(self) -> Iterator[int]:
        """The instants (ns) at which they were stored."""
        return map(int, self._times)

    def __iter__(self) -> Iterator[StoredMessage]:
        """Make the messages one by one."""
        return map(_message, zip(self.subjects, self.sequences, self.times, self.blocks, repeat(None)))

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...

    @overload
    def __getitem__(self, index: slice) -> "MessageRun": ...

    def __getitem__(self, index: int | slice) -> "StoredMessage | MessageRun":
        """Make one message, or a run of some."""
        if isinstance(index, slice):
            return MessageRun(self.subjects[index], self._sequences[index], self._times[index], self.blocks[index])
        return StoredMessage(
            self.subjects[index], int(self._sequences[index]), int(self._times[index]), self.blocks[index], None
        )
