"""A recorded history: what was requested and stored, which instances were alive when, and what was broken.

Its rule: it holds observations and nothing derived, so that a simulation and real processes record the same.
All times are integer nanoseconds on the clock of the server, which is the one that promises are judged by.
An operation that was refused for certain is not recorded, because it did nothing.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from tests.judge.patterns import Pattern

SECOND = 1_000_000_000

NEVER = 1 << 100
"""Later (ns) than any history."""

EVERYTHING = ">"
"""The subject of a purge without a filter, in the place of a schedule."""

Headers = tuple[tuple[str, str], ...]


class Verb(StrEnum):
    """An act of a publisher on a schedule."""

    STORE = "store"
    OVERWRITE = "overwrite"
    """Publish a message that is no schedule on its subject."""
    PAUSE = "pause"
    """Publish the message of a schedule with the header of the pattern renamed, which is no active schedule."""
    DELETE = "delete"
    """Delete one message by its sequence."""
    PURGE = "purge"
    CANCEL = "cancel"
    """Publish the atomic cancel elsewhere in the stream."""


@dataclass(slots=True)
class Operation:
    """One request of a publisher."""

    verb: Verb
    schedule: str
    invoked_at: int
    completed_at: int | None = None
    """The instant of the server's acknowledgement; None if the outcome is unknown: at some time since, or never."""
    sequence: int | None = None
    """The sequence in the acknowledgement of a message that was stored."""
    names: int | None = None
    """The sequence that a delete names."""
    pattern: Pattern | None = None
    target: str = ""
    body: bytes = b""
    """Unique for each schedule stored, so that a message can be traced to the request."""
    headers: Headers = ()
    """The publisher's own headers, which a fire has too."""
    source: str = ""
    """The subject that is sampled."""
    ttl: int = NEVER
    """The lifetime (ns) of the schedule."""
    fire_ttl: int = 0
    """The lifetime (s) of its fires; 0: as long as the stream keeps them."""
    rolls_up: bool = False
    """True if a fire replaces those before it on its target."""


@dataclass(frozen=True, slots=True)
class ScheduleSeen:
    """A schedule message that was in the stream at some time."""

    schedule: str
    sequence: int
    stored_at: int
    body: bytes


@dataclass(frozen=True, slots=True)
class FireSeen:
    """A generated message that was in the stream at some time."""

    schedule: str
    schedule_sequence: int | None
    """From its identity; None if it has none."""
    fire_time: int | None
    target: str
    stored_at: int
    sequence: int
    body: bytes
    headers: Headers = ()
    taken: int = 0
    """The sequence of the message that has the first identity of this fire, from its own; 0 if it has the first one."""
    elsewhere: bool = False
    """True if it is in another stream than its schedule, where no guard protects it."""


class FireKey(NamedTuple):
    """The key of a fire: the sequence of its schedule, and its fire time (ns)."""

    schedule_sequence: int
    fire_time: int


@dataclass(frozen=True, slots=True)
class IdentityTaken:
    """A message that has the first identity of a fire, and is not that fire."""

    fire: FireKey
    sequence: int
    stored_at: int


@dataclass(frozen=True, slots=True)
class FireSent:
    """A request of an instance to store a fire, whatever became of it."""

    instance: str
    fire: FireKey
    taken: int
    """As in `FireSeen`."""
    sent_at: int
    clock: int
    """The time (ns) by the clock of the instance."""


@dataclass(frozen=True, slots=True)
class SourceSeen:
    """The message that was stored on a source from some instant (ns) on; without a body, there was none."""

    subject: str
    since: int
    body: bytes | None
    headers: Headers = ()


class Leaves(StrEnum):
    """The due instants that a calendar leaves."""

    ALL = "all"
    NOTHING = "nothing"
    GONE = "gone"
    """There is no such calendar, or it is invalid: schedules that name it wait."""


@dataclass(frozen=True, slots=True)
class CalendarSeen:
    """The due instants that a calendar leaves from some instant (ns) on."""

    name: str
    since: int
    leaves: Leaves
    certain_from: int = 0
    """The instant (ns) from which on it certainly leaves that, if the edit was acknowledged after its request."""


@dataclass(frozen=True, slots=True)
class Life:
    """One life of an instance."""

    instance: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Fault:
    """Something was broken for one instance, or for all (`instance` None)."""

    kind: str
    instance: str | None
    begin: int
    end: int
    silences: bool = False
    """True if no heartbeat of the instance arrives meanwhile: if the stream has one owner, another one takes over."""
    noticed_after: int | None = None
    """The time (ns) after which others take over from it although its heartbeats arrive; None: they do not."""
    delays_only: bool = False
    """True if it stops nothing that works, but delays the recovery from any other fault until it is over."""
    ahead: int = 0
    """The lead (ns) that instances gave the server's clock: until the end, no fire is due later than that."""


class FireAnswered(NamedTuple):
    """An answer of a server that a fire is stored, by this attempt."""

    fire: FireKey
    sequence: int
    at: int
    """The instant (ns) at which it was received."""


class StoredRecord(NamedTuple):
    """A message that is written in a store, with which fire it is, if it is one."""

    stored_at: int
    subject: str
    identity: FireKey | None
    body: bytes


