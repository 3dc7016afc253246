"""What the operations of this room need of a server: the one port, with an adapter for each client.

Rule: the store does what it is asked and reports how that ended; what follows is decided by the operations.
Every publish and every delete names the message that it replaces, so that no edit of another client is lost.
Limit: on a stream with `no_ack` nothing is answered, so each outcome is unknown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

from nats_scheduler.control.changes import Change
from nats_scheduler.message.capabilities import Capabilities
from nats_scheduler.message.definition import Terms, read_ttl
from nats_scheduler.message.dialect import ADR51, Dialect
from nats_scheduler.message.fires import PastFire
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import UNRESTRICTED, StreamRules
from nats_scheduler.schedule.instants import SECOND

OLDEST_SERVER = Capabilities()


@dataclass(frozen=True, slots=True)
class Served:
    """How the schedules of one stream are served at the moment."""

    rules: StreamRules
    """Of its configuration, with the operator's restrictions; see `rules_for`."""
    dialects: tuple[Dialect, ...]
    """The spellings that a sidecar or the server fires on it: the one for new schedules first."""
    is_native: bool
    """Whether the server itself fires the headers of ADR-51."""
    server: Capabilities = OLDEST_SERVER
    """What the server can do that stores the stream."""

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

        `until` is now or earlier; `latest` is known whatever the range is. See `control.port`.
        """

    async def stream_of(self, subject: str) -> str:
        """Return the name of the account's stream that has a subject; raises `StreamNotFoundError`."""

    async def record(self, changes: Sequence[Change]) -> None:
        """Publish what was done as advisories; a user who may not publish there records nothing."""

    def now(self) -> int:
        """Return the time by the server's clock (ns), as well as it is known."""


# What the stored messages show of the fires of a schedule: for `ScheduleStore.fires`, of every adapter.
#
# The rule: where a message may be gone although it was stored, nothing is known of it. So a stream that removes what
# was consumed, and a schedule whose fires roll up their target, show nothing. Limit: what a client deleted or purged
# counts as not stored.

EVER = 0
"""`StoredFires.known_from` if everything that was stored is known (ns since the Unix epoch)."""


class Kept(NamedTuple):
    """What a stream still holds; times are those at which a message was stored (ns)."""

    first_sequence: int
    """Of its first message, 1 if none was removed from the beginning."""
    first_stored_at: int
    on_target: int = 0
    """How many messages are on the target of the schedule; of interest if the stream limits them."""
    first_on_target_at: int = 0


def stored_fires(
    fires: Iterable[PastFire], sequence: int, since: int, until: int, known_from: int | None
) -> StoredFires:
    """Return what is stored of the fires of a schedule, whose message has this sequence, in a range of times (ns).

    A fire of the server's whose fire time is not known may be any that came due until it was stored.
    """
    fires = list(fires)
    unknown = max((fire.stored_at for fire in fires if fire.fire_time is None), default=None)
    if known_from is not None and unknown is not None:
        known_from = max(known_from, unknown + 1)
    timed = [(fire.fire_time, fire) for fire in fires if fire.fire_time is not None]
    latest = (time for time, fire in timed if not fire.was_requested and fire.schedule_sequence in (sequence, None))
    times = frozenset(time for time, _fire in timed if since <= time <= until)
    return StoredFires(times, max(latest, default=None), known_from)


def known_from(config: Mapping[str, Any], terms: Terms, kept: Kept, now: int) -> int | None:
    """Return from when on (stored time, ns) a stream shows the fires of a schedule; None if any may be missing.

    `config` is that of the stream that has the target.
    """
    rules = StreamRules.from_config(config)
    if not rules.keeps_acknowledged or terms.rollup:
        return None
    since = [EVER]
    if (rules.max_age or rules.evicts) and kept.first_sequence > 1:
        since.append(kept.first_stored_at)
    if (ttl := read_ttl(terms.ttl) if terms.ttl else 0) and ttl > 0:
        since.append(now - ttl * SECOND)
    per_subject = config.get("max_msgs_per_subject")
    if isinstance(per_subject, int) and 0 < per_subject <= kept.on_target:
        since.append(kept.first_on_target_at)
    return max(since)
