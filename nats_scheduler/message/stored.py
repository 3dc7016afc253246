"""A message as the stream holds it: the one shape in which every room receives messages.

Its one rule: nothing is decoded.
Headers stay the block of bytes that the publisher sent, because a generated message must repeat them byte for byte.
"""

from typing import NamedTuple


class StoredMessage(NamedTuple):
    """One stored message.

    A tuple and not a dataclass: a million of them pass through at start, and a tuple is built in a third of the time.
    """

    subject: str
    sequence: int
    """Stream sequence, from 1."""
    stored_at: int
    """When the server stored it: nanoseconds since the Unix epoch."""
    block: bytes
    """The raw header block, `b""` where the message has none."""
    body: bytes | None
    """The body, or None if only the headers were read."""
