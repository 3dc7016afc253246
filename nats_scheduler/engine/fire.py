"""A fire, ready to be sent: the same bytes however often it is repeated."""

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
    """The complete header block, identity and guard included."""
    body: bytes
