"""The inputs of the engine: what happened, in the past tense, each with everything that is needed to judge it.

Messages come in batches, because a million of them are read at a start, and an object for each batch costs less than
one for each message.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from nats_scheduler.engine.fire import CheckFinished, CompareBodies, Fire, Question
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.calendars import KnownCalendars
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

UNGUARDED_LOOK_AHEAD_NS = 50 * MILLISECOND
"""Longest look-ahead if the server does not refuse a stale fire (2.10).

The shorter, the smaller the window in which a removal can be missed.
"""

MIN_READ_GROUP_NS = 100 * MILLISECOND
"""Contents that are due within this time (ns) are read together, however punctual fires are to be."""


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The features and limits of the server."""

    guard: bool
    """It checks `Nats-Expected-Last-Subject-Sequence-Subject` (2.11 and later)."""
    max_payload: int = 1_048_576
    """Bytes of headers and body together."""
    look_ahead: int = 10 * SECOND
    """The time (ns) before its due time at which the content of a fire is read."""
    read_group: int = MIN_READ_GROUP_NS
    """Contents that are due within this time (ns) are read together, in one write."""
    blocks_refused: bool = False
    """True if a fire that its guard refuses stays "in process" until the duplicate window ends (2.11, replicas)."""
    replicated: bool = False
    """True if what the leader has accepted may not be applied yet: another leader does not know of it."""
    silent: bool = False
    """It acknowledges nothing (`no_ack`), and what it stored may be consumed before it is read back."""

    @property
    def longest_ahead(self) -> int:
        """The longest time (ns) before its send time at which a schedule is read."""
        return self.look_ahead if self.guard else min(self.look_ahead, UNGUARDED_LOOK_AHEAD_NS)


class Stored(NamedTuple):
    """The server acknowledged the fire, or had it already (`duplicate`)."""

    sequence: int
    duplicate: bool = False
    stream: str = ""
    """The stream that it is in; "" for the one of the schedule."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The server refused it, with this code: nothing was stored."""

    status: int
    code: int
    description: str


NO_STREAM = Refused(404, 10059, "no stream has the target as one of its subjects, or that stream has no leader")
"""The refusal of a fire whose target is in no stream; the code is the server's for a stream that does not exist."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer shows whether it was stored, or the server could not store it at the moment."""

    reason: str
    may_be_stored: bool = True
    """False if it cannot be stored by this attempt: it was not sent, or no stream took it."""
    in_process: bool = False
    """The server has received its identity before, and no message is stored under it: not yet, or never."""
    is_misplaced: bool = False
    """Another stream answered, or none: what is published to the target may be mapped to another subject."""


Outcome = Stored | Refused | Unknown


class MessagesRead(NamedTuple):
    """The follower read these, in stream order. Reading one again is harmless.

    All other messages up to sequence `through` are fires of ours that were reported as stored before.
    """

    messages: Sequence[StoredMessage]
    through: int = 0


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """These are older than the last messages on their subjects; `MessagesRead` contains only the last ones there.

    They are no schedules any more: only their TTLs count, and within which time a fire is to be done. Everything up to
    sequence `through` was read.
    """

    messages: Sequence[StoredMessage]
    through: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything that was stored without contact has been read: what is due may fire.

    If messages are not read in their order, everything up to sequence `through` was read, and need not be read again
    after contact was lost; it may be delivered again. What was stored after it while there was contact may follow.
    """

    through: int = 0
    is_behind: bool = False
    """True if of what was stored after `through` some was not read, although later messages were."""


@dataclass(frozen=True, slots=True)
class ContactLost:
    """The connection or the follower ended: nothing may fire until `CaughtUp`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Up to `through` (ns) an owner settled the schedules that are stored up to stream sequence `sequence`.

    The schedules in `unsettled`, by sequence, are not settled: they were invalid then, or their fires were refused.
    """

    through: int
    sequence: int
    unsettled: frozenset[int] = frozenset()
    stored_by: int | None = None
    """The storage time (ns) of the last message that its writer had read; None if unknown. A later one is of another
    stream.

    It is set only if the stream may be another one than its writer's.
    """
    owed: Mapping[int, int] = field(default_factory=dict, hash=False)
    """Of the schedules in `unsettled` those that send each missed fire (`X-Missed: all`): the fire time (ns) of the
    first that is not settled."""
    calendars: Mapping[str, int] = field(default_factory=dict, hash=False)
    """Calendars that its writer did not know: the schedules that name one are settled up to this instant (ns) only."""

    def through_of(self, calendars: Iterable[str]) -> int:
        """Return up to which instant (ns) a schedule is settled that names these calendars."""
        return min((self.calendars[name] for name in calendars if name in self.calendars), default=self.through)


NOTHING_SETTLED = Checkpoint(through=-1, sequence=0)


@dataclass(frozen=True, slots=True)
class OwnershipChanged:
    """This engine fires for its stream from now on, or stands by and fires nothing.

    One that becomes the owner continues where the checkpoint of the owner before says; None if there is none.
    """

    is_owner: bool
    checkpoint: Checkpoint | None = None


class ContentFetched(NamedTuple):
    """The messages that were stored on the schedule's subject, and on its source if it has one, when it was read."""

    schedule: str
    sequence: int
    message: StoredMessage | None
    source: StoredMessage | None
    above: StoredMessage | None = None
    """If it was requested (`FetchContent.above`), the first message on the subject that is not known yet."""


