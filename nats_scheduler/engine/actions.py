"""What the engine wants done: imperatives. The shell carries them out in order and answers each with an input."""

from collections.abc import Sequence
from typing import NamedTuple

from nats_scheduler.engine.events import Event
from nats_scheduler.engine.finish import CheckFinished
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import Version


class ReadContent(NamedTuple):
    """Read the last message on the schedule's subject and on `source`; answer `ContentRead` or `ContentUnread`."""

    schedule: str
    sequence: int
    source: str | None
    by_sequence: bool = False
    """The message with the sequence is enough, even if newer ones follow it: the guard checks again at the publish."""
    above: int = 0
    """If it is not 0, something landed on the subject, and what is stored there is known up to this sequence. Then read
    the message with the schedule's sequence, and the first message on the subject above this one."""
    may_wait: bool = False
    """Its fire is not due for a second or more: it may be read together with what is asked for a little later."""


class PublishFires(NamedTuple):
    """Publish in this order, and answer for each exactly once: `PublishConcluded`, or `FiresStored` for several.

    It is the first action of a step.
    """

    fires: Sequence[Fire]


class ReadDuplicate(NamedTuple):
    """Read the message with this sequence, under which the server reports that a fire is stored already.

    Answer `DuplicateRead` or `DuplicateUnread`.
    """

    fire: Fire
    sequence: int
    stream: str = ""
    """The stream that it is in; "" for the one of the schedule."""


class AwaitProposals(NamedTuple):
    """Wait until the leader of the stream has applied all that it has accepted before it receives this request.

    Answer `ProposalsApplied` or `ProposalsUnconfirmed`. Nothing in the stream changes by it.
    """

    fire: Fire


class LookForFire(NamedTuple):
    """Read whether the stream with the target of a fire, another one than its schedule's, has that fire.

    Answer `FireLookedFor` with the generated messages on the target that name this version of the schedule, and the
    fire time or a later one; or answer `FireNotLookedFor`. Messages that were stored more than
    `MAX_CLOCK_DIFFERENCE_NS` before `since` (ns) do not matter.
    """

    fire: Fire
    since: int
    first: int
    """The answer may contain older fires too, from this fire time (ns) on, as far as they are found without effort."""
    was_sent: bool = False
    """Whether this instance sent the fire before. If not, the answer may be what the stream held a second ago."""


class PurgeSchedule(NamedTuple):
    """Remove the messages on the schedule's subject up to sequence `through`, inclusive.

    Answer `PurgeConcluded`, or `SchedulesPurged` for several.
    With `stored_at` (ns), do it only if the message with sequence `through` was stored then: it had been removed and is
    back. If the subject cannot be written into a request, remove only `known`, one of these messages, or nothing
    without it.
    """

    schedule: str
    through: int
    stored_at: int | None = None
    known: Version | None = None


class RemoveExpired(NamedTuple):
    """Remove the message with this sequence if its TTL has run out by the instant `by` (ns); answer `ExpiryConcluded`.

    Read the message first: sequences begin again in a stream that was deleted and created again.
    """

    sequence: int
    by: int


class WakeAt(NamedTuple):
    """Step again at this instant (ns since the Unix epoch) at the latest. It replaces the last one."""

    instant: int


class Report(NamedTuple):
    """Report an event to the operator."""

    event: Event


Action = (
    ReadContent
    | ReadDuplicate
    | AwaitProposals
    | LookForFire
    | CheckFinished
    | PublishFires
    | PurgeSchedule
    | RemoveExpired
    | WakeAt
    | Report
)
