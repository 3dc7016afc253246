"""What the engine wants done: imperatives. The shell carries them out in order and answers each with an input."""

from collections.abc import Sequence
from typing import NamedTuple

from nats_scheduler.engine.events import Event
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import Version


class ReadContent(NamedTuple):
    """Read the last message on the schedule's subject and on `source`; answer `ContentRead` or `ContentUnread`."""

    schedule: str
    sequence: int
    source: str | None
    by_sequence: bool = False
    """What lies under the sequence will do, be it buried by now: a guard looks again when it is sent."""
    above: int = 0
    """Where it is not 0, something landed on the subject: what lies under the schedule's sequence is wanted, and the
    first message on the subject above this one, up to which what lies there is known."""


class PublishFires(NamedTuple):
    """Publish in this order, and answer for each exactly once: `PublishConcluded`, or `FiresStored` for several.

    What a step asks for first.
    """

    fires: Sequence[Fire]


class ReadDuplicate(NamedTuple):
    """Look at the message with this sequence, under which the server says that a fire is stored already.

    Answer `DuplicateRead` or `DuplicateUnread`.
    """

    fire: Fire
    sequence: int


class PurgeSchedule(NamedTuple):
    """Remove the messages on the schedule's subject up to sequence `through`, inclusive; answer `PurgeConcluded`.

    With `stored_at` (ns) only where the message under `through` was stored then: it had been removed, and came back.
    Where the server cannot be told the subject only `known` is removed, which is one of them, and nothing without it.
    """

    schedule: str
    through: int
    stored_at: int | None = None
    known: Version | None = None


class RemoveExpired(NamedTuple):
    """Remove the message with this sequence if its TTL has run out by the instant `by` (ns); answer `ExpiryConcluded`.

    The message is looked at first: sequences begin anew in a stream that was deleted and made again.
    """

    sequence: int
    by: int


class WakeAt(NamedTuple):
    """Step again at this instant (ns since the Unix epoch) at the latest. Replaces the one before."""

    instant: int


class Report(NamedTuple):
    """Tell the operator."""

    event: Event


Action = ReadContent | ReadDuplicate | PublishFires | PurgeSchedule | RemoveExpired | WakeAt | Report
