"""What a stream's schedules are at this moment, read as the sidecar reads them, and nothing done about it.

The rule: an engine is told the messages and never that it caught up.
So it stays closed: it fires nothing, and what it asks for (purges of what is done) is dropped here.
The engine and no reading of its own, because a list that differs from what fires is worse than none.

Where the server itself serves the headers of ADR-51 a second engine reads those, since a message may carry both
spellings and is then fired by both.
There the server's own generated messages are taken for what they are, plain messages.

Cost: one pass over the stream's headers; where no consumer may be attached, one request a subject.
Limit: for a schedule of the server the next fire is that of its pattern; the server cannot be asked for its own.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from nats_scheduler.engine.assembly import ServerLimits
from nats_scheduler.engine.events import Ending, HeadersMisnamed
from nats_scheduler.engine.held import NO_EXPIRY, Held
from nats_scheduler.engine.inputs import CaughtUp, CheckpointLoaded, ContactLost, Input, MessagesRead
from nats_scheduler.engine.lifetimes import Lifetimes
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.api import Config, JetStreamApi
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.contact import follower_of
from nats_scheduler.jetstream.errors import NoAnswerError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.definition import Terms
from nats_scheduler.message.dialect import ADR51, Dialect
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.rejection import Rejection
from nats_scheduler.message.restrictions import UNRESTRICTED, Restrictions
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import StreamRules
from nats_scheduler.runtime.modes import Mode, dialects_of
from nats_scheduler.schedule.patterns import Cron, Pattern

MAX_LOST_CONTACTS = 3
"""Consumers that may die one after the other without a message before reading is given up."""


class FiredBy(StrEnum):
    """Who fires a schedule."""

    SIDECAR = "sidecar"
    SERVER = "server"
    NOBODY = "nobody"


class Standing(StrEnum):
    """How a schedule stands."""

    WAITING = "waiting"
    """Its next fire is to come."""
    OVERDUE = "overdue"
    """It fires once, its time has passed, and nobody has fired it yet."""
    FAILING = "failing"
    """It is due, and the server refuses its fires: the running sidecars say that, no stream does."""
    FIRED = "fired"
    """It fires once, and has; it is still to be removed."""
    CANCELLED = "cancelled"
    """A message cancelled it; it is still to be removed."""
    EXPIRING = "expiring"
    """Its TTL runs out, or the `max_age` of its stream is over, before its next fire."""
    ENDED = "ended"
    """Its pattern has no further fire within the horizon of five years."""


@dataclass(frozen=True, slots=True)
class ListedSchedule:
    """A schedule that is valid and the last message on its subject."""

    subject: str
    sequence: int
    stored_at: int
    """Nanoseconds since the Unix epoch, as is `next_fire`."""
    pattern: Pattern
    terms: Terms
    next_fire: int | None
    standing: Standing
    fired_by: FiredBy
    ends: int | None
    """When its stream removes it (ns), None where it keeps it."""
    ended_by: Ending | None
    """What does that."""


@dataclass(frozen=True, slots=True)
class ListedRejection:
    """The last message on a subject that wants to be a schedule and is none; texts are as they were written."""

    subject: str
    sequence: int
    stored_at: int
    dialect: Dialect
    pattern: str
    target: str
    rejection: Rejection


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The schedules of one stream at one moment; by next fire, those without one last."""

    schedules: Sequence[ListedSchedule]
    rejected: Sequence[ListedRejection]
    misnamed: Sequence[HeadersMisnamed] = ()
    """The last messages on their subjects with headers that look like those of a schedule and are none."""


async def take_snapshot(
    connection: Connection,
    api: JetStreamApi,
    state: StreamState,
    mode: Mode,
    checkpoints: Sequence[CheckpointLoaded],
    now: Callable[[], int],
    *,
    restrictions: Restrictions = UNRESTRICTED,
    removes_expired: bool = False,
) -> Snapshot:
    """Read a stream that is served in `mode`; `now` tells the time in ns since the Unix epoch.

    `restrictions` are those of the sidecar; the server knows none.
    With `removes_expired` it is the sidecar that ends what has a TTL, and not the server.

    Raises `JetStreamError` where the stream cannot be read.
    """
    rules = state.rules
    allowed = replace(rules, restrictions=restrictions)
    ours = _Reader(allowed, dialects_of(mode), FiredBy.SIDECAR, removes_expired=removes_expired)
    ours.engine.step(now(), checkpoints)
    readers = [ours]
    if mode in (Mode.NATIVE, Mode.DORMANT):
        readers.append(_ServersReader(rules, (ADR51,), FiredBy.SERVER if mode is Mode.NATIVE else FiredBy.NOBODY))

    def take(messages: Sequence[StoredMessage]) -> None:
        for reader in readers:
            reader.take(messages, now())

    await read_stored(connection, api, state.config, take)
    at = now()
    schedules = [listed for reader in readers for listed in reader.listed(at)]
    schedules.sort(key=_soonest_first)
    rejected = [listed for reader in readers for listed in reader.rejected.values()]
    misnamed = sorted(ours.engine.misnaming.noted.values(), key=lambda noted: noted.subject)
    return Snapshot(schedules, sorted(rejected, key=lambda listed: (listed.subject, listed.sequence)), misnamed)


