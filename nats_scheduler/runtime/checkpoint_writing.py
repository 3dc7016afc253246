"""Write the checkpoint of each stream: when it is its turn, or at once after a fire that may be gone already.

A checkpoint is a request to the registry: a thousand a second would cost more than the fires that they cover. So each
stream writes once a second if there are few, and in turn if there are many.
They are read here too, when a stream becomes ours.

The rules:

- A checkpoint is written only if something happened since the last one, and only by the owner: not while we fire on
  trial in addition to another one, nor after the stream was handed over.
- A checkpoint in a format that we do not know says what is settled, and we cannot read it: so it denies us to serve
  the stream, like a missing permission (`engine.ownership.ability`). It is not replaced.
- A stream that keeps its fires may wait for its turn: the fires themselves show what happened, and a checkpoint only
  says how much of the stream need not be compared. On one that does not, the checkpoint alone shows after a crash that
  a fire happened, so it follows each fire closely.
"""

import asyncio
from collections.abc import Callable

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.holding.ownership import Denied
from nats_scheduler.engine.inputs import Checkpoint
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.api import reads_all
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.value_formats import UnknownFormatError
from nats_scheduler.runtime.checkpoints import CheckpointKeeper, checkpoint_key, read_checkpoint
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.server_port import Bucket, StreamInformation
from nats_scheduler.schedule.instants import SECOND, next_multiple

TURN_CHECK_INTERVAL_SECONDS = 0.5
"""The interval at which it is checked which streams are next."""

CHECKPOINT_INTERVAL_SECONDS = 1.0
"""Shortest time between two checkpoints of a stream: well inside the shortest useful duplicate window."""

MAX_TURNS_PER_CHECK = 25
"""The most streams that get their turn at each check: some 50 in a second."""


class Pace:
    """Gives the writers of one process their turns.

    None waits longer than it may, however many there are, and the one that waits longest is first.
    """

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
        except SchedulerError:
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
