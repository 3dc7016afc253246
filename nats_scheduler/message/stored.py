"""A message as the stream has stored it: the one type in which all parts of the package receive messages.

The rule: nothing is decoded.
Headers remain the block of bytes that the publisher sent, because a generated message must repeat them byte for byte.
"""

from typing import NamedTuple


class StoredMessage(NamedTuple):
    """One stored message.

    A tuple and not a dataclass: a million of them are read at start, and a tuple is created in a third of the time.
    """

    subject: str
    sequence: int
    """Stream sequence, from 1."""
    stored_at: int
    """When the server stored it: nanoseconds since the Unix epoch."""
    block: bytes
    """The raw header block, `b""` if the message has none."""
    body: bytes | None
    """The body, or None if only the headers were read."""
