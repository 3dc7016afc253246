"""What the operations of this room need of a server: the one port, with an adapter for each client.

Rule: the store does what it is asked and reports how that ended; what follows is decided by the operations.
Every publish and every delete names the message that it replaces, so that no edit of another client is lost.
Limit: on a stream with `no_ack` nothing is answered, so each outcome is unknown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from nats_scheduler.control.changes import Change
from nats_scheduler.message.dialect import ADR51, Dialect
from nats_scheduler.message.restrictions import UNRESTRICTED
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules


@dataclass(frozen=True, slots=True)
class Served:
    """How the schedules of one stream are served at the moment."""

    rules: StreamRules
    """Of its configuration, with the operator's restrictions; see `rules_for`."""
    dialects: tuple[Dialect, ...]
    """The spellings that a sidecar or the server fires on it: the one for new schedules first."""
    is_native: bool
    """Whether the server itself fires the headers of ADR-51."""
    server_version: str = ""
    """For texts only, such as `2.11.11`."""
    has_guard: bool = False
    """Whether the server checks `Nats-Expected-Last-Subject-Sequence-Subject` (2.11 and later)."""
    api_level: int = 0
    """Of the server: 0 for 2.10, 1 for 2.11, 2 and 3 for 2.12, 4 and more for 2.14 and later."""

    @property
    def name(self) -> str:
        """The name of the stream."""
        return self.rules.name

    def is_fired_by_server(self, dialect: Dialect) -> bool:
        """Return whether the server itself fires the schedules of a dialect, and not a sidecar."""
        return self.is_native and dialect is ADR51

    def rules_for(self, dialect: Dialect) -> StreamRules:
        """Return the rules by which a schedule of a dialect is read: a server knows no policies and no restrictions."""
        if self.is_fired_by_server(dialect):
            return replace(self.rules, has_policies=False, restrictions=UNRESTRICTED)
        return self.rules


class Published(NamedTuple):
    """A message is stored."""

    sequence: int
    is_duplicate: bool = False
    """Whether the server knew its `Nats-Msg-Id` and stored nothing."""


@dataclass(frozen=True, slots=True)
class StoredFires:
    """Which fires of a schedule are stored in a range of fire times."""

    fire_times: frozenset[int]
    """Nanoseconds since the Unix epoch."""
    latest: int | None
    """The latest fire time that the schedule, in this version, has fired by itself; None if none is known."""
    known_from: int | None
    """Fires that were stored at this time (ns) or later were found; None if any of them may be missing."""


class ScheduleStore(Protocol):
    """The schedules of an account.

    Every method raises `NoAnswerError` if the server does not answer a question, and `ForbiddenError` if the user lacks
    a permission.
    """

    async def served(self, stream: str) -> Served:
        """Return how a stream is served; raises `StreamNotFoundError`, or `NotServedError` if nothing fires on it."""

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject with its body, as the leader of the stream has it."""

    def schedules(self, stream: str, subjects: str) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, with its body, if it has headers of a schedule.

        In no order, once for each subject. `subjects` may contain wildcards.
        """

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes, *, expected: int | None) -> Published:
        """Store a message in place of the one with the sequence `expected`: 0 for none, None for any.

        Conditions that the block contains (`Nats-Expected-…`) are sent as they are if `expected` is None, and are
        replaced otherwise. Raises `ConflictError`, `RefusedError` or `UnknownOutcomeError`.
        """

    async def delete(self, stream: str, message: StoredMessage) -> None:
        """Delete a message and the older ones on its subject, if it is still the last one there.

        Raises `ConflictError`, `RefusedError` or `UnknownOutcomeError`; `NotFoundError` if it is not stored any more.
        """

    async def fires(self, stream: str, schedule: StoredMessage, since: int, until: int) -> StoredFires:
        """Return which fires of a schedule are stored whose fire times (ns) are in a range, both ends included.

        `until` is now or earlier; `latest` is known whatever the range is. See `control.retained`.
        """

    async def stream_of(self, subject: str) -> str:
        """Return the name of the account's stream that has a subject; raises `StreamNotFoundError`."""

    async def record(self, changes: Sequence[Change]) -> None:
        """Publish what was done as advisories; a user who may not publish there records nothing."""

    def now(self) -> int:
        """Return the time by the server's clock (ns), as well as it is known."""
