"""What the engine wants done: imperatives. The shell carries them out in order and answers each with an input."""

from dataclasses import dataclass

from nats_scheduler.engine.events import Event
from nats_scheduler.engine.fire import Fire


@dataclass(frozen=True, slots=True)
class ReadContent:
    """Read the last message on the schedule's subject and on `source`; answer `ContentRead` or `ContentUnread`."""

    schedule: str
    sequence: int
    source: str | None


@dataclass(frozen=True, slots=True)
class PublishFire:
    """Publish, and answer `PublishConcluded` exactly once."""

    fire: Fire


@dataclass(frozen=True, slots=True)
class PurgeSchedule:
    """Remove the messages on the schedule's subject up to sequence `through`, inclusive; answer `PurgeConcluded`."""

    schedule: str
    through: int


@dataclass(frozen=True, slots=True)
class RemoveExpired:
    """Remove the message with this sequence if its TTL has run out by the instant `by` (ns); answer `ExpiryConcluded`.

    The message is looked at first: sequences begin anew in a stream that was deleted and made again.
    """

    sequence: int
    by: int


@dataclass(frozen=True, slots=True)
class WakeAt:
    """Step again at this instant (ns since the Unix epoch) at the latest. Replaces the one before."""

    instant: int


@dataclass(frozen=True, slots=True)
class Report:
    """Tell the operator."""

    event: Event


Action = ReadContent | PublishFire | PurgeSchedule | RemoveExpired | WakeAt | Report
