"""Drive one engine: gather what happened, step, carry out, wake up in time.

Facts arrive one by one, in callbacks; they are gathered and given to the engine together at the end of the event loop's
turn, so that a herd of acknowledgements is one step and its successors one write.
An error inside the engine ends this driver and no other: `failed` says so, and the stream is read anew.
The driver outlives contacts: when one ends the engine keeps what it knows, and goes on when the next one caught up.
After a standstill of the process (`runtime.wakes`) nothing fires through the old contact, and what happened is read
first.

Cost: one call to the engine a turn in which something happened to the stream, and none in others.
"""

import asyncio
from collections.abc import Callable
from typing import assert_never

from nats_scheduler.engine.actions import (
    Action,
    PublishFires,
    PurgeSchedule,
    ReadContent,
    ReadDuplicate,
    RemoveExpired,
    Report,
    WakeAt,
)
from nats_scheduler.engine.events import Event
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    ContentUnread,
    DrainRequested,
    DuplicateUnread,
    ExpiryConcluded,
    Input,
    PublishConcluded,
    PurgeConcluded,
    Unknown,
)
from nats_scheduler.engine.port import StreamPort
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.garbage import Load
from nats_scheduler.runtime.wakes import Wakes

NO_CONTACT = "there is no contact with the stream"


class StreamDriver:
    """One engine, the clock, and the contact of the moment."""

    def __init__(
        self, engine: StreamEngine, clock: Clock, report: Callable[[Event], None], wakes: Wakes | None = None
    ) -> None:
        """Drive an engine; `wakes` is what the drivers of a process share, None where there is no other."""
        self.engine = engine
        self._wakes = Wakes(clock) if wakes is None else wakes
        self.wake_at: int | None = None
        """When (ns) the engine wants to step next, whatever happens."""
        self._clock = clock
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._port: StreamPort | None = None
        self._inputs: list[Input] = []
        self._step_is_due = self._was_stepped = False
        self.notify_of_step: Callable[[], object] = lambda: None
        """Called before each step of the engine; nothing that is known of the stream changes in between."""
        self._now = 0
        """The time of the last step (ns)."""
        self._load = Load()
        self._idle = asyncio.Event()
        self._stopped = False
        self.failed: asyncio.Future[Exception] = self._loop.create_future()
        """Resolves when the engine broke: what it knows cannot be trusted any more, and a new one has to be built."""
        self.outdated: asyncio.Future[str] = self._loop.create_future()
        """Resolves, with the reason, when what came through the contact may be old: it was ended; a new one is due."""

        self.caught_up = asyncio.Event()
        """Set each time that a contact caught up: what it read may be of another state of the stream than before."""
        self.witness: StoredMessage | None = None
        """The last message that was read before contact was lost, until somebody has seen that it is still there."""

    @property
    def has_contact(self) -> bool:
        """Whether there is a contact with the stream at this moment."""
        return self._port is not None

    def attach(self, port: StreamPort) -> None:
        """Work through this contact from now on; nothing fires before it has caught up."""
        self._port = port
        if self.outdated.done():
            self.outdated = self._loop.create_future()
        self._wakes.attach(self)

    def detach(self, reason: str) -> None:
        """End the contact. What was in flight through it becomes unknown."""
        port, self._port = self._port, None
        self._wakes.detach(self)
        if port is not None:
            port.end(reason)
        self.tell(ContactLost(reason))

    def tell(self, fact: Input) -> None:
        """Take a fact; it is acted on in this turn of the event loop or the next."""
        if isinstance(fact, CaughtUp):
            if self._port is None:
                return  # with a contact that has ended meanwhile
            self.caught_up.set()
        elif isinstance(fact, ContactLost) and self.witness is None:
            self.witness = self.engine.last_message
        self._inputs.append(fact)
        self._soon()

    async def drain(self, within_seconds: float) -> bool:
        """Begin nothing more, and wait until nothing is in flight; False when `within_seconds` passed first.

        False as well where contact was lost meanwhile and with it the answer to a fire.
        A driver that was stopped, before or meanwhile, has nothing to wait for; one whose engine broke cannot tell.
        """
        self.tell(DrainRequested())
        if not self._stopped:
            self._idle.clear()
        try:
            async with asyncio.timeout(within_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return not self.failed.done() and (self._stopped or not self.engine.has_unknown)

    def stop(self) -> None:
        """Never step again."""
        self.wake_at = None
        self._wakes.detach(self)
        self._stopped = True
        self._idle.set()

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
        self.stop()

    def _soon(self) -> None:
        if not self._step_is_due:
            self._step_is_due = True
            self._wakes.soon(self)

    def step_if_due(self) -> None:
        """Step, unless it was done since that was asked for."""
        if self._step_is_due:
            self.step()

    def step(self) -> None:
        """Take what happened, and act on it and on the time."""
        if self._stopped:
            return
        self._step_is_due, self._was_stepped = False, True
        self.notify_of_step()
        self._now = self._clock.now()
        inputs, self._inputs = self._inputs, []
        try:
            self._carry_out(self.engine.step(self._now, inputs))
        except Exception as error:
            self._fail(error)
            return
        self._load.grew_to(len(self.engine.held))
        if not self.engine.is_idle:
            self._wakes.is_restless(self)
        elif not self._inputs:
            self._idle.set()

    def step_if_restless(self) -> bool:
        """Step where something is under way and there was no step since this was asked last.

        Returns whether something is under way still.
        """
        if not self._was_stepped and not self.engine.is_idle:
            self.step()
        self._was_stepped = False
        return not self.engine.is_idle

    def outdate(self, reason: str) -> None:
        """End the contact: others may have fired since what came through it was true."""
        if self._port is not None:
            self.detach(reason)
            self.outdated.set_result(reason)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:  # the most frequent first: each case that does not match costs about 0.07 us
                case Report():
                    self._report(action.event)
                case ReadContent():
                    self._read(action)
                case PurgeSchedule():
                    self._purge(action)
                case PublishFires():
                    self._publish(action)
                case WakeAt():
                    self._wake_at(action)
                case ReadDuplicate():
                    self._read_duplicate(action)
                case RemoveExpired():
                    self._remove(action)
                case _:
                    assert_never(action)

    def _publish(self, request: PublishFires) -> None:
        if self._port is not None:
            self._port.publish(request.fires)
            return
        for fire in request.fires:
            self.tell(PublishConcluded(fire, Unknown(NO_CONTACT, may_be_stored=False)))

    def _read(self, request: ReadContent) -> None:
        if self._port is not None:
            self._port.read(request)
        else:
            self.tell(ContentUnread(request.schedule, request.sequence, NO_CONTACT))

    def _read_duplicate(self, request: ReadDuplicate) -> None:
        if self._port is not None:
            self._port.read_duplicate(request)
        else:
            self.tell(DuplicateUnread(request.fire, NO_CONTACT))

    def _purge(self, request: PurgeSchedule) -> None:
        if self._port is not None:
            self._port.purge(request)
        else:
            self.tell(PurgeConcluded(request.schedule, request.through, NO_CONTACT, known=request.known))

    def _remove(self, request: RemoveExpired) -> None:
        if self._port is not None:
            self._port.remove(request)
        else:
            self.tell(ExpiryConcluded(request.sequence, failure=NO_CONTACT))

    def _wake_at(self, action: WakeAt) -> None:
        if action.instant <= self._now:
            self._soon()
        else:
            self._wakes.wake(self, action.instant)
