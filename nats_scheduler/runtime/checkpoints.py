"""The checkpoint of a stream: how far its fires are settled, as its owner writes it for the next one into the registry.

One value for each stream and mode, written by compare-and-set.

The rules:

- A value that is no checkpoint, belongs to another stream, is ahead of the server's clock, or reaches beyond the end of
  the stream counts as none: using it would lose fires.
- A stream is distinguished from another one of its name by the time of its creation. Servers up to 2.12 report another
  time if a stream was updated and they were restarted. So a checkpoint that was written for another creation is not
  discarded: it applies to the schedules that were stored before the last message that its writer had read. In a stream
  that was created again all schedules are stored later.
- A checkpoint that reaches further than ours, and was written since our last one, stays: another instance owns the
  stream by now. Anything else that was written meanwhile is replaced.

Limit: a forged checkpoint that claims no more than an owner could have settled by now cannot be recognised.
Cost: one request to write while no other instance writes, two more each time that another one did.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

from annotated_types import Len
from pydantic import BaseModel, ConfigDict, NonNegativeInt, ValidationError

from nats_scheduler.engine.holding.ownership import Denied
from nats_scheduler.engine.inputs import NOTHING_SETTLED, Checkpoint
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.api import reads_all
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.registry import UnknownFormatError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.port import Bucket, StreamInformation
from nats_scheduler.schedule.instants import SECOND, next_multiple
from nats_scheduler.schedule.invalid import MAX_SHOWN_CHARS

MAX_CHECKPOINT_LEAD_NS = 5 * SECOND
"""A checkpoint that is further (ns) in the future is not true: all instances use the server's clock, of any node."""

LAGGING_LEADER_WAITS_SECONDS = (0.1, 0.2, 0.4)
"""Waits before the information of a stream is requested again if it ends before what an owner has read.

In a cluster a node may have delivered what the leader applies some hundred milliseconds later.
"""

MAX_CHECKPOINT_WRITE_ATTEMPTS = 8
"""The most attempts at a write while others write; the next checkpoint contains the same and more."""


class CheckpointValue(BaseModel):
    """A checkpoint as it is written; keys that a newer version added are ignored."""

    model_config = ConfigDict(strict=True)

    created: str
    """The stream's creation time, as the server reported it to the writer."""
    through: int
    sequence: NonNegativeInt
    unsettled: list[int] = []
    owed: list[Annotated[list[int], Len(2, 2)]] = []
    """Of the exceptions those that send each missed fire, each with the fire time (ns) of the first."""
    stored_by: int | None = None
    """The instant (ns) at which the last message was stored that the writer had read."""
    calendars: dict[str, int] = {}
    """Calendars that the writer did not know, and up to when (ns) the schedules that name them are settled."""

    @property
    def latest(self) -> int:
        """The latest fire time (ns) that it claims to know of."""
        return max([self.through, *(fire_time for _sequence, fire_time in self.owed), 0])

    def loaded(self, created: str) -> Checkpoint:
        """Return it as the engine of a stream that was created then takes it."""
        return Checkpoint(
            self.through,
            self.sequence,
            frozenset(self.unsettled),
            stored_by=None if self.created == created else self.stored_by,
            owed={pair[0]: pair[1] for pair in self.owed},
            calendars=self.calendars,
        )


class CheckpointKeeper:
    """Writes the checkpoints of one instance for one stream."""

    def __init__(self, registry: Bucket, created: str, key: str, now: Callable[[], int]) -> None:
        """Write nothing yet; `now` returns the time (ns) by the server's clock."""
        self._registry = registry
        self._created = created
        self._key = key
        self._now = now
        self._revision = 0
        self._reached = -1
        """How far (ns) another instance settled the stream that wrote last; -1 if that was this one."""

    async def write(self, settled: Checkpoint) -> bool:
        """Write how far the fires are settled, unless another instance wrote that they are settled further.

        Returns False if others wrote at each attempt. Raises `JetStreamError`.
        """
        value = _value_of(settled, self._created)
        for _ in range(MAX_CHECKPOINT_WRITE_ATTEMPTS):
            if settled.through < self._reached:
                return True
            revision = await self._registry.swap(self._key, value, self._revision)
            if revision is not None:
                self._revision, self._reached = revision, -1
                return True
            given, self._revision = await self._registry.revised(self._key)
            known, _broken = _read(given, self._created)
            is_credible = known is not None and known.created == self._created and not _leads(known, self._now())
            self._reached = known.through if known is not None and is_credible else -1
        return False


