"""Serve one stream for as long as it is the same stream: its engine, its contacts, its checkpoint.

The engine outlives connections, so that a reconnect costs a look at what is new and not a read of everything.
It does not outlive the stream: one that was deleted and made again, rolled back, or given other rules gets a new
engine.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from nats_scheduler.engine.assembly import ServerLimits
from nats_scheduler.engine.events import Event, FireRefused, FireStored, ScheduleAccepted, StreamReady
from nats_scheduler.engine.inputs import CheckpointLoaded, RemovalRequested, ShardsHeld, StreamChanged
from nats_scheduler.engine.port import StreamPort
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.capabilities import Capabilities
from nats_scheduler.jetstream.contact import reads_all
from nats_scheduler.jetstream.errors import JetStreamError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.task_group import TaskGroup
from nats_scheduler.runtime.checkpoints import CheckpointKeeper, checkpoint_key, read_checkpoint
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.continuity import LAG_CHECK_INTERVAL_SECONDS, StreamWentBackError, is_replicated, step_back
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.modes import Mode, dialects_of
from nats_scheduler.runtime.pace import CHECKPOINT_INTERVAL_SECONDS, Pace
from nats_scheduler.runtime.port import Bucket, Contacts, StreamContents, StreamInformation
from nats_scheduler.runtime.wakes import Wakes
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.sidecar import SidecarSettings

DEFAULT_DUPLICATE_WINDOW_NS = 120 * SECOND
"""What a stream has (ns) that does not say otherwise."""

TURN_LIMIT_SECONDS = 30.0
"""So long a stream that keeps its fires may wait for its checkpoint, where many do."""

MAX_SHARE_OF_WINDOW = 0.25
"""And no longer than this part of its duplicate window."""

CHECKPOINT_DELAY_AFTER_FIRE_SECONDS = 0.05
"""So soon after a fire progress is written down where nobody can read the fire back: it may be consumed already.

A server that is killed forgets its identity with it, and then the checkpoint alone says that it happened.
"""

MAX_SHARE_OF_TIME = 0.02
"""No more than this part of the time is spent on looking how far we are."""

HANDOVER_OVERLAP_SECONDS = 0.5
"""So long we go on firing for shards that are another's: he has yet to hear of it, and to read our checkpoint.

What both fire is stored once; what nobody fires is late.
"""

SILENT_ACK_LIMIT_NS = SECOND
"""Longest wait (ns) for an acknowledgement that does not come, where a fire is seen in the stream or not at all."""


ROLL_UPS_NOT_ALLOWED = 10111
"""The server's code for a message that rolls up its subject in a stream that does not allow it."""


class EngineBrokenError(JetStreamError):
    """The engine of a stream raised an error of our own making; the stream has to be read anew."""


class OutdatedContactError(JetStreamError):
    """What came through a contact may be old: another contact has to read what happened meanwhile."""


class _ContactOverError(Exception):
    """A contact ended, and with it whatever was asked through it."""


