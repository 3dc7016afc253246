"""Messages as the stream has stored them: the one type in which all parts of the package receive messages, and runs.

The rule: nothing is decoded.
Headers remain the block of bytes that the publisher sent, because a generated message must repeat them byte for byte.
"""

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import repeat
from typing import NamedTuple, Self, overload
from zlib import crc32

NAME_PART_LOWER, NAME_PART_UPPER = b"hedul", b"HEDUL"
"""Every header of a schedule, and every header that looks like one, contains one of these; few other messages do."""


class StoredMessage(NamedTuple):
    """One stored message.

    A tuple and not a dataclass: a million of them are read at start, and a tuple is created in a third of the time.
    """

    subject: str
    sequence: int
    """Stream sequence, from 1."""
    stored_at: int
    """The instant at which the server stored it: nanoseconds since the Unix epoch."""
    block: bytes
    """The raw header block, `b""` if the message has none."""
    body: bytes | None
    """The body, or None if only the headers were read."""


# What is known of a body, in four bytes, so that a million can be kept: its size, and a checksum if it was read.
#
# Bodies with different marks are different, unless one of the marks has no checksum. Of a million pairs of different
# bodies of one size, one has equal marks; so have bodies without a checksum whose sizes differ by a multiple of 4 KiB.

MAX_FOLLOWED_BODY_BYTES = 16 * 1024
"""Largest body that is received only to compare it."""

_SIZE_BITS = 12
_SIZE = (1 << _SIZE_BITS) - 1
_CHECKSUMS = (1 << 32 - _SIZE_BITS) - 1
_MESSAGE_SIZE = b"\r\nNats-Msg-Size: "


def size_named(block: bytes) -> int:
    """Return the size of the body (bytes), which the server writes behind the headers of a message without its body."""
    _before, _name, behind = block.rpartition(_MESSAGE_SIZE)
    digits = behind.partition(b"\r")[0]
    return int(digits) if digits.isdigit() and len(digits) <= 10 else 0


def body_mark(message: StoredMessage, size: int | None = None) -> int:
    """Return what is known of the body of a message, from 0 (nothing) to less than 2 to the power of 32.

    `size` is that of the body (bytes), if the caller knows it.
    """
    body = message.body
    if body is None:
        return (size_named(message.block) if size is None else size) & _SIZE
    return crc32(body) % _CHECKSUMS + 1 << _SIZE_BITS | len(body) & _SIZE


def is_other_body(one: int, other: int) -> bool | None:
    """Return whether two marks are those of different bodies; None if that is not known."""
    if not one or not other:
        return None
    if (one ^ other) & _SIZE:
        return True
    return one != other if one >> _SIZE_BITS and other >> _SIZE_BITS else None


# Messages that were read together: their subjects, sequences, times and blocks, each in a sequence of its own.
#
# Of a stream with a million ordinary messages nearly every run has no message that means something to the scheduler.
# That is found for all of its messages at once, and then none of them is made an object.
#
# The rule: a run is the sequence of its messages, and is read like any other one.
# Cost: two searches through all blocks to find that they are ordinary, 0.05 µs a message; 0.25 µs for each that is
# made. Limit: a message has no body.

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

    def __iter__(self) -> Iterator[StoredMessage]:
        """Make the messages one by one."""
        sequences, times = map(int, self._sequences), map(int, self._times)
        return map(_message, zip(self.subjects, sequences, times, self.blocks, repeat(None)))

    @overload
    def __getitem__(self, index: int) -> StoredMessage: ...

    @overload
    def __getitem__(self, index: slice) -> list[StoredMessage]: ...

    def __getitem__(self, index: int | slice) -> StoredMessage | list[StoredMessage]:
        """Make one message, or some."""
        if isinstance(index, slice):
            return list(self)[index]
        return StoredMessage(
            self.subjects[index], int(self._sequences[index]), int(self._times[index]), self.blocks[index], None
        )
