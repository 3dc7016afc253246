"""Messages as the stream has stored them: the one type in which all parts of the package receive messages.

The rule: nothing is decoded.
Headers remain the block of bytes that the publisher sent, because a generated message must repeat them byte for byte.
Of bodies that are not kept, a mark of four bytes says whether two of them differ.
"""

from typing import NamedTuple
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


def size_mark(size: int) -> int:
    """Return the mark of a body that was not read and has this size (bytes); see `body_mark`."""
    return size & _SIZE


def body_mark(message: StoredMessage, size: int | None = None) -> int:
    """Return what is known of the body of a message, from 0 (nothing) to less than 2 to the power of 32.

    It is the size and, if the body was read, a checksum: four bytes, so that a million can be kept. `size` is that of
    the body (bytes), if the caller knows it.

    Bodies with different marks are different, unless one of the marks has no checksum. Of a million pairs of different
    bodies of one size, one has equal marks; so have bodies without a checksum whose sizes differ by a multiple of
    4 KiB.
    """
    body = message.body
    if body is None:
        return size_mark(size_named(message.block) if size is None else size)
    return crc32(body) % _CHECKSUMS + 1 << _SIZE_BITS | len(body) & _SIZE


def is_other_body(one: int, other: int) -> bool | None:
    """Return whether two marks are those of different bodies; None if that is not known."""
    if not one or not other:
        return None
    if (one ^ other) & _SIZE:
        return True
    return one != other if one >> _SIZE_BITS and other >> _SIZE_BITS else None