async def read_checkpoint(
    registry: Bucket, api: StreamInformation, stream: str, mode: Mode, now: int
) -> Checkpoint | None:
    """Return how far earlier owners settled the fires of a stream: `NOTHING_SETTLED` if none wrote it.

    None if there is no such stream.
    What was written in the emulated mode applies to every mode, since both spellings were served then; the one that
    reaches furthest counts.

    The stream is read last: what an owner writes between the two requests would seem to reach beyond its end.
    """
    keys = [checkpoint_key(stream, written_in) for written_in in sorted({mode, Mode.EMULATED})]
    written = [(key, await registry.get(key)) for key in keys]
    info = await api.stream(stream)
    for wait in LAGGING_LEADER_WAITS_SECONDS:
        if info is None or not _reaches_beyond(StreamState.from_info(info), [value for _key, value in written]):
            break
        await asyncio.sleep(wait)
        info = await api.stream(stream)
    if info is None:
        return None
    state = StreamState.from_info(info)
    found = [_credible(registry, key, value, state, now) for key, value in written]
    return max(found, key=lambda checkpoint: checkpoint.through)


def _credible(registry: Bucket, key: str, value: Mapping[str, Any] | None, state: StreamState, now: int) -> Checkpoint:
    """Return the checkpoint that a value is, `NOTHING_SETTLED` if it cannot be one of this stream."""
    known, is_broken = _read(value, state.created)
    if is_broken:
        registry.broken(key, f"no checkpoint: {str(value)[:MAX_SHOWN_CHARS]}")
    if known is None:
        return NOTHING_SETTLED
    if _leads(known, now):
        ahead = str((known.latest - now) // SECOND)[:MAX_SHOWN_CHARS]
        registry.broken(key, f"it claims fires as settled that are due {ahead} s ahead of the server's clock")
        return NOTHING_SETTLED
    if known.sequence <= state.last_sequence:
        return known.loaded(state.created)
    if known.created == state.created:  # else it is of another stream
        beyond = f"{known.sequence}, and the stream ends at {state.last_sequence}"
        registry.broken(key, f"it covers messages up to sequence {beyond}: forged, or the stream was rolled back")
    return NOTHING_SETTLED


def _leads(known: CheckpointValue, now: int) -> bool:
    """Return whether a checkpoint is too far ahead of the server's clock to be true."""
    return known.latest > now + MAX_CHECKPOINT_LEAD_NS


def _reaches_beyond(state: StreamState, values: Sequence[Mapping[str, Any] | None]) -> bool:
    """Return whether a checkpoint covers messages that the stream does not have, or not yet."""
    known = [_read(value, state.created)[0] for value in values]
    return any(one is not None and one.created == state.created and one.sequence > state.last_sequence for one in known)


def checkpoint_key(stream: str, mode: Mode) -> str:
    """Return the key under which the checkpoint of a stream is kept."""
    return f"checkpoint.{stream}.{mode}"


def _read(value: Mapping[str, Any] | None, created: str) -> tuple[CheckpointValue | None, bool]:
    """Return what may apply to the stream created then, and whether no sidecar can have written the value for it.

    One that was written for another creation may apply if it has `stored_by`.
    """
    if value is None:
        return None, False
    try:
        known = CheckpointValue.model_validate(value)
    except ValidationError:
        return None, value.get("created") == created
    return (known if known.created == created or known.stored_by is not None else None), False


def _value_of(settled: Checkpoint, created: str) -> dict[str, Any]:
    value = CheckpointValue(
        created=created,
        through=settled.through,
        sequence=settled.sequence,
        unsettled=sorted(settled.unsettled),
        owed=sorted([sequence, fire_time] for sequence, fire_time in settled.owed.items()),
        stored_by=settled.stored_by,
        calendars=dict(settled.calendars),
    )
    return value.model_dump(exclude_defaults=True)


# Decide when each stream writes its checkpoint: once a second if there are few streams, and in turn if there are
# many.
#
# A checkpoint is a request to the registry. A thousand a second would cost more than the fires that they cover.
#
# What a late one costs: on a stream that keeps its fires, the fires themselves show what happened, and a checkpoint
# only says how much of the stream need not be compared. On a stream whose fires may be gone before they are read
# again, no checkpoint waits for a turn.
#
# The rule: no stream waits longer for its turn than it may, however many there are, and the one that waits longest is
# first.
# Cost: a check of each stream twice a second.

TURN_CHECK_INTERVAL_SECONDS = 0.5
"""The interval at which it is checked which streams are next."""

CHECKPOINT_INTERVAL_SECONDS = 1.0
"""Shortest time between two checkpoints of a stream: well inside the shortest useful duplicate window."""

MAX_TURNS_PER_CHECK = 25
"""The most streams that get their turn at each check: some 50 in a second."""


class Pace:
    """Gives the writers of one process their turns."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._turns: dict[int, tuple[CheckpointWriter, float]] = {}
        """Each writer, and when (by the loop's clock) it had its last turn; the one that waits longest is first."""
        self._timer: asyncio.TimerHandle | None = None

    def join(self, writer: "CheckpointWriter") -> Callable[[], None]:
        """Give `writer` its turns; returns a function that ends this."""
        self._turns[id(writer)] = writer, self._loop.time()
        if self._timer is None:
            self._check_later()
        return lambda: self._leave(writer)

    def _leave(self, writer: "CheckpointWriter") -> None:
        self._turns.pop(id(writer), None)
        if not self._turns and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        now, left = self._loop.time(), MAX_TURNS_PER_CHECK
        for key, (writer, turn) in list(self._turns.items()):
            waited = now - turn
            if waited < CHECKPOINT_INTERVAL_SECONDS:
                break  # all others had theirs later
            if (left > 0 or waited >= writer.longest_wait_seconds) and writer.has_news:
                left -= 1
                del self._turns[key]
                self._turns[key] = writer, now
                writer.take_turn()
        self._check_later()

    def _check_later(self) -> None:
        self._timer = self._loop.call_at(next_multiple(self._loop.time(), TURN_CHECK_INTERVAL_SECONDS), self._check)


# Write the checkpoints of one stream: when it is its turn, or at once after a fire that may be gone already.
#
# They are read here too, when a stream becomes ours.
#
# The rules:
#
# - A checkpoint is written only if something happened since the last one, and only by the owner: not while we fire on
#   trial in addition to another one, nor after the stream was handed over.
# - A checkpoint in a format that we do not know says what is settled, and we cannot read it: so it denies us to serve
#   the stream, like a missing permission (`engine.ownership.ability`). It is not replaced.
# - A stream that keeps its fires may wait for its turn. On one that does not, the checkpoint alone shows after a crash
#   that a fire happened, so it follows each fire closely.
#
# Cost: one request for each checkpoint, and the time that the engine takes to compute it; after a fire that time is at
# most 2 % of all time.

TURN_LIMIT_SECONDS = 30.0
"""Longest time for which a stream that keeps its fires waits for its turn."""

MAX_SHARE_OF_WINDOW = 0.25
"""And it waits no longer than this part of its duplicate window, or of its `max_age`."""

CHECKPOINT_DELAY_AFTER_FIRE_SECONDS = 0.05
"""The time from a fire to the write of its checkpoint if nobody can read the fire back: it may be consumed already.

A server that is killed loses the identity of the fire too, and then the checkpoint alone shows that it happened.
"""

MAX_SHARE_OF_TIME = 0.02
"""No more than this part of the time is spent on computing checkpoints after fires."""


class CheckpointWriter:
    """Writes the checkpoints of one served stream."""

    def __init__(
        self,
        engine: StreamEngine,
        state: StreamState,
        mode: Mode,
        clock: Clock,
        pace: Pace,
        is_ours: Callable[[], bool],
        was_denied: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare; `is_ours` returns whether this instance writes the checkpoint at the moment.

        `was_denied` is called when `denied` has changed.
        """
        self._engine = engine
        self._name, self._created, self._mode = state.name, state.created, mode
        self._key = checkpoint_key(state.name, mode)
        self._clock = clock
        self._pace = pace
        self._is_ours = is_ours
        self._keeps_fires = reads_all(state.config)
        self._written: tuple[int, int] | None = None
        self._steps_without_news = -1
        """The number of steps that the engine had made when nothing had happened since the last checkpoint."""
        self._may_write = asyncio.Event()
        """Set when a checkpoint is to be written."""
        self._has_fired = False
        """True if that is because of a fire that is stored and may be gone already."""
        self._last_duration_seconds = 0.0
        """The time that the engine took for the last checkpoint."""
        self._keeper: tuple[Bucket, CheckpointKeeper] | None = None
        self._was_denied = was_denied
        self.denied: Denied | None = None
        """The last checkpoint that we could not read, as something that was denied to us."""
        self.longest_wait_seconds = 0.0
        self.configured(state)

    def configured(self, state: StreamState) -> None:
        """Take the configuration that the stream has now: it decides how long a checkpoint may wait."""
        config = state.config
        if not self._keeps_fires or config.get("max_msgs_per_subject", -1) > 0:
            self.longest_wait_seconds = CHECKPOINT_INTERVAL_SECONDS  # a fire may be gone before it is read back
            return
        window = state.rules.duplicate_window
        shortest = min(window, config.get("max_age") or window)
        self.longest_wait_seconds = min(TURN_LIMIT_SECONDS, MAX_SHARE_OF_WINDOW * shortest / SECOND)

    def fire_may_be_gone(self) -> None:
        """Note a stored fire that may be consumed before it can be read back: its checkpoint follows closely."""
        self._has_fired = True
        self._may_write.set()

    def write_anew(self) -> None:
        """Write the next checkpoint even if nothing happened since the last one."""
        self._written = None
        self._steps_without_news = -1

    def bucket_replaced(self) -> None:
        """Write the next checkpoint into a new bucket, whose revisions may be those that we know of the old one."""
        self._keeper = None
        self.write_anew()

    @property
    def has_news(self) -> bool:
        """True if anything happened since the last checkpoint, and it is ours to write."""
        steps = self._engine.steps
        if steps == self._steps_without_news:
            return False  # the usual answer: each stream is asked twice a second
        if self._progress() == self._written:
            self._steps_without_news = steps
            return False
        return self._engine.is_live and self._is_ours()

    def take_turn(self) -> None:
        """Write a checkpoint now."""
        self._may_write.set()

    async def keep_writing(self, registry: Bucket | None) -> None:
        """Write through this bucket until cancelled; without one nothing is written."""
        if registry is None:
            return
        leave = self._pace.join(self)
        try:
            while True:
                await self._may_write.wait()
                if self._has_fired:
                    pause = self._last_duration_seconds / MAX_SHARE_OF_TIME
                    await asyncio.sleep(max(CHECKPOINT_DELAY_AFTER_FIRE_SECONDS, pause))
                self._may_write.clear()
                self._has_fired = False
                await self.write(registry)
        finally:
            leave()

    async def write(self, registry: Bucket) -> None:
        """Write how far the fires are settled, if that is new; a failure is left to the next checkpoint."""
        keeper = self._keeper_in(registry)
        progress = self._progress()
        if progress == self._written or not self._engine.is_live or not self._is_ours():
            return
        settled = self._settled()
        try:
            is_written = await keeper.write(settled)
            if is_written and self._keeper == (registry, keeper):  # else it may be in the old bucket
                self._written = progress
        except UnknownFormatError as error:
            self._deny(error)
        except JetStreamError:
            return  # the next one contains the same and more

    async def read(self, registry: Bucket, api: StreamInformation) -> Checkpoint | None:
        """Return how far the last owner settled the fires; None if the stream is gone, or that is denied to us."""
        try:
            return await read_checkpoint(registry, api, self._name, self._mode, self._clock.now())
        except UnknownFormatError as error:
            self._deny(error)
            return None

    def _deny(self, error: UnknownFormatError) -> None:
        self.denied = Denied(self._clock.now(), str(error))
        self._was_denied()

    def _progress(self) -> tuple[int, int]:
        return self._engine.complete_through, self._engine.fires_stored

    def _settled(self) -> Checkpoint:
        begun = self._clock.monotonic()
        settled = self._engine.checkpoint(self._clock.now())
        self._last_duration_seconds = (self._clock.monotonic() - begun) / SECOND
        return settled

    def _keeper_in(self, registry: Bucket) -> CheckpointKeeper:
        """Return the keeper for this connection; since the last one, the bucket may have been replaced."""
        if self._keeper is None or self._keeper[0] is not registry:
            self.write_anew()
            self._keeper = registry, CheckpointKeeper(registry, self._created, self._key, self._clock.now)
        return self._keeper[1]