@dataclass(frozen=True, slots=True)
class StoreSeen:
    """The content of the files of one server for the stream in the end, removed messages included."""

    node: str
    records: dict[int, StoredRecord]
    """By sequence."""
    erased: frozenset[int] = frozenset()
    """The sequences of messages whose content was overwritten, or that only the note of a removal names."""

    def last(self) -> int:
        """Return the last sequence that it ever had."""
        return max([0, *self.records, *self.erased])


@dataclass(frozen=True, slots=True)
class Terms:
    """Where the promises end in this history (`docs/concepts/promises.md`)."""

    guard: bool = True
    """True if the server refuses stale fires (2.11)."""
    covered_unguarded: bool = False
    """True if no guard decides for a version over which a message lies, as a fire that landed there, or what replaced a
    version that owes a fire: on streams with replicas of a 2.11."""
    resumes_within: int = 3 * SECOND
    """The time (ns) after the last fault that an instance may need until it is ready."""
    slack: int = SECOND // 2
    """The lateness (ns) that a fire may have while an instance is ready."""
    leader_behind: int = 0
    """The most (ns) that the leader is behind what it has accepted: so long after it a schedule can be read, and a fire
    whose first identity is in process waits for it up to three times."""
    window: int = SECOND // 20
    """The time (ns) after the end of a schedule in which a fire may still be stored if no guard decides: what was read
    or in flight by then."""
    held_elsewhere: int = 0
    """The time (ns) by which that may be longer where no guard shows that a fire is outdated, as in another stream or
    beside a later fire: a node that pauses holds what it was sent."""
    clock_ahead: int = 0
    """The most (ns) that a clock of an instance was ahead of the server's."""
    clock_behind: int = 0
    consumed: bool = False
    """True if consumers remove generated messages, so that they leave no trace after the duplicate window."""
    removed_by_workers: bool = False
    """True if it is the acknowledgement of a worker, which is recorded, that removes them."""
    duplicate_window: int = 120 * SECOND
    window_elsewhere: int = 0
    """The duplicate window (ns) of the other stream, if what was sent to it may be in transit for longer; else 0."""
    elected: bool = False
    """True if the instances agree on one owner, so that a fault of one of them concerns all."""
    readers: int = 0
    """The number of instances that read the stream when all is well; 0: all."""


@dataclass(slots=True)
class History:
    """Everything that was recorded."""

    terms: Terms
    begin: int
    end: int = 0
    operations: list[Operation] = field(default_factory=list)
    schedules: list[ScheduleSeen] = field(default_factory=list)
    fires: list[FireSeen] = field(default_factory=list)
    remaining: set[int] = field(default_factory=set)
    """Sequences of the schedule messages that are stored in the end."""
    remaining_fires: set[int] | None = None
    """Sequences of the generated messages that are stored in the end, where that was recorded."""
    finished: dict[int, int] = field(default_factory=dict)
    """The instant at which workers had finished a message on a target and all before it there, by sequence; others are
    unfinished."""
    acknowledged: dict[int, int] = field(default_factory=dict)
    """The instant at which workers had finished a message on a target, by sequence, whatever lay before it."""
    not_done: dict[int, list[int]] = field(default_factory=dict)
    """The instants at which instances reported a fire as not done, by its sequence, where that was recorded."""
    sources: list[SourceSeen] = field(default_factory=list)
    taken: list[IdentityTaken] = field(default_factory=list)
    """The identities that a forger took."""
    sent: list[FireSent] = field(default_factory=list)
    """The fires that instances sent of those whose identities a forger took, if there is a forger."""
    lives: list[Life] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    owned_by: list[str] | None = None
    """The instances that fire for the stream in the end, if that was recorded."""
    read_by: list[str] = field(default_factory=list)
    """The instances that read the stream in the end, where that was recorded."""
    found_no_checkpoint: list[int] = field(default_factory=list)
    """The instants at which an instance asked how far fires are settled and found nothing, where that was recorded."""
    calendars: list[CalendarSeen] = field(default_factory=list)
    """The edits of calendars, in order."""
    stores: list[StoreSeen] = field(default_factory=list)
    """The content of the stream on each node in the end, if all of them could be read."""
    answered: list[FireAnswered] = field(default_factory=list)
    """The answers that instances received to fires of the stream, where that was recorded."""
    takeovers: int = 0
    """The number of times that the stream was taken over in the last seconds, in which nothing was broken."""


def headers_of(operation: Operation, *, elsewhere: bool) -> dict[str, str]:
    """Return the headers of a message that a publisher stores.

    A schedule whose target is in another stream (`elsewhere`) has the portable headers, as such a target demands.
    """
    if operation.pattern is None:
        return {}
    headers = {**operation.pattern.headers, "Nats-Schedule-Target": operation.target}
    headers.update(operation.headers)
    if operation.source:
        headers["Nats-Schedule-Source"] = operation.source
    if operation.ttl < NEVER:
        headers["Nats-TTL"] = f"{operation.ttl // SECOND}s"
    if operation.fire_ttl:
        headers["Nats-Schedule-TTL"] = f"{operation.fire_ttl}s"
    if operation.rolls_up:
        headers["Nats-Schedule-Rollup"] = "sub"
    return _portable(headers) if elsewhere else headers


def _portable(headers: dict[str, str]) -> dict[str, str]:
    """Return the headers in the portable spelling, with the target in the other stream."""
    target = headers.pop("Nats-Schedule-Target")
    named = {f"X-{name}" if name.startswith("Nats-Schedule") else name: value for name, value in headers.items()}
    return {**named, "X-Nats-Schedule-X-Target": target}
