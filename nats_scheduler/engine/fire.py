"""A fire that is ready to be sent, with the same bytes each time it is repeated, and its outcome."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(slots=True, eq=False)
class Fire:
    """One publish of one schedule for one fire time. Two fires are equal only when they are the same object."""

    is_elsewhere: ClassVar[bool] = False
    """Whether its target is in another stream than its schedule."""
    schedule: str
    sequence: int
    """Stream sequence of the schedule message that it came from."""
    fire_time: int
    """Nanoseconds since the Unix epoch."""
    next_fire: int | None
    """When the schedule fires next, None if it ends with this fire."""
    target: str
    block: bytes
    """The complete header block, identity and guard included; empty, as is the body, once it is known to be stored."""
    body: bytes
    schedule_stored_at: int = 0
    """When (ns) the schedule message was stored."""
    last: int = 0
    """Sequence of the last message on the schedule's subject when it was built: its own, or what landed."""
    stored_as: int = 0
    """Stream sequence under which it is stored, once that is known."""
    stored_at: int = 0
    """When (ns) it was stored: the time in the stream, or the instant of the acknowledgement if that is all we know."""
    delay: int = 0
    """How long (ns) after its fire time it is sent."""
    taken: int = 0
    """The number in its identity, 0 for the first one (`message.identity`)."""
    is_to_roll_up: bool = False
    """Whether the messages before it on its target are to be purged once it is stored."""
    was_stored_before: bool = False
    """Whether the acknowledgement called it a duplicate: the server had stored it before."""


@dataclass(slots=True, eq=False)
class FireElsewhere(Fire):
    """A fire whose target is in another stream: what it is stored as is a sequence of that stream."""

    is_elsewhere: ClassVar[bool] = True
