"""Serve one stream for as long as it is the same stream: its engine, its contacts, its checkpoints, and if we own it.

The engine outlives connections, so that after a reconnect only what is new is read.
It does not outlive the stream: a stream that was deleted and created again, that went back to an earlier state, or that
got other rules needs a new service.

The rule: other parts notify the service, and ask it or its engine. Its driver is its own.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.engine.events import Event, FireStored, ScheduleAccepted, ScheduleRejected
from nats_scheduler.engine.holding.contents import ContentMemory
from nats_scheduler.engine.holding.guard import OF_TABLE
from nats_scheduler.engine.holding.ownership import Denied
from nats_scheduler.engine.inputs import CalendarsRead, OwnershipChanged, RemovalRequested, ServerLimited, StreamChanged
from nats_scheduler.engine.stream_port import StreamPort
from nats_scheduler.engine.views.view import EngineView, FiredBy
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.jetstream.task_group import TaskGroup, first_of
from nats_scheduler.message.capabilities import DEFAULT_MAX_PAYLOAD, Capabilities
from nats_scheduler.message.rejection import Failing
from nats_scheduler.runtime.checkpoint_writing import CheckpointWriter, Pace
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.continuity import StreamWentBackError, watch_for_a_step_back
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.runtime.engine_basis import basis_of
from nats_scheduler.runtime.first_contact import RestartReports, continue_from
from nats_scheduler.runtime.modes import FIRED_BY, Mode
from nats_scheduler.runtime.removals import Removals
from nats_scheduler.runtime.schedule_file import ScheduleFile
from nats_scheduler.runtime.server_port import Bucket, Contacts, StreamContents, StreamInformation
from nats_scheduler.runtime.wakes import Wakes
from nats_scheduler.schedule.calendars import KnownCalendars
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.sidecar_settings import SidecarSettings

HANDOVER_OVERLAP_SECONDS = 0.5
"""The time for which this instance continues to fire for a stream that another one owns now, which has yet to receive
that and to read our checkpoint. What both fire is stored once; what neither fires is late."""

SILENT_ACK_LIMIT_NS = SECOND
"""Longest wait (ns) for an acknowledgement on a stream that sends none: its fires are read back, or not at all."""

FILLING = frozenset((ScheduleAccepted, ScheduleRejected))
"""The events of messages that may take the place of older ones."""


class EngineFailedError(SchedulerError):
    """The engine of a stream raised `cause`; the stream has to be read again.

    It is an error of our own, unless it `is_of_file`: then the file of schedules cannot be used any more.
    """

    def __init__(self, stream: str, cause: Exception, *, is_of_file: bool) -> None:
        super().__init__(stream)
        self.cause = cause
        self.is_of_file = is_of_file


class _ContactOverError(Exception):
    """A contact ended, and with it all requests that were sent through it."""


def key_of(name: str, mode: Mode) -> str:
    """Return the name of a stream in records and heartbeats."""
    return f"{mode}.{name}"


@dataclass(frozen=True, slots=True)
class LeftStream:
    """A stream that is left to other instances: they read it, and nothing of it is held here."""

    state: StreamState
    mode: Mode

    @property
    def key(self) -> str:
        """The name of the stream in records and heartbeats."""
        return key_of(self.state.name, self.mode)

    @property
    def others_fired_by(self) -> FiredBy | None:
        """Who fires the schedules that sidecars do not fire; None if sidecars fire all of them."""
        return FIRED_BY.get(self.mode)


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
        memory: ContentMemory | None = None,
        notify_named: Callable[[], object] = lambda: None,
        file: ScheduleFile | None = None,
    ) -> None:
        """Fire nothing; `wakes`, `pace` and `memory` are shared by the streams of a process, None if there is one.

        `notify_named` is called when a schedule names another calendar. The schedules are rows of `file`, which is
        shared too; None: they are in memory.
        """
        self.state = state
        """The state of the stream as the server reported it last."""
        self.mode = mode
        self._name, self.key = state.name, key_of(state.name, mode)
        """The name of the stream in records and heartbeats."""
        self._server = server
        self._settings = settings
        self._clock = clock
        self._basis = basis_of(state, mode, server)
        self._rows = None if file is None else file.stream(state.name, mode.value, self._basis.digest(settings))
        table = None if self._rows is None else self._rows.table
        self.engine = self._basis.new_engine(settings, memory, notify_named, table)
        """To look at: only the service and its parts change it."""
        self._report = report
        budget = self._basis.budget(settings)
        self._driver = StreamDriver(
            self.engine, clock, self._reported, wakes, is_guarded=server.has_guard, budget=budget
        )
        self._driver.receive(OwnershipChanged(False))
        self._max_payload = DEFAULT_MAX_PAYLOAD
        self.limited(server.max_payload)
        self.is_owner = False
        """True if this instance fires for the stream."""
        self.is_on_trial = False
        """True if it does so in addition to the owner, to test whether it can."""
        self.is_reported_owner = False
        """True if it was reported that this instance owns the stream."""
        self._is_handed_over = False
        self._ceasing: asyncio.TimerHandle | None = None
        """What ends our fires for a stream that another instance owns."""
        self._checkpoints = CheckpointWriter(
            self.engine, state, mode, clock, pace or Pace(), self._writes, self._driver.ask_for_judgement
        )
        if self._rows is not None:
            self._rows.attach(self.engine, self._driver.fail)
        self._removals = Removals(self.engine, state, self._driver.receive, clock.now)

    # -- what others may ask -------------------------------------------------------------------------------------

    @property
    def has_contact(self) -> bool:
        """True if there is contact with the stream."""
        return self._driver.has_contact

    @property
    def others_fired_by(self) -> FiredBy | None:
        """Who fires the schedules that sidecars do not fire; None if sidecars fire all of them."""
        return FIRED_BY.get(self.mode)

    @property
    def last_read(self) -> int:
        """The sequence of the last message that was read, 0 before any."""
        return self.engine.last_read

    @property
    def view(self) -> EngineView:
        """The view of what is held."""
        return self.engine.view()

    @property
    def failing_count(self) -> int:
        """The number of schedules with a fire that the server refuses at the moment."""
        return self.engine.failing_count

    def failing(self, most: int) -> Sequence[tuple[int, Failing]]:
        """Return at most `most` of them by sequence, those that fail longest first, and why."""
        return self.engine.failing(most)

    @property
    def is_ready(self) -> bool:
        """True if there is contact with the stream and all that is stored has been read."""
        return self.has_contact and self.engine.is_live

    @property
    def is_finished(self) -> bool:
        """True if nothing is in flight, and of each fire that was sent it is known whether it is stored."""
        return self._driver.is_finished

    @property
    def denied(self) -> Denied | None:
        """The last denial by the server of something that the owner of the stream has to do."""
        return max(filter(None, (self._checkpoints.denied, self.engine.ownership.denied)), default=None)

    def notify_of_changes(self, notify: Callable[[], object]) -> None:
        """Call `notify` when `is_live` changed, and while there is anything to judge: see `runtime.this_instance`."""
        self._driver.notify_of_change = notify

    def serves_the_same(self, state: StreamState, mode: Mode, server: Capabilities) -> bool:
        """Return whether the engine can continue: nothing that it depends on has changed."""
        # With contact, what was read last may be newer than `state`; without, the stream was rolled back.
        is_continued = self.has_contact or state.last_sequence >= self.engine.last_read
        return is_continued and self._has_this_basis(state, mode, server)

    def _has_this_basis(self, state: StreamState, mode: Mode, server: Capabilities) -> bool:
        # In a round over all streams nothing has changed, and it takes 10 us to interpret a configuration.
        is_same = self._is_configured_as(state) and mode is self.mode and server == self._server
        return is_same or basis_of(state, mode, server) == self._basis

    def _is_configured_as(self, state: StreamState) -> bool:
        known = self.state
        return (state.created, state.remembered, state.config) == (known.created, known.remembered, known.config)

    # -- what others may notify of -------------------------------------------------------------------------------

    def update(self, state: StreamState) -> None:
        """Take what the server says of the stream now; a change that schedules do not depend on may end a refusal."""
        if state.config != self.state.config:
            self._driver.receive(StreamChanged())
            self.engine.lifetimes.limited(state.rules)
        if not self._is_configured_as(state):
            self._basis = basis_of(state, self.mode, self._server)
            self._checkpoints.configured(state)
        self.state = state
        self._removals.listed(state)
        if state.last_sequence < self.engine.last_read:
            self._driver.caught_up.set()  # it may have gone back: that is checked closely

    def limited(self, max_payload: int) -> None:
        """Take how many bytes of headers and body together the server takes from now on."""
        if max_payload != self._max_payload:
            self._max_payload = max_payload
            self._driver.receive(ServerLimited(max_payload))

    def recheck(self, subject_filter: str | None, sequence: int | None, below: int | None) -> None:
        """Re-check what a client asked to remove: before its next fire, and in a moment whether it is stored."""
        request = RemovalRequested(subject_filter, sequence, below)
        self._driver.receive(request)
        self._removals.requested(request)

    def read_calendars(self, known: KnownCalendars, *, is_followed: bool = True) -> None:
        """Take the calendars of the account as they are now, and whether their edits are received."""
        self._driver.receive(CalendarsRead(known, is_followed))

    def report_again(self) -> None:
        """Write the next checkpoint even if nothing happened since the last one: the bucket is a new one."""
        self._checkpoints.bucket_replaced()

    def fires_on_trial(self, is_on_trial: bool) -> None:
        """Note whether we fire in addition to the owner, which writes the checkpoint."""
        self.is_on_trial = is_on_trial

    def handed_over(self, is_handed_over: bool) -> None:
        """Note whether another instance owns the stream since we began to drain; it writes the checkpoint."""
        self._is_handed_over = is_handed_over

    def end(self) -> None:
        """Do nothing any more, and have no start continue from what is known of the stream."""
        self._driver.stop()
        if self._rows is not None:
            self._rows.forget()

    # -- contact -------------------------------------------------------------------------------------------------

    async def serve(
        self,
        contacts: Contacts,
        registry: Bucket | None,
        api: StreamContents,
        reports: RestartReports | None = None,
    ) -> None:
        """Serve the stream through one contact of one connection, until cancelled or until the contact ends.

        Without a `registry` no checkpoint is written.
        Raises `EngineFailedError` and `StreamWentBackError` if this service cannot continue, another `SchedulerError`
        if another contact may help.
        """
        driver = self._driver
        try:
            async with TaskGroup() as tasks:
                contact = self._contact(contacts, tasks)
                driver.attach(contact)
                driver.caught_up.clear()
                writer = tasks.create_task(self._checkpoints.keep_writing(registry))
                removals = tasks.create_task(self._removals.follow(api))
                follower = tasks.create_task(self._followed(contact, api, reports))
                watcher = tasks.create_task(watch_for_a_step_back(api, self.state.name, driver))
                ends = (follower, watcher, driver.failed, driver.outdated)
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                for task in (writer, removals, follower, watcher):
                    task.cancel()
                raise _ContactOverError  # the group cancels open requests: their answers may take seconds
        except* _ContactOverError:
            pass
        except* OF_TABLE as errors:  # another part than the engine asked the table
            driver.fail(first_of(errors))
        finally:
            driver.detach("contact with the stream ended")
        if driver.failed.done():
            cause = driver.failed.result()
            is_of_file = self._rows is not None and self._rows.lost(cause)
            raise EngineFailedError(self.state.name, cause, is_of_file=is_of_file)
        if driver.outdated.done():
            raise SchedulerError(driver.outdated.result())  # another contact has to read what happened meanwhile
        if not watcher.cancelled():
            raise StreamWentBackError(watcher.result())
        failure = follower.result()
        if failure is not None:
            raise failure

    async def _followed(
        self, contact: StreamPort, api: StreamContents, reports: RestartReports | None
    ) -> SchedulerError | None:
        """Follow until it ends, and return why: the caller decides what a failed contact means."""
        try:
            rows = self._rows
            if rows is not None and await continue_from(rows, self._driver, api, self.state.name, reports):
                self._removals.look_up_all()
            await contact.follow(self.engine.followed_through)
        except SchedulerError as error:
            return error
        except OF_TABLE as error:
            self._driver.fail(error)
        return None

    def _contact(self, contacts: Contacts, tasks: asyncio.TaskGroup) -> StreamPort:
        ack_timeout = self._settings.ack_timeout
        if self._basis.is_silent:
            ack_timeout = min(ack_timeout, SILENT_ACK_LIMIT_NS)
        return contacts(
            self.state.config,
            self._driver.receive,
            tasks,
            holds=lambda subject: self.engine.held.peek(subject) is not None,
            window=self._settings.window,
            ack_timeout=ack_timeout / SECOND,
            history_after=self.engine.history_through if self._basis.has_buried else None,
            last_read=lambda: self.engine.last_read,
            is_standby=lambda: not self.engine.ownership.is_owner,
        )

    # -- ownership -----------------------------------------------------------------------------------------------

    async def own(self, is_owner: bool, registry: Bucket | None, api: StreamInformation) -> bool:
        """Fire for the stream from now on, after it was read how far its last owner settled it; or do not any more.

        We continue to fire for a stream that we lost for `HANDOVER_OVERLAP_SECONDS`, until the next owner does.
        Returns False, and changes nothing, if the stream is gone, or what is settled cannot be read.
        """
        if is_owner:
            settled = None
            if registry is not None and (settled := await self._checkpoints.read(registry, api)) is None:
                return False
            if self._ceasing is None:
                self._driver.receive(OwnershipChanged(True, settled))
            else:  # we have not ceased to fire
                self._ceasing.cancel()
                self._ceasing = None
        elif self.is_owner:
            self._ceasing = asyncio.get_running_loop().call_later(HANDOVER_OVERLAP_SECONDS, self._cease)
        self.is_owner = is_owner
        self._checkpoints.write_anew()
        return True

    def _cease(self) -> None:
        self._ceasing = None
        self._driver.receive(OwnershipChanged(False))

    def _writes(self) -> bool:
        """Return whether this instance writes what is known of the stream, and no other one."""
        return self.is_owner and not self._is_handed_over and not self.is_on_trial

    async def drain(self, within_seconds: float) -> bool:
        """Finish what is in flight; False if it did not finish within the time."""
        return await self._driver.drain(within_seconds)

    async def write_checkpoint(self, registry: Bucket) -> None:
        """Write how far the fires are settled, if that is new."""
        await self._checkpoints.write(registry)

    # -- events --------------------------------------------------------------------------------------------------

    def _reported(self, event: Event) -> None:
        if not self._basis.reads_all and isinstance(event, FireStored):
            self._checkpoints.fire_may_be_gone()
        if type(event) in FILLING and self._basis.rules.evicts:
            self._removals.look_up_soon()
        self._report(self._name, event)
