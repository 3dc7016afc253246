"""What the engine is told: facts, in the past tense, each with everything needed to judge it.

Messages come in batches because a million of them come at start, and an object per message is what that start would be
spent on.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.shards import ALL_SHARDS
from nats_scheduler.message.stored import StoredMessage


class Stored(NamedTuple):
    """The server acknowledged the fire, or had it already (`duplicate`)."""

    sequence: int
    duplicate: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """The server said no, with its code: nothing was stored."""

    status: int
    code: int
    description: str


NOT_PERMITTED = 403
"""Stands for the server's code where the account refuses a publish before JetStream sees it; no other is so small."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """No answer says whether it was stored, or the server could not store it at the moment."""

    reason: str
    may_be_stored: bool = True
    """False if it cannot be stored by this attempt: it was not sent, or no stream took it."""


Outcome = Stored | Refused | Unknown


class MessagesRead(NamedTuple):
    """The follower read these, in stream order. Reading one again is harmless.

    Whatever else is stored up to sequence `through` are fires of ours whose storage was told before.
    """

    messages: Sequence[StoredMessage]
    through: int = 0


@dataclass(frozen=True, slots=True)
class HistoryRead:
    """These lie under the last messages of their subjects, where `MessagesRead` tells those alone.

    They are no schedules any more: only their TTLs count. Everything up to sequence `through` was looked at.
    """

    messages: Sequence[StoredMessage]
    through: int


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """Everything stored up to now has been read: what is due may fire.

    Where messages are not read in their order, everything up to sequence `through` was looked at, and need not be again
    when contact was lost; it may be told anew.
    """

    through: int = 0


@dataclass(frozen=True, slots=True)
class ContactLost:
    """The connection or the follower ended: nothing may fire until `CaughtUp`."""

    reason: str


@dataclass(frozen=True, slots=True)
class CheckpointLoaded:
    """Up to `through` (ns) an earlier holder of `shards` settled their schedules up to stream sequence `sequence`.

    But for those whose sequences are in `unsettled`: they were invalid then, or their fires were refused.
    """

    through: int
    sequence: int
    unsettled: frozenset[int] = frozenset()
    shards: frozenset[int] = ALL_SHARDS
    stored_by: int | None = None
    """When (ns) the last message was stored that its writer had read; a later one is of another stream. None: unknown.

    It is to be told only where the stream may be another one than its writer's.
    """


@dataclass(frozen=True, slots=True)
class ShardsHeld:
    """This engine fires for these shards of its stream from now on, and for no others.

    The latest checkpoint of a shard that is new has to be told before.
    """

    shards: frozenset[int]


class ContentRead(NamedTuple):
    """What lay on the schedule's subject, and on its source where it has one, when it was looked at."""

    schedule: str
    sequence: int
    message: StoredMessage | None
    source: StoredMessage | None
    above: StoredMessage | None = None
    """Where that was asked for (`ReadContent.above`), the first message on the subject that is not known."""


@dataclass(frozen=True, slots=True)
class ContentUnread:
    """The content could not be read."""

    schedule: str
    sequence: int
    reason: str
    denied: bool = False
    """Our user may not read it."""


@dataclass(frozen=True, slots=True)
class DuplicateRead:
    """What lies under a sequence, None where it is gone; it was stored by the instant `stored_by` (ns), if known."""

    fire: Fire
    sequence: int
    message: StoredMessage | None
    stored_by: int | None


@dataclass(frozen=True, slots=True)
class DuplicateUnread:
    """What lies under a sequence could not be read."""

    fire: Fire
    reason: str


class PublishConcluded(NamedTuple):
    """The one and only answer about a fire of `PublishFires`, unless that is a `FiresStored`."""

    fire: Fire
    outcome: Outcome


class FiresStored(NamedTuple):
    """In place of a `PublishConcluded` for each: these fires were stored anew, under these sequences, in this order."""

    fires: Sequence[Fire]
    sequences: Sequence[int]


class Version(NamedTuple):
    """One message that is known to lie on a schedule's subject: its sequence, and when (ns) it was stored."""

    sequence: int
    stored_at: int


class PurgeConcluded(NamedTuple):
    """The one and only answer to a `PurgeSchedule`; `refused` where the server will never do it."""

    schedule: str
    through: int
    failure: str | None = None
    refused: bool = False
    denied: bool = False
    """Our user may not remove it."""
    known: Version | None = None
    """That of the order."""


@dataclass(frozen=True, slots=True)
class ExpiryConcluded:
    """The one and only answer to a `RemoveExpired`; without a failure, the message is gone or not expired yet."""

    sequence: int
    subject: str | None = None
    """The subject of the message that was removed; None where none was."""
    expires: int | None = None
    """When the message that was found expires (ns), where that is yet to come."""
    failure: str | None = None
    refused: bool = False
    """The server will never do it, for any message of the stream."""


class RemovalRequested(NamedTuple):
    """Somebody asked the server to remove messages: on `filter` (None: any subject), or the one with `sequence`.

    Whether it happened is not known yet: what it may have hit is looked at again before it fires.
    """

    filter: str | None = None
    sequence: int | None = None
    below: int | None = None
    """Of what is on `filter`, only messages below this sequence; None: all of them."""


@dataclass(frozen=True, slots=True)
class StreamChanged:
    """The stream is configured otherwise than before, in a way that changes nothing about its schedules."""


@dataclass(frozen=True, slots=True)
class DrainRequested:
    """Stop beginning anything; finish what was begun."""


Input = (
    MessagesRead
    | HistoryRead
    | CaughtUp
    | ContactLost
    | CheckpointLoaded
    | ShardsHeld
    | ContentRead
    | ContentUnread
    | DuplicateRead
    | DuplicateUnread
    | PublishConcluded
    | FiresStored
    | PurgeConcluded
    | ExpiryConcluded
    | RemovalRequested
    | StreamChanged
    | DrainRequested
)
