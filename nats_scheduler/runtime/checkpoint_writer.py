"""Write the checkpoints of one stream: when it is its turn, or at once after a fire that may be gone already.

They are read here too, when shards become ours.

The rules:

- A checkpoint is written only if something happened since the last one, and only for shards of which no other instance
  writes it: not for those that another instance holds while we fire for them on trial, nor for those that were handed
  over.
- A checkpoint in a format that we do not know says what is settled, and we cannot read it: so it denies us to serve the
  stream, like a missing permission (`engine.ability`). It is not replaced.
- A stream that keeps its fires may wait for its turn (`runtime.pace`). On one that does not, the checkpoint alone shows
  after a crash that a fire happened, so it follows each fire closely.

Cost: one request for each checkpoint (`runtime.checkpoints`), and the time that the engine takes to compute it; after a
fire that time is at most 2 % of all time.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from nats_scheduler.engine.inputs import CheckpointLoaded
from nats_scheduler.engine.ownership import Denied
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.consumers import reads_all
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.formats import UnknownFormatError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.checkpoints import CheckpointKeeper, checkpoint_key, read_checkpoint
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.pace import CHECKPOINT_INTERVAL_SECONDS, Pace
from nats_scheduler.runtime.port import Bucket, StreamInformation
from nats_scheduler.schedule.instants import SECOND

TURN_LIMIT_SECONDS = 30.0
"""Longest time for which a stream that keeps its fires waits for its turn."""

MAX_SHARE_OF_WINDOW = 0.25
"""And it waits no longer than this part of its duplicate window, or of its `max_age`."""

CHECKPOINT_DELAY_AFTER_FIRE_SECONDS = 0.05
"""How soon after a fire its checkpoint is written if nobody can read the fire back: it may be consumed already.

A server that is killed loses the identity of the fire too, and then the checkpoint alone shows that it happened.
"""

MAX_SHARE_OF_TIME = 0.02
"""No more than this part of the time is spent on computing checkpoints after fires."""


class CheckpointWriter:
    """Writes the checkpoints of one served stream; a `runtime.pace.Writer`."""

    def __init__(
        self,
        engine: StreamEngine,
        state: StreamState,
        mode: Mode,
        clock: Clock,
        pace: Pace,
        shards: Callable[[], frozenset[int]],
        was_denied: Callable[[], object] = lambda: None,
    ) -> None:
        """Prepare; `shards` returns those of which this instance writes the checkpoint at the moment.

        `was_denied` is called when `denied` has changed.
        """
        self._engine = engine
        self._name, self._created, self._mode = state.name, state.created, mode
        self._key = checkpoint_key(state.name, mode)
        self._clock = clock
        self._pace = pace
        self._shards = shards
        self._keeps_fires = reads_all(state.config)
        self._written: tuple[int, int] | None = None
        self._steps_without_news = -1
        """How many steps the engine had made when nothing had happened since the last checkpoint."""
        self._may_write = asyncio.Event()
        """Set when a checkpoint is to be written."""
        self._has_fired = False
        """Whether that is because of a fire that is stored and may be gone already."""
        self._last_duration_seconds = 0.0
        """How long the engine took for the last checkpoint."""
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

    @property
    def has_news(self) -> bool:
        """Whether anything happened since the last checkpoint, and it is ours to write."""
        steps = self._engine.steps
        if steps == self._steps_without_news:
            return False  # the usual answer: each stream is asked twice a second
        if self._progress() == self._written:
            self._steps_without_news = steps
            return False
        return self._engine.is_live and bool(self._shards())

    def take_turn(self) -> None:
        """Write a checkpoint now."""
        self._may_write.set()

    async def keep_writing(self, registry: Bucket) -> None:
        """Write through this bucket until cancelled."""
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
        shards = self._shards()
        if progress == self._written or not self._engine.is_live or not shards:
            return
        settled = self._settled()
        try:
            if await keeper.write(replace(settled, shards=settled.shards & shards)):
                self._written = progress
        except UnknownFormatError as error:
            self._deny(shards, error)
        except JetStreamError:
            return  # the next one contains the same and more

    async def read(
        self, registry: Bucket, api: StreamInformation, gained: frozenset[int]
    ) -> list[CheckpointLoaded] | None:
        """Return how far the last holders of some shards settled them; None if the stream is gone, or denied to us."""
        try:
            read = await read_checkpoint(registry, api, self._name, self._mode, self._clock.now())
        except UnknownFormatError as error:
            self._deny(gained, error)
            return None
        return None if read is None else [replace(one, shards=one.shards & gained) for one in read]

    def _deny(self, shards: frozenset[int], error: UnknownFormatError) -> None:
        self.denied = Denied(self._clock.now(), min(shards), str(error))
        self._was_denied()

    def _progress(self) -> tuple[int, int]:
        return self._engine.last_read, self._engine.fires_stored

    def _settled(self) -> CheckpointLoaded:
        begun = self._clock.monotonic()
        settled = self._engine.checkpoint(self._clock.now())
        self._last_duration_seconds = (self._clock.monotonic() - begun) / SECOND
        return settled

    def _keeper_in(self, registry: Bucket) -> CheckpointKeeper:
        """Return the keeper for this connection; since the last one, the bucket may have been replaced."""
        if self._keeper is None or self._keeper[0] is not registry:
            self.write_anew()
            self._keeper = registry, CheckpointKeeper(registry, self._created, self._key)
        return self._keeper[1]
