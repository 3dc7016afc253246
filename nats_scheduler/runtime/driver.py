"""Drive one engine: gather what happened, step, carry out, wake up in time.

Facts arrive one by one, in callbacks; they are gathered and given to the engine together at the end of the event loop's
turn, so that a herd of acknowledgements is one step and its successors one write.
An error inside the engine ends this driver and no other: `failed` says so, and the stream is read anew.
The driver outlives contacts: when one ends the engine keeps what it knows, and goes on when the next one caught up.
A process that stood still (SIGSTOP, a suspended machine) knows what was true before, and others may have fired
meanwhile: nothing fires through its old contact, and what happened is read first.

Cost: one call to the engine a turn. Limit: the precision of a wake is that of the event loop (`runtime.punctual`).
"""

import asyncio
from collections.abc import Callable
from typing import Any

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
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.garbage import Load
from nats_scheduler.runtime.standstill import Standstill
from nats_scheduler.schedule.instants import MILLISECOND, SECOND

LONGEST_SLEEP_SECONDS = 0.5
"""The wall clock is looked at this often at least, so that a step of it is noticed."""

STOOD_STILL = 1_500 * MILLISECOND
"""A step so long (ns) after the one before comes from a process that did not run: others may have taken over.

Less than `engine.leases.LEASE_DURATION`, after which they do; a driver in contact steps every `LONGEST_SLEEP_SECONDS`.

Well inside the shortest useful duplicate window: until that is over, a repeated fire is dropped by the server.
"""

NO_CONTACT = "there is no contact with the stream"


class StreamDriver:
    """One engine, the clock, and the contact of the moment."""

    def __init__(self, engine: StreamEngine, clock: Clock, report: Callable[[Event], None]) -> None:
        self.engine = engine
        self._clock = clock
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._port: StreamPort | None = None
        self._inputs: list[Input] = []
        self._step_is_due = False
        self._timer: asyncio.TimerHandle | None = None
        self._standstill = Standstill(clock.now, clock.monotonic)
        """Since the last step or the contact began."""
        self._handlers: dict[type[Any], Callable[[Any], None]] = {
            Report: lambda action: self._report(action.event),
            PublishFires: self._publish,
            ReadContent: self._read,
            ReadDuplicate: self._read_duplicate,
            PurgeSchedule: self._purge,
            RemoveExpired: self._remove,
            WakeAt: self._wake_at,
        }
        self._load = Load()
        self._idle = asyncio.Event()
        self._stopped = False
        self.failed: asyncio.Future[Exception] = self._loop.create_future()
        """Resolves when the engine broke: what it knows cannot be trusted any more, and a new one has to be built."""
        self.outdated: asyncio.Future[str] = self._loop.create_future()
        """Resolves, with the reason, when what came through the contact may be old: it was ended; a new one is due."""

        self.caught_up = asyncio.Event()
        """Set each time that a contact caught up: what it read may be of another state of the stream than before."""

    @property
    def has_contact(self) -> bool:
        """Whether there is a contact with the stream at this moment."""
        return self._port is not None

    def attach(self, port: StreamPort) -> None:
        """Work through this contact from now on; nothing fires before it has caught up."""
        self._port = port
        if self.outdated.done():
            self.outdated = self._loop.create_future()
        self._standstill.gap()
        self._keep_waking()

    def detach(self, reason: str) -> None:
        """End the contact. What was in flight through it becomes unknown."""
        port, self._port = self._port, None
        if port is not None:
            port.end(reason)
        self.tell(ContactLost(reason))

    def tell(self, fact: Input) -> None:
        """Take a fact; it is acted on in this turn of the event loop or the next."""
        if isinstance(fact, CaughtUp):
            if self._port is None:
                return  # with a contact that has ended meanwhile
            self.caught_up.set()
        self._inputs.append(fact)
        self._soon()

    async def drain(self, within_seconds: float) -> bool:
        """Begin nothing more, and wait until nothing is in flight; False when `within_seconds` passed first.

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
        return not self.failed.done()

    def stop(self) -> None:
        """Never step again."""
        if self._timer is not None:
            self._timer.cancel()
        self._step_is_due = True  # no further step will be scheduled
        self._stopped = True
        self._idle.set()

    def _fail(self, error: Exception) -> None:
        if not self.failed.done():
            self.failed.set_result(error)
        self.stop()

    def _soon(self) -> None:
        if not self._step_is_due:
            self._step_is_due = True
            self._loop.call_soon(self._step)

    def _step(self) -> None:
        self._step_is_due = False
        self._beware_of_old_knowledge()
        inputs, self._inputs = self._inputs, []
        try:
            self._carry_out(self.engine.step(self._clock.now(), inputs))
        except Exception as error:
            self._fail(error)
            return
        self._load.grew_to(len(self.engine.held))
        self._keep_waking()
        if self.engine.is_idle and not self._inputs:
            self._idle.set()

    def _beware_of_old_knowledge(self) -> None:
        """End the contact of a process that stood still."""
        # Asked here, not at the end of the step: a process may also be stopped in the middle of one.
        gap = self._standstill.gap()
        if self._port is not None and gap > STOOD_STILL:
            reason = f"the process stood still, or the clock was set, for {gap / SECOND:.1f} s"
            self.detach(reason)
            self.outdated.set_result(reason)

    def _keep_waking(self) -> None:
        """Wake up while there is a contact, so that it is noticed when the process stands still."""
        if self._timer is None and self._port is not None:
            self._sleep(LONGEST_SLEEP_SECONDS)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            self._handlers[type(action)](action)

    def _publish(self, request: PublishFires) -> None:
        if self._port is not None:
            self._port.publish(request.fires)
            return
        for fire in request.fires:
            self.tell(PublishConcluded(fire, Unknown(NO_CONTACT)))

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
            self.tell(PurgeConcluded(request.schedule, request.through, NO_CONTACT))

    def _remove(self, request: RemoveExpired) -> None:
        if self._port is not None:
            self._port.remove(request)
        else:
            self.tell(ExpiryConcluded(request.sequence, failure=NO_CONTACT))

    def _wake_at(self, action: WakeAt) -> None:
        wait = (action.instant - self._clock.now()) / SECOND
        if wait <= 0:
            self._soon()
        else:
            self._sleep(min(wait, LONGEST_SLEEP_SECONDS))

    def _sleep(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._woken)

    def _woken(self) -> None:
        self._timer = None
        if not self._step_is_due:
            self._step()
