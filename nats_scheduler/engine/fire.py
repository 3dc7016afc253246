"""A fire that is ready to be sent, with the same bytes each time it is repeated, and its outcome."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple


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


# The question whether the fire before is finished, which a schedule with `X-Overlap` asks before each of its fires.
#
# It is an action of the engine, and its answers name it; `engine.firing.overlap` says when it is asked.


class CheckFinished(NamedTuple):
    """Find out whether a fire of a schedule is unfinished: an action, which its answers name.

    The fires in question are stored on `target` above sequence `after`, up to `through`: the one with sequence
    `through` if that is `after + 1`, and else any. One is unfinished while it is stored, and, if a `consumer` is named,
    that consumer has not acknowledged it. Answer `FinishChecked` or `FinishUnchecked`.
    """

    schedule: str
    sequence: int
    """That of the schedule."""
    target: str
    """The subject of the fires; `>` if they may be stored on any."""
    after: int
    through: int
    consumer: str | None = None

    @property
    def names_one(self) -> bool:
        """Whether one fire is in question, and its sequence is known."""
        return self.through == self.after + 1


def consumer_missing(stream: str, consumer: str) -> str:
    """Return why a consumer that does not exist finishes nothing."""
    return f"stream {stream} has no consumer {consumer!r}"


def target_not_received(consumer: str, target: str) -> str:
    """Return why a consumer that does not receive the target finishes nothing."""
    return f"consumer {consumer!r} does not receive {target!r}"
