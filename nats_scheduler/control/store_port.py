"""The one port of the store of schedules to a server, with an adapter for each client, and the values that it reports.

Rule: an adapter builds the request, sends it and translates the answer; what follows is decided in `control.store`.
Limit: on a stream with `no_ack` nothing is answered, so each outcome is unknown.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.dialect import ADR51, Dialect
from nats_scheduler.message.publish_answers import Published, Refusal
from nats_scheduler.message.restrictions import UNRESTRICTED
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules

OLDEST_SERVER = Capabilities()


@dataclass(frozen=True, slots=True)
class Served:
    """The way in which the schedules of one stream are served at the moment."""

    rules: StreamRules
    """Of its configuration, with the operator's restrictions; see `rules_for`."""
    dialects: tuple[Dialect, ...]
    """The spellings that a sidecar or the server fires on it: the one for new schedules first."""
    is_native: bool
    """True if the server itself fires the headers of ADR-51."""
    server: Capabilities = OLDEST_SERVER
    """The capabilities of the server that stores the stream."""
    admit: Callable[[Any], None] = field(default=lambda _found: None, compare=False)
    """Raises `ForbiddenError` for a schedule (`Current`) that the caller may neither store nor fire."""

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


@dataclass(frozen=True, slots=True)
class StoredFires:
    """Which fires of a schedule are stored in a range of fire times."""

    fire_times: frozenset[int]
    """Nanoseconds since the Unix epoch."""
    latest: int | None
    """The latest fire time that the schedule, in this version, has fired by itself; None if none is known."""
    known_from: int | None
    """Fires that were stored at this time (ns) or later were found; None if any of them may be missing."""


class StreamNow(NamedTuple):
    """A stream as the server describes it."""

    config: dict[str, Any]
    first_sequence: int
    last_sequence: int

    @property
    def name(self) -> str:
        """The name of the stream."""
        return str(self.config["name"])


class Wire(Protocol):
    """The requests to the JetStream of an account.

    Every method raises `NoAnswerError` if the server does not answer, `ForbiddenError` if the user lacks a permission,
    and `RefusedError` if the server refuses.
    """

    async def stream(self, name: str) -> StreamNow:
        """Return a stream as its leader describes it; raises `StreamNotFoundError`."""

    async def stream_of(self, subject: str) -> str:
        """Return the name of the account's stream that has a subject; raises `StreamNotFoundError`."""

    async def message(self, stream: str, **where: Any) -> StoredMessage | None:
        """Return the message at `seq`, or `seq` + `next_by_subj`, with its body; None if there is none."""

    async def last(self, stream: str, subject: str) -> StoredMessage | None:
        """Return the last message on a subject with its body, as the leader of the stream has it.

        Also if a later one was deleted by its sequence, after which servers up to 2.11 find none. A subject that no
        request can name has none.
        """

    def subjects(self, stream: str, within: str) -> AsyncIterator[tuple[str, int]]:
        """Yield the subjects that a stream holds messages on, among those that match `within`, with their numbers."""

    def newest(
        self, stream: str, subjects: str, is_wanted: Callable[[StoredMessage], bool]
    ) -> AsyncIterator[StoredMessage]:
        """Yield the last message on each subject that matches, with its body, if its headers are wanted.

        In no order. `subjects` may contain wildcards.
        """

    def backwards(self, stream: StreamNow, subject: str) -> AsyncGenerator[StoredMessage, None]:
        """Yield the messages of a stream on a subject, which may contain wildcards, without bodies, newest first."""

    async def check_publish(self, subject: str) -> None:
        """Raise `ForbiddenError` if it is known that the user may not publish to a subject; nothing is sent there."""

    async def check_request(self, request: str) -> None:
        """Raise `ForbiddenError` if it is known that the user may not send a request (its subject without prefix)."""

    async def publish(self, stream: str, subject: str, block: bytes, body: bytes) -> Published | Refusal:
        """Send a message once and return what the stream answers.

        Raises `NoAnswerError` if nothing was stored, `UnknownOutcomeError` if that is not known.
        """

    async def purge(self, stream: str, subject: str, through: int) -> None:
        """Delete what is stored on a subject up to a sequence.

        Raises `UnknownOutcomeError` if it is not known whether that was done.
        """

    async def delete(self, stream: str, sequence: int) -> None:
        """Delete one message without erasing its bytes; one that is gone is no error. Raises as `purge` does."""

    async def advise(self, subject: str, body: bytes, block: bytes) -> None:
        """Publish an advisory, and wait for nothing; for a user who may not publish there nothing is done."""

    async def wait(self, seconds: float) -> None:
        """Wait before an attempt is repeated."""


class ServedStreams(Protocol):
    """The way in which the streams of an account are served, and the time there."""

    async def served(self, stream: str) -> Served:
        """Return how a stream is served; raises `StreamNotFoundError`, or `NotServedError` if nothing fires on it."""

    def now(self) -> int:
        """Return the time by the server's clock (ns), as well as it is known."""


EVER = 0
"""`StoredFires.known_from` if everything that was stored is known (ns since the Unix epoch)."""
