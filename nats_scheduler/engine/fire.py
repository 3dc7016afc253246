"""A fire, ready to be sent: the same bytes however often it is repeated, and what became of it."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Fire:
    """One publish of one schedule for one fire time. Two fires are equal only when they are the same object."""

    schedule: str
    sequence: int
    """Stream sequence of the schedule message that it came from."""
    fire_time: int
    """Nanoseconds since the Unix epoch."""
    next_fire: int | None
    """When the schedule fires next, None where it ends with this fire."""
    target: str
    block: bytes
    """The complete header block, identity and guard included; empty, as is the body, once it is known to be stored."""
    body: bytes
    schedule_stored_at: int = 0
    """When (ns) the schedule message was stored."""
    stored_as: int = 0
    """Stream sequence under which it is stored, once that is known."""
    stored_at: int = 0
    """When (ns) it was stored, as far as that is known: when it was acknowledged, or what the stream says."""
    was_stored_before: bool = False
    """The server had it already when it was acknowledged."""
