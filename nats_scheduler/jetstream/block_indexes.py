"""The indexes of a stream's blocks, which a server may have to read if it purges a subject there.

A server keeps, for each block of a stream, which subjects have messages in it, and discards that after two minutes
without use. A purge of a subject needs it of every block, and has it read again from the messages: 0.35 s for a
million of them that the system has in memory, more than a minute for ten million from disk. Meanwhile the stream
is stopped, and all that is due waits. To delete a message by its sequence needs one block.

The rule: a long stream is purged only if that was done a moment ago, or if enough purges come: then reading the
indexes once costs less than to look at, and to delete, each of them. A very long one is purged only where a
deletion would not do the same.
"""

LONG_STREAM = 200_000
"""A stream with fewer messages is purged at any time: its indexes are read in less than a tenth of a second."""

VERY_LONG_STREAM = 3_000_000
"""A stream with more messages is not purged: what the server reads may not be in memory, which takes it a minute."""

KEPT_SECONDS = 60.0
"""For this time after a purge the server certainly knows its indexes; it keeps them for two minutes."""

SHARE_FOR_EACH = 200
"""A purge costs less if more than one in this number of messages goes in `KEPT_SECONDS`.

Two looks and a deletion take some 70 µs more than a purge, and an index 0.35 µs for each message.
"""


def may_be_long(sequence: int) -> bool:
    """Return whether a stream that has a sequence may be long."""
    return sequence >= LONG_STREAM


class BlockIndexes:
    """The state of the block indexes of one stream, as far as it is known."""

    def __init__(self) -> None:
        """Know nothing yet."""
        self._known_until = 0.0
        self._messages: int | None = None
        self._counted_until = 0.0
        self._count = 0

    def are_unread(self, sequence: int, now: float) -> bool:
        """Return whether a purge at `now` (s, of the loop's clock) would have them read, and is to be avoided.

        `sequence` is one of the stream: it has no more messages than that, as far as is known. Each call counts as one
        that is to be removed.
        """
        if not may_be_long(sequence) or now < self._known_until:
            return False
        if now >= self._counted_until:
            self._counted_until, self._count = now + KEPT_SECONDS, 0
        self._count += 1
        messages = sequence if self._messages is None else self._messages
        if messages > VERY_LONG_STREAM:
            return True
        most = messages // SHARE_FOR_EACH if messages >= LONG_STREAM else 0
        return self._count <= max(most, 1)  # it may have become longer since

    def note_read(self, now: float) -> None:
        """Note that a subject is purged at `now`."""
        self._known_until = now + KEPT_SECONDS

    def note_length(self, messages: int, now: float) -> None:
        """Note how many messages the stream has at `now`."""
        self._messages = messages
        if messages < LONG_STREAM:
            self.note_read(now)