@dataclass(frozen=True, slots=True)
class DuplicateFetched:
    """The message with a sequence, None if it is gone; it was stored by the instant `stored_by` (ns), if known."""

    fire: Fire
    sequence: int
    message: StoredMessage | None
    stored_by: int | None


@dataclass(frozen=True, slots=True)
class ProposalsApplied:
    """The leader has applied all that it had accepted when it was asked on behalf of this fire (`AwaitProposals`)."""

    fire: Fire


@dataclass(frozen=True, slots=True)
class FireLookedFor:
    """The messages in another stream that claim to be this fire, or a later one of the same schedule.

    If there are many, some may be missing, but not all. Some that claim to be older fires may be among them.
    """

    fire: Fire
    found: Sequence[StoredMessage]
    """Without bodies."""
    first: int
    """That of the `LookForFire`."""


@dataclass(frozen=True, slots=True)
class FinishChecked:
    """The answer to whether a fire in question is unfinished."""

    request: CheckFinished
    unfinished: int = 0
    """The sequence of the first one that is unfinished, 0 if all are finished; if it cannot be said which one of
    several it is, `through` of the request."""
    stored_at: int = 0
    """The instant (ns) at which that one was stored, 0 if that is not known."""
    fault: str = ""
    """Why no acknowledgement can finish it: the consumer does not exist, does not receive the target, or has
    `given_up`."""
    given_up: bool = False
    """True if nobody works on it any more: the consumer is past it, and holds nothing."""


class BodiesCompared(NamedTuple):
    """The answer to whether two messages have different bodies; False too if one of them is gone."""

    question: CompareBodies
    is_other: bool


@dataclass(frozen=True, slots=True)
class Unanswered:
    """It could not be found out what was asked about a fire."""

    question: Question
    reason: str
    denied: bool = False
    """Our user may not ask, or the stream does not allow the question."""
    refusal: Refused | None = None
    """To a `LookForFire`: set if the fire cannot be stored either, as things are."""
    after: int = 0
    """To a `CheckFinished`: up to this sequence none is unfinished, and the search continues there. 0: no search."""


FinishAnswer = FinishChecked | Unanswered


class PublishConcluded(NamedTuple):
    """The one and only answer about a fire of `PublishFires`, unless that is a `FiresStored`."""

    fire: Fire
    outcome: Outcome


class FiresStored(NamedTuple):
    """In place of a `PublishConcluded` for each: these fires were stored anew, under these sequences, in this order."""

    fires: Sequence[Fire]
    sequences: Sequence[int]


class Version(NamedTuple):
    """One message that is known to be stored on a schedule's subject: its sequence, and when (ns) it was stored."""

    sequence: int
    stored_at: int


class PurgeConcluded(NamedTuple):
    """The one and only answer to a `PurgeSchedule`, unless that is a `SchedulesPurged`.

    `refused` if the server will never do it.
    """

    schedule: str
    through: int
    failure: str | None = None
    refused: bool = False
    denied: bool = False
    """Our user may not remove it."""
    known: Version | None = None
    """That of the `PurgeSchedule`."""


class SchedulesPurged(NamedTuple):
    """In place of a `PurgeConcluded` for each: these were purged, each up to the sequence that has its place."""

    schedules: Sequence[str]
    throughs: Sequence[int]


@dataclass(frozen=True, slots=True)
class ExpiryConcluded:
    """The one and only answer to a `RemoveExpired`; without a failure, the message is gone or not expired yet."""

    sequence: int
    subject: str | None = None
    """The subject of the message that was removed; None if none was."""
    expires: int | None = None
    """The instant (ns) at which the message that was found expires, if it has not expired yet."""
    failure: str | None = None
    refused: bool = False
    """The server will never do it, for any message of the stream."""


class RemovalRequested(NamedTuple):
    """A client asked the server to remove messages: on `filter` (None: any subject), or the one with `sequence`.

    Whether the server did it is not known yet: schedules that it may concern are re-checked before they fire.
    """

    filter: str | None = None
    sequence: int | None = None
    below: int | None = None
    """Of what is on `filter`, only messages below this sequence; None: all of them."""


@dataclass(frozen=True, slots=True)
class SchedulesGone:
    """These messages, by subject and sequence, are not stored any more: the stream's leader has removed them."""

    schedules: Sequence[tuple[str, int]]


@dataclass(frozen=True, slots=True)
class CalendarsRead:
    """The calendars of the account are these now, as far as is known."""

    calendars: KnownCalendars
    is_followed: bool = True
    """True if their next edit will be received; if not, they may be others already."""


@dataclass(frozen=True, slots=True)
class StreamChanged:
    """The stream has another configuration than before, and its schedules do not depend on the difference."""


@dataclass(frozen=True, slots=True)
class ServerLimited:
    """The server takes this many bytes of headers and body together from now on."""

    max_payload: int


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Start nothing new; finish what was started."""


Input = (
    MessagesRead
    | HistoryRead
    | CaughtUp
    | ContactLost
    | OwnershipChanged
    | ContentFetched
    | DuplicateFetched
    | ProposalsApplied
    | FireLookedFor
    | FinishChecked
    | BodiesCompared
    | Unanswered
    | PublishConcluded
    | FiresStored
    | PurgeConcluded
    | SchedulesPurged
    | ExpiryConcluded
    | RemovalRequested
    | SchedulesGone
    | CalendarsRead
    | StreamChanged
    | ServerLimited
    | DrainRequested
)
