"""One stream whose schedules the sidecar does not fire: it is read into an engine that watches, and later what changed.

The rules: what is stored is read in the order of the stream, in slices (`service.turns`), and the next messages are
asked for after that. Reading that failed goes on where it stopped.
Removals store nothing. The number of sequences that are not stored shows that there were some; then what is held is
compared with what the stream lists as deleted, or is looked up if that list is long.
What the server fired is noted while it is read (`observe.activity.ReadFires`).
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Collection, Generator, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any
from weakref import WeakSet

from nats_scheduler.engine.stored_schedules import OBJECT_BYTES, StoredSchedules
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.jetstream.api import JetStreamApi, reads_all
from nats_scheduler.jetstream.connection import Connection
from nats_scheduler.jetstream.lookups import StreamNumbers
from nats_scheduler.jetstream.reach import may_lag
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.stretches import LOOKUPS_IN_FLIGHT, StretchReader
from nats_scheduler.jetstream.task_group import in_turn
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.foreign_json import inner, integer
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.observe.activity import ReadFires
from nats_scheduler.service.micro import UNAVAILABLE, ServiceError
from nats_scheduler.service.turns import Turns

MAX_LOOKED_UP = 100_000
"""Messages or subjects that are looked up, where no consumer may be created; about 12 s."""

MAX_LISTED_DELETED = 10_000
"""If the stream has more deleted messages between stored ones, their list is too long to be read at once (100 KB)."""

READ_COST_FACTOR = 6
"""To look up a message costs this many times as much as to read it with its neighbours."""

MESSAGES_PER_UNIT = 8
"""Messages that are interpreted in one unit of work, which takes a tenth of a millisecond."""

COMPARED_PER_UNIT = 512
"""Schedules that are compared with a list of deleted messages in one unit of work."""

MOST_BYTES = 2 * OBJECT_BYTES
"""What a schedule takes at most, without its texts."""

VIEW_LIMIT_SECONDS = 300.0
"""No request needs a view for longer: its work is given up before (`service.turns.WORK_LIMIT_SECONDS`)."""


@dataclass(frozen=True, slots=True)
class ReadAccess:
    """The means to read streams."""

    connection: Connection
    api: JetStreamApi
    now: Callable[[], int]
    """Returns the time (ns since the Unix epoch) by the server's clock."""
    turns: Turns


_STATE = "first_seq", "last_seq", "messages", "num_deleted", "num_subjects"


@dataclass(frozen=True, slots=True)
class Numbers:
    """The sequences of a stream, and the number of its messages."""

    first: int
    last: int
    messages: int
    deleted: int
    """Messages that were removed between the first and the last one."""
    subjects: int

    @property
    def removed(self) -> int:
        """The number of sequences that are not stored (any more): if it stays the same, nothing was removed."""
        return self.last - self.messages

    @classmethod
    def of(cls, info: Any) -> "Numbers":
        """Read the answer to STREAM.INFO."""
        state = inner(info.get("state"))
        return cls(*(integer(state.get(name)) for name in _STATE))