async def read_stored(
    connection: Connection, api: JetStreamApi, config: Config, take: Callable[[Sequence[StoredMessage]], None]
) -> None:
    """Give what a stream holds to `take`, in batches, as a sidecar would read it at its start, and return.

    Raises `JetStreamError` where the stream cannot be read.
    """
    over: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
    lost = 0

    def hear(fact: Input) -> None:
        nonlocal lost
        if over.done():
            return
        if isinstance(fact, MessagesRead):
            lost = 0
            take(fact.messages)
        elif isinstance(fact, CaughtUp):
            over.set_result(None)
        elif isinstance(fact, ContactLost):
            lost += 1
            if lost == MAX_LOST_CONTACTS:
                over.set_result(fact.reason)

    follower = follower_of(connection, api, config, hear, lambda _subject: False)
    following = asyncio.create_task(follower.follow(0))
    try:
        await asyncio.wait((following, over), return_when=asyncio.FIRST_COMPLETED)
        if not over.done():
            following.result()  # raises: following ends by itself only with an error
        if reason := over.result():
            raise NoAnswerError(f"stream {config['name']} cannot be read: {reason}")
    finally:
        following.cancel()
        await asyncio.wait((following,))


class _Reader:
    """An engine that is told messages, and what it cannot tell of those it rejected."""

    def __init__(
        self, rules: StreamRules, dialects: Sequence[Dialect], fired_by: FiredBy, *, removes_expired: bool = False
    ) -> None:
        # The limits concern fires, and there are none.
        self.engine = StreamEngine(rules, dialects, ServerLimits(guard=False), removes_expired=removes_expired)
        self._dialects = dialects
        self._fired_by = fired_by
        self._rejected: dict[str, ListedRejection] = {}

    def take(self, messages: Sequence[StoredMessage], now: int) -> None:
        """Have the engine read messages."""
        self.engine.step(now, (MessagesRead(messages),))
        rejected = self.engine.rejected
        for message in messages if rejected else ():
            known = rejected.get(message.subject)
            if known is not None and known[0] == message.sequence:
                self._rejected[message.subject] = self._listed_rejection(message, known[1])

    @property
    def rejected(self) -> dict[str, ListedRejection]:
        """What the engine rejects, by subject."""
        return {subject: self._rejected[subject] for subject in self.engine.rejected}

    def listed(self, now: int) -> Iterator[ListedSchedule]:
        """Yield what the engine holds."""
        fires: dict[Pattern, int | None] = {}
        for held in self.engine.held:
            lifetimes = self.engine.lifetimes
            next_fire, standing = _outlook(held, now, fires, lifetimes)
            ends = lifetimes.ends(held)
            ended_by = None if ends >= NO_EXPIRY else Ending.EXPIRED if ends == held.expires else Ending.MAX_AGE
            yield ListedSchedule(
                held.subject,
                held.sequence,
                held.stored_at,
                held.pattern,
                held.terms,
                next_fire,
                standing,
                self._fired_by,
                None if ended_by is None else ends,
                ended_by,
            )

    def _listed_rejection(self, message: StoredMessage, rejection: Rejection) -> ListedRejection:
        written = [d for d in self._dialects if header_value(message.block, d.schedule)]
        dialect = (written or _with_any_header(message.block, self._dialects) or self._dialects)[0]
        pattern, target = (_text(message.block, name) for name in (dialect.schedule, dialect.target))
        return ListedRejection(
            message.subject, message.sequence, message.stored_at, dialect, pattern, target, rejection
        )


class _ServersReader(_Reader):
    """Reads the headers of ADR-51 on a stream that the server itself schedules on."""

    def take(self, messages: Sequence[StoredMessage], now: int) -> None:
        """Have the engine read messages, those that the server generated without their headers."""
        super().take([m._replace(block=b"") if _is_fire_of_the_server(m) else m for m in messages], now)


def _is_fire_of_the_server(message: StoredMessage) -> bool:
    """Tell whether the server generated a message: it alone may store a next fire that is not `purge`."""
    block = message.block
    if block.find(ADR51.next) < 0 or header_value(block, ADR51.schedule):
        return False
    return header_value(block, ADR51.next) not in (None, b"", b"purge")


def _outlook(
    held: Held, now: int, fires: dict[Pattern, int | None], lifetimes: Lifetimes
) -> tuple[int | None, Standing]:
    """Return when a schedule fires next, and how it stands; `fires` keeps what was searched for equal patterns."""
    if held.flight is not None:
        return None, Standing.CANCELLED if held.flight.ending is Ending.CANCELLED else Standing.FIRED
    pattern = held.pattern
    ends = lifetimes.ends(held)
    if ends <= held.due:
        return None, Standing.EXPIRING
    if held.due > now:
        return held.due, Standing.WAITING
    if not pattern.repeats:
        return held.due, Standing.OVERDUE
    following = _following(held, now, fires)
    if following is not None and ends <= following:
        return None, Standing.EXPIRING
    return following, Standing.ENDED if following is None else Standing.WAITING


def _following(held: Held, now: int, fires: dict[Pattern, int | None]) -> int | None:
    """Return the next fire of a pattern that repeats."""
    pattern = held.pattern
    if not isinstance(pattern, Cron):  # those of an interval depend on when it was stored, and are arithmetic
        return pattern.next_fire(now, held.stored_at)
    if pattern not in fires:
        fires[pattern] = pattern.next_fire(now, held.stored_at)
    return fires[pattern]


def _soonest_first(listed: ListedSchedule) -> tuple[bool, int, str]:
    return listed.next_fire is None, listed.next_fire or 0, listed.subject


def _with_any_header(block: bytes, dialects: Sequence[Dialect]) -> list[Dialect]:
    return [d for d in dialects if any(header_value(block, name) is not None for name in d.names)]


def _text(block: bytes, name: bytes) -> str:
    return (header_value(block, name) or b"").decode("utf-8", "surrogateescape")