class StreamService:
    """One served stream."""

    def __init__(
        self,
        state: StreamState,
        mode: Mode,
        server: Capabilities,
        settings: SidecarSettings,
        clock: Clock,
        report: Callable[[str, Event], None],
        wakes: Wakes | None = None,
        pace: Pace | None = None,
    ) -> None:
        """Begin with nothing; `wakes` and `pace` are what the streams of a process share, None where there is one."""
        self.state = state
        self.mode = mode
        self.key = f"{mode}.{state.name}"
        """What the stream is called among instances."""
        self._server = server
        self._settings = settings
        self._clock = clock
        self._written: tuple[int, int] | None = None
        silent = _is_silent(state)
        blocks = server.has_guard and not server.schedules_natively and is_replicated(state)
        limits = ServerLimits(server.has_guard, server.max_payload, settings.look_ahead, blocks, silent)
        self._ack_timeout = min(settings.ack_timeout, SILENT_ACK_LIMIT_NS) if silent else settings.ack_timeout
        rules = replace(state.rules, restrictions=settings.restrictions_on(state.name))
        self._removes_expired = removes_expired(state, server)
        engine = StreamEngine(
            rules,
            dialects_of(mode),
            limits,
            removes_expired=self._removes_expired,
            reads_all=reads_all(state.config),
        )
        self._report = report
        self._keeps_fires = reads_all(state.config)
        self.longest_wait_seconds = self._longest_wait_seconds()
        """So long the checkpoint may wait for those of other streams."""
        self._pace = Pace() if pace is None else pace
        self._may_write = asyncio.Event()
        """Set when a checkpoint is to be written."""
        self._fired = False
        """Whether that is for a fire that is known to be stored and may be gone already."""
        self._look_seconds = 0.0
        """How long the last look at our progress took."""
        self.driver = StreamDriver(engine, clock, self._tell, wakes)
        self.driver.receive(ShardsHeld(frozenset()))
        self.shards: frozenset[int] = frozenset()
        """The shards that we hold."""
        self.on_trial: frozenset[int] = frozenset()
        """Of these, what another one holds: theirs is the checkpoint."""
        self.given_up: frozenset[int] = frozenset()
        """Shards that others hold since we began to drain: theirs is the checkpoint."""
        self._told_of_roll_ups = False
        self.when_rolling_up: Callable[[], object] = lambda: None
        """Called when it turns out that the stream has to allow roll-ups."""
        self._keeper: tuple[Bucket, CheckpointKeeper] | None = None

    @property
    def is_ready(self) -> bool:
        """Whether there is contact with the stream and all that is stored has been read."""
        return self.driver.has_contact and self.driver.engine.is_live

    def serves_the_same(self, state: StreamState, mode: Mode, server: Capabilities) -> bool:
        """Tell whether the engine may go on: nothing that it relies on has changed."""
        return (
            mode is self.mode
            and server == self._server
            and state.created == self.state.created
            # In contact, what was read last may be newer than `state`; else a stream that is behind was rolled back.
            and (self.driver.has_contact or state.last_sequence >= self.driver.engine.last_read)
            and state.config.get("retention") == self.state.config.get("retention")
            and _is_silent(state) == _is_silent(self.state)
            and is_replicated(state) == is_replicated(self.state)
            and state.rules == self.state.rules
        )

    def is_as(self, state: StreamState) -> None:
        """Take what the server says of the stream now; what changes nothing about its schedules may end a refusal."""
        if state.config != self.state.config:
            self.driver.receive(StreamChanged())
            self.driver.engine.lifetimes.limited(state.rules)
        self.state = state
        self.longest_wait_seconds = self._longest_wait_seconds()
        if state.last_sequence < self.driver.engine.last_read:
            self.driver.caught_up.set()  # it may have gone back: that is looked at closely

    async def serve(self, contacts: Contacts, registry: Bucket, api: StreamContents) -> None:
        """Serve the stream through contacts of one connection, until cancelled or the connection is lost.

        Raises `EngineBrokenError` and `StreamWentBackError` when this service cannot go on, another `JetStreamError`
        when another contact may help.
        """
        driver = self.driver
        try:
            async with TaskGroup() as tasks:
                contact = self._contact(contacts, tasks)
                driver.attach(contact)
                driver.caught_up.clear()
                keeper = tasks.create_task(self._keep_checkpoint(registry))
                follower = tasks.create_task(_followed(contact, driver.engine.followed_through))
                watcher = tasks.create_task(self._watch_for_a_step_back(api))
                ends = (follower, watcher, driver.failed, driver.outdated)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in (keeper, follower, watcher):
                    task.cancel()
                raise _ContactOverError  # the group cancels what is still asked: the answers may take seconds
        except* _ContactOverError:
            pass
        finally:
            driver.detach("contact with the stream ended")
        if driver.failed.done():
            raise EngineBrokenError(self.state.name) from driver.failed.result()
        if driver.outdated.done():
            raise OutdatedContactError(driver.outdated.result())
        if not watcher.cancelled():
            raise StreamWentBackError(watcher.result())
        failure = follower.result()
        if failure is not None:
            raise failure

    async def _watch_for_a_step_back(self, api: StreamContents) -> str:
        """Return how it shows that the stream went back; asked whenever what was read may be of another state."""
        caught_up = self.driver.caught_up
        if not self.driver.engine.last_read:
            await caught_up.wait()
            caught_up.clear()
        while True:
            await caught_up.wait()
            caught_up.clear()
            try:
                witness = self.driver.witness
                if reason := await step_back(api, self.state.name, self.driver.engine, witness):
                    return reason
                if self.driver.witness is witness:
                    self.driver.witness = None
            except JetStreamError:
                await asyncio.sleep(LAG_CHECK_INTERVAL_SECONDS)
                caught_up.set()

    async def hold(self, shards: frozenset[int], registry: Bucket, api: StreamInformation) -> bool:
        """Fire for these shards from now on; where some are new, read first how far their last holder was.

        For those that we lose we go on for `HANDOVER_OVERLAP_SECONDS`, so that somebody fires until the next one does.
        Returns False, and changes nothing, where the stream is gone.
        """
        lost = self.shards - shards
        if shards - self.shards:
            checkpoints = await read_checkpoint(registry, api, self.state.name, self.mode, self._clock.now())
            if checkpoints is None:
                return False
            for checkpoint in checkpoints:
                self.driver.receive(replace(checkpoint, shards=checkpoint.shards & shards - self.shards))
        self.shards = shards
        self.forget_progress()
        self.driver.receive(ShardsHeld(shards | lost))
        if lost:
            asyncio.get_running_loop().call_later(HANDOVER_OVERLAP_SECONDS, self._let_go)
        return True

    def _let_go(self) -> None:
        self.driver.receive(ShardsHeld(self.shards))

    def doubt(self, subject_filter: str | None, sequence: int | None, below: int | None) -> None:
        """Look again at what somebody asked to remove, before it fires."""
        self.driver.receive(RemovalRequested(subject_filter, sequence, below))

    async def drain(self, within_seconds: float) -> bool:
        """Finish what is in flight; False when it did not finish within the time."""
        return await self.driver.drain(within_seconds)

    def _contact(self, contacts: Contacts, tasks: asyncio.TaskGroup) -> StreamPort:
        buried = self._removes_expired and not reads_all(self.state.config)
        return contacts(
            self.state.config,
            self.driver.receive,
            tasks,
            holds=lambda subject: self.driver.engine.held.on(subject) is not None,
            window=self._settings.window,
            ack_timeout=self._ack_timeout / SECOND,
            history_after=self.driver.engine.history_through if buried else None,
        )

    # -- checkpoint ----------------------------------------------------------------------------------------------

    def forget_progress(self) -> None:
        """Write the next checkpoint even where nothing happened since the last one."""
        self._written = None

    def _tell(self, event: Event) -> None:
        if not self._keeps_fires and isinstance(event, FireStored):
            self._fired = True
            self._may_write.set()
        if self._calls_for_roll_ups(event):
            self.when_rolling_up()
        self._report(self.state.name, event)

    @property
    def rolls_up(self) -> bool:
        """Whether any of its schedules rolls up its target, so that the stream has to allow it."""
        return self.driver.engine.held.rolls_up

    def _calls_for_roll_ups(self, event: Event) -> bool:
        """Tell whether an event is the first that shows the need of roll-ups, or that they were switched off since."""
        if isinstance(event, FireRefused):
            return event.code == ROLL_UPS_NOT_ALLOWED
        if self._told_of_roll_ups or not self.rolls_up or not isinstance(event, StreamReady | ScheduleAccepted):
            return False
        self._told_of_roll_ups = True
        return True

    def _longest_wait_seconds(self) -> float:
        """Return how long the checkpoint may wait for those of other streams: not where a fire may be gone by then."""
        config = self.state.config
        if not self._keeps_fires or config.get("max_msgs_per_subject", -1) > 0:
            return CHECKPOINT_INTERVAL_SECONDS
        window = config.get("duplicate_window") or DEFAULT_DUPLICATE_WINDOW_NS
        shortest = min(window, config.get("max_age") or window)
        return min(TURN_LIMIT_SECONDS, MAX_SHARE_OF_WINDOW * shortest / SECOND)

    @property
    def has_news(self) -> bool:
        """Whether anything happened since the last checkpoint, and it is ours to tell."""
        return self._progress() != self._written and self.driver.engine.is_live and bool(self.shards)

    def take_turn(self) -> None:
        """Write a checkpoint now."""
        self._may_write.set()

    async def _keep_checkpoint(self, registry: Bucket) -> None:
        leave = self._pace.join(self)
        try:
            while True:
                await self._may_write.wait()
                if self._fired:
                    await asyncio.sleep(
                        max(CHECKPOINT_DELAY_AFTER_FIRE_SECONDS, self._look_seconds / MAX_SHARE_OF_TIME)
                    )
                self._may_write.clear()
                self._fired = False
                await self.write_checkpoint(registry)
        finally:
            leave()

    def _progress(self) -> tuple[int, int]:
        return self.driver.engine.last_read, self.driver.engine.fires_stored

    async def write_checkpoint(self, registry: Bucket) -> None:
        """Write down how far we are, where that is news."""
        engine, keeper = self.driver.engine, self._keeper_in(registry)
        progress = self._progress()
        shards = self.shards - self.given_up - self.on_trial
        if progress == self._written or not engine.is_live or not shards:
            return
        settled = self._settled()
        try:
            if await keeper.write(replace(settled, shards=settled.shards & shards)):
                self._written = progress
        except JetStreamError:
            return  # the next one says the same and more

    def _settled(self) -> CheckpointLoaded:
        begun = self._clock.monotonic()
        settled = self.driver.engine.checkpoint(self._clock.now())
        self._look_seconds = (self._clock.monotonic() - begun) / SECOND
        return settled

    def _keeper_in(self, registry: Bucket) -> CheckpointKeeper:
        """Return what writes through this connection; since the one before, the bucket may have become another one."""
        if self._keeper is None or self._keeper[0] is not registry:
            self.forget_progress()
            key = checkpoint_key(self.state.name, self.mode)
            self._keeper = registry, CheckpointKeeper(registry, self.state.created, key)
        return self._keeper[1]


def _is_silent(state: StreamState) -> bool:
    """Tell whether a stream acknowledges nothing, and what it stored may be gone before it is read."""
    return state.config.get("no_ack") is True and not reads_all(state.config)


def removes_expired(state: StreamState, server: Capabilities) -> bool:
    """Tell whether it falls to us to remove what has expired: the stream asks for it, and the server does not do it."""
    return state.rules.allow_msg_ttl and not server.has_message_ttl


async def _followed(contact: StreamPort, after: int) -> JetStreamError | None:
    """Follow until it ends, and return why: a failed contact is for the caller to judge."""
    try:
        await contact.follow(after)
    except JetStreamError as error:
        return error
    return None