class WatchedStream:
    """One stream, as far as it was read."""

    def __init__(self, access: ReadAccess, state: StreamState, fired_by: FiredBy, numbers: Numbers) -> None:
        """Begin with nothing."""
        self._access = access
        self._loop = asyncio.get_running_loop()
        self._state = state
        self._fired_by = fired_by
        # The node of a consumer may deliver what the leader has removed before.
        is_stale = may_lag(access.connection, state.config) and numbers.deleted <= MAX_LISTED_DELETED
        self._removed = None if is_stale else numbers.removed
        """`Numbers.removed` when what was removed until then was found; None if that is still to be done."""
        self._views: WeakSet[EngineView] = WeakSet()
        self._viewed_at = float("-inf")
        self.fires = ReadFires()
        """What the server has fired."""
        self._stored = StoredSchedules(state.rules, (ADR51,), fired_by, notify_fired=self.fires.take)
        self._measured = 0
        """The bytes that it took when that was measured."""
        self._taken = 0
        """The bytes that may have been added since."""
        self.began = self._loop.time()
        self.through = 0
        """Everything up to this sequence was read."""

    @property
    def count(self) -> int:
        """The number of schedules that are held."""
        return self._stored.count

    @property
    def bytes(self) -> int:
        """The bytes that it takes at most; `measure` finds out what it takes."""
        return self._measured + self._taken

    async def measure(self) -> None:
        """Measure what it takes."""
        if self._taken:
            self._taken = 0  # what is taken meanwhile counts beside it
            self._measured = await self._access.turns.run(self._stored.measured())

    @property
    def view(self) -> EngineView:
        """A view of what was read, for one request."""
        view = self._stored.view
        self._views.add(view)
        self._viewed_at = self._loop.time()
        return view

    @property
    def is_in_use(self) -> bool:
        """True if a request still has a view of it."""
        return bool(self._views) and self._loop.time() - self._viewed_at < VIEW_LIMIT_SECONDS

    def is_of(self, state: StreamState, fired_by: FiredBy) -> bool:
        """Return whether the stream is still the one that was read, and not in an earlier state."""
        known = self._state
        is_same = (state.created, state.config, fired_by) == (known.created, known.config, self._fired_by)
        return is_same and state.last_sequence >= self.through

    def is_cheaper_anew(self, numbers: Numbers) -> bool:
        """Return whether to read the stream again costs less than to look up what is held of it."""
        is_looked_up = numbers.removed != self._removed and numbers.deleted > MAX_LISTED_DELETED
        return is_looked_up and reads_all(self._state.config) and numbers.messages < READ_COST_FACTOR * self.count

    def emptied(self) -> Generator[None, None, None]:
        """Release everything, and yield after each unit of work; it is not to be used any more."""
        return self._stored.emptied()

    # -- what was stored -----------------------------------------------------------------------------------------

    async def read_on(self, numbers: Numbers, notify_read: Callable[[], Awaitable[None]]) -> None:
        """Read what was stored since, and remove what is not stored any more; `notify_read` is called now and then.

        Raises `ServiceError` if that is too much, `SchedulerError` if the server does not answer as expected.
        """
        self._check_size(numbers)
        access, stored = self._access, self._stored
        reader = StretchReader(access.connection, access.api, self._state.config)
        chunks = reader.forwards(self.through, numbers.last, lambda subject: stored.held.on(subject) is not None)
        async with aclosing(chunks):
            async for chunk in chunks:
                await access.turns.run(_taken(stored, chunk, access.now()))
                schedules = (one for one in chunk if one.block and ADR51.schedule in one.block)
                self._taken += sum(MOST_BYTES + len(one.subject) + len(one.block) for one in schedules)
                if chunk:
                    self.through = max(self.through, chunk[-1].sequence)
                await notify_read()
                await access.turns.moment_without_fires()  # the next chunk is parsed when it comes
        self.through = max(self.through, numbers.last)
        if numbers.removed != self._removed:
            await self._remove_gone(numbers)
        await notify_read()

    def _check_size(self, numbers: Numbers) -> None:
        stored = StreamNumbers(numbers.last, numbers.messages, numbers.subjects)
        is_by_subject = stored.are_fewer_subjects(self.through)
        count = numbers.subjects if is_by_subject else min(numbers.last - self.through, numbers.messages)
        if count > MAX_LOOKED_UP and not reads_all(self._state.config):
            raise ServiceError(
                UNAVAILABLE,
                f"stream {self._state.name!r} has {count} messages or subjects that can only be looked up one by one: "
                f"at most {MAX_LOOKED_UP} are; `nats-scheduler ls` looks up all",
            )

    # -- what was removed ----------------------------------------------------------------------------------------

    async def _remove_gone(self, numbers: Numbers) -> None:
        """Hold nothing more of what the stream does not store any more."""
        access = self._access
        if numbers.deleted > MAX_LISTED_DELETED:
            gone = await self._not_found()
        else:
            info = await access.api.call(f"STREAM.INFO.{self._state.name}", {"deleted_details": True})
            numbers = Numbers.of(info)
            listed = inner(info.get("state")).get("deleted") or ()
            gone = await access.turns.run(_gone(self._stored, numbers.first, numbers.last, frozenset(listed)))
        await access.turns.run(_removed(self._stored, gone, access.now()))
        self._removed = numbers.removed

    async def _not_found(self) -> list[tuple[str, int]]:
        """Return what cannot be looked up any more, by subject and sequence."""
        gone: list[tuple[str, int]] = []

        async def look(subject: str, sequence: int) -> None:
            if await self._access.api.message(self._state.name, seq=sequence) is None:
                gone.append((subject, sequence))

        await in_turn((partial(look, *place) for place in _places(self._stored)), LOOKUPS_IN_FLIGHT)
        return gone


def _taken(stored: StoredSchedules, messages: Sequence[StoredMessage], now: int) -> Generator[None, None, None]:
    """Read messages, some at a time."""
    for start in range(0, len(messages), MESSAGES_PER_UNIT):
        stored.take(messages[start : start + MESSAGES_PER_UNIT], now)
        yield


def _removed(stored: StoredSchedules, gone: Sequence[tuple[str, int]], now: int) -> Generator[None, None, None]:
    """Remove what is gone, some at a time."""
    for start in range(0, len(gone), MESSAGES_PER_UNIT):
        stored.remove(gone[start : start + MESSAGES_PER_UNIT], now)
        yield


def _gone(
    stored: StoredSchedules, first: int, last: int, deleted: Collection[int]
) -> Generator[None, None, list[tuple[str, int]]]:
    """Find what is held and was deleted, or lies before the first message or behind the last one."""
    gone: list[tuple[str, int]] = []
    places = _places(stored)
    while part := list(islice(places, COMPARED_PER_UNIT)):
        gone += [place for place in part if not first <= place[1] <= last or place[1] in deleted]
        yield
    return gone


def _places(stored: StoredSchedules) -> Iterator[tuple[str, int]]:
    """Yield what is held, rejected or paused, by subject and sequence; nothing may change until the end."""
    held = stored.held
    yield from ((one.subject, one.sequence) for one in held.objects())
    rows = held.stored_before(sys.maxsize, frozenset())
    yield from (place for part in rows for place in part if not held.has_object(place[0]))
    yield from ((subject, rejected.sequence) for subject, rejected in stored.rejected.items())
    yield from ((subject, paused.sequence) for subject, paused in stored.paused.items())
