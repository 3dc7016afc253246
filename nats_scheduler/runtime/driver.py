"""Drive one engine: collect what happened, step, carry out the actions, and wake up in time.

Inputs arrive one by one, in callbacks. They are passed to the engine together at the end of the event loop's turn, so
that a burst of acknowledgements is one step, and the fires that follow from it are one write.
An error inside the engine ends this driver and no other: `failed` resolves, and the stream is read again from the
beginning.
The driver outlives contacts: when one ends the engine keeps what it holds, and continues when the next one has caught
up.
After a standstill of the process (`runtime.wakes`) nothing fires through the old contact: what happened meanwhile is
read first.

Cost: one call of the engine in each turn in which something happened to the stream, and none in others.
"""

import asyncio
from collections.abc import Callable

from nats_scheduler.engine.actions import Action, PublishFires, PurgeSchedule, RemoveExpired, Report, WakeAt
from nats_scheduler.engine.events import Event
from nats_scheduler.engine.fire import FetchContent, Question
from nats_scheduler.engine.holding.in_flight import MAX_IN_FLIGHT
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContactLost,
    ContentFetched,
    DrainRequested,
    ExpiryConcluded,
    FiresStored,
    Input,
    MessagesRead,
    PublishConcluded,
    PurgeConcluded,
    Unanswered,
    Unknown,
)
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.engine.stream_port import StreamPort
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.clock import Clock
from nats_scheduler.runtime.garbage_collector import Load
from nats_scheduler.runtime.waiting_inputs import WaitingInputs
from nats_scheduler.runtime.wakes import Wakes
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.stream_values import DEFAULT_BUDGET_NS

MAX_IN_FLIGHT_AT_REST = MAX_IN_FLIGHT // 2
"""With more fires in flight, the next ones may soon have to wait for acknowledgements."""

MAX_READ_AT_REST = 256
"""If a step brought more messages, others are loading the stream, and what they store is read as it comes."""

USUAL_INPUTS = (FiresStored, MessagesRead)
"""The inputs that nearly every fire brings: each goes to the engine as it is."""

NO_CONTACT = "there is no contact with the stream"


class StreamDriver:
    """One engine, the clock, and the contact of the moment."""

    def __init__(
        self,
        engine: StreamEngine,
        clock: Clock,
        report: Callable[[Event], None],
        wakes: Wakes | None = None,
        *,
        is_guarded: bool = True,
        budget: int = DEFAULT_BUDGET_NS,
    ) -> None:
        """Drive an engine; `wakes` is shared by the drivers of a process, None if there is only one.

        `budget` is how late (ns) a fire may be sent to share its wake with others.

        `is_guarded` is False if the server does not refuse the fire of a schedule that is gone: then nothing rests, so
        that a request that removes one is seen at once.
        """
        self.engine = engine
        self._wakes = Wakes(clock) if wakes is None else wakes
        self.budget = budget / SECOND
        """How late (s) a fire may be sent to share its wake with others."""
        self.wake_at: int | None = None
        """The instant (ns) of the next step of the engine at the latest; None if it need not make one."""
        self._clock = clock
        self._is_guarded = is_guarded
        self._report = report
        self._loop = asyncio.get_running_loop()
        self._port: StreamPort | None = None
        self._inputs = WaitingInputs()
        self._step_is_due = self._was_stepped = False
        self.notify_of_change: Callable[[], object] = lambda: None
        """Called after each step that failed, that changed `is_live` of the engine, or after which it `is_troubled`."""
        self._is_urgent = False
        """The last value that was passed to `Moderation.hurry`."""
        self._is_owner = False
        """The last value that was passed to `Moderation.owns`."""
        self._ends_schedules = False
        """True if a fire in flight may be the last one of its schedule, which is purged when it is stored."""
        self._urgent_reads: set[int] = set()
        """The sequences of the schedules that were asked for, and may be due before they are read."""
        self._now = 0
        """The time of the last step (ns)."""
        self._load = Load()
        self._idle = asyncio.Event()
        self._stopped = False
        self.failed: asyncio.Future[Exception] = self._loop.create_future()
        """Resolves when the engine raised an error: its state cannot be trusted, and a new engine is needed."""
        self.outdated: asyncio.Future[str] = self._loop.create_future()
        """Resolves, with the reason, when the contact was ended because what it delivered may be out of date."""
        self.caught_up = asyncio.Event()
        """Set each time that a contact has caught up: the stream may be in another state than before."""
        self.witness: StoredMessage | None = None
        """The last message that was read before contact was lost, until it is checked that it is still stored."""

    @property
    def has_contact(self) -> bool:
        """True if there is a contact with the stream at this moment."""
        return self._port is not None

    @property
    def fires_in_flight(self) -> int:
        """The number of fires that were published and are not answered."""
        return self.engine.in_flight.count

    @property
    def is_finished(self) -> bool:
        """True if nothing is in flight, and of each fire that was sent it is known whether it is stored.

        A driver that was stopped has nothing to finish; False if its engine failed.
        """
        return self._knows_what_is_stored and (self._stopped or self.engine.is_idle)

    @property
    def _knows_what_is_stored(self) -> bool:
        return not self.failed.done() and (self._stopped or not self.engine.has_unknown)

    def attach(self, port: StreamPort) -> None:
        """Use this contact from now on; nothing fires before it has caught up."""
        self._port = port
        if self.outdated.done():
            self.outdated = self._loop.create_future()
        self._wakes.attach(self)

    def detach(self, reason: str) -> None:
        """End the contact. The outcome of what was in flight through it is unknown."""
        port, self._port = self._port, None
        self._wakes.detach(self)
        self._is_urgent = False  # `detach` says so
        if port is not None:
            port.end(reason)
        self.receive(ContactLost(reason))

    def receive(self, given: Input) -> None:
        """Take an input; the engine gets it in this turn of the event loop or the next."""
        if isinstance(given, USUAL_INPUTS):
            pass
        elif isinstance(given, CaughtUp):
            if self._port is None:
                return  # the contact that caught up has ended meanwhile
            self.caught_up.set()
        elif isinstance(given, ContactLost) and self.witness is None:
            self.witness = self.engine.last_message
        elif isinstance(given, ContentFetched):
            self._urgent_reads.discard(given.sequence)
        elif isinstance(given, Unanswered) and isinstance(given.question, FetchContent):
            self._urgent_reads.discard(given.question.sequence)
        self._inputs.add(given)
        self._soon()

    async def drain(self, within_seconds: float) -> bool:
        """Start no more fires, and wait until nothing is in flight; False if `within_seconds` passed first.

        False as well if contact was lost meanwhile, and with it the answer to a fire.
        A driver that was stopped, before or meanwhile, has nothing to wait for; False if its engine failed.
        """
        self.receive(DrainRequested())
        if not self._stopped:
            self._idle.clear()
        try:
            async with asyncio.timeout(within_seconds):
                await self._idle.wait()
        except TimeoutError:
            return False
        return self._knows_what_is_stored

    def stop(self) -> None:
        """Do not step any more."""
        self.wake_at = None
        self._wakes.detach(self)
        self._wakes.moderation.owns(id(self), is_owner=False)
        self._is_urgent = self._is_owner = False
        self._stopped = True
        self.engine.contents.end()
        self._idle.set()

    def fail(self, error: Exception) -> None:
        """Do not step any more, because of an error: a new engine is needed."""
        if not self.failed.done():
            self.failed.set_result(error)
        self.stop()

    def _soon(self) -> None:
        if not self._step_is_due:
            self._step_is_due = True
            self._wakes.soon(self)

    def ask_for_judgement(self) -> None:
        """Have it judged whether we can serve the stream: something was denied that no step shows."""
        self.notify_of_change()

    def step_if_due(self) -> None:
        """Step, if an input or a wake is waiting for it."""
        if self._step_is_due:
            self.step()

    def step(self) -> None:
        """Pass the collected inputs and the time to the engine, and carry out its actions."""
        if self._stopped:
            return
        self._step_is_due, self._was_stepped = False, True
        engine, was_live, read_before = self.engine, self.engine.is_live, self.engine.last_read
        self._now = self._clock.now()
        inputs = self._inputs.take()
        if self._inputs:
            self._soon()
        try:
            self._carry_out(engine.step(self._now, inputs))
        except Exception as error:
            self.fail(error)
            self.notify_of_change()
            return
        read, is_live = engine.last_read - read_before, engine.is_live
        self._note_owner(len(inputs))
        is_urgent = self._is_owner and (not self._is_guarded or self._awaits_something_urgent(read))
        self._hurry(is_urgent=is_urgent or not is_live or bool(self._urgent_reads))
        if is_live is not was_live or engine.is_troubled:
            self.notify_of_change()
        if read:
            self._load.grew_to(len(engine.held))
        if not engine.is_idle:
            self._wakes.ask_at_each_tick(self)
            return
        self._wakes.ask_no_more(self)
        if not self._inputs:
            self._idle.set()

    def _hurry(self, *, is_urgent: bool) -> None:
        if is_urgent is not self._is_urgent:
            self._is_urgent = is_urgent
            self._wakes.moderation.hurry(id(self), is_urgent=is_urgent)

    def _note_owner(self, inputs: int) -> None:
        is_owner = self.engine.ownership.is_owner
        if is_owner is not self._is_owner:
            self._is_owner = is_owner
            self._wakes.moderation.owns(id(self), is_owner=is_owner)
        if inputs and not is_owner:
            self._wakes.moderation.stood_by(inputs)

    def _awaits_something_urgent(self, read: int) -> bool:
        """Return whether fires or purges of an owner wait for what arrives, or more was `read` than fires bring.

        Code that comes to depend on an answer within the budget of lateness has to say so here.
        """
        in_flight = len(self.engine.in_flight.fires)
        self._ends_schedules = self._ends_schedules and in_flight > 0
        is_full = in_flight > MAX_IN_FLIGHT_AT_REST
        return self._ends_schedules or is_full or read > MAX_READ_AT_REST

    def step_if_restless(self) -> bool:
        """Step if work is in progress and there was no step since the last call of this function, and none is due.

        Returns whether work is still in progress.
        """
        if not self._was_stepped and not self._step_is_due and not self.engine.is_idle:
            self.step()
        self._was_stepped = False
        return not self.engine.is_idle

    def outdate(self, reason: str) -> None:
        """End the contact: other instances may have fired what it has not delivered yet."""
        if self._port is not None:
            self.detach(reason)
            self.outdated.set_result(reason)

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            match action:  # the most frequent first: each case that does not match costs about 0.07 us
                case Report():
                    self._report(action.event)
                case FetchContent():
                    self._ask(action)
                case PurgeSchedule():
                    self._purge(action)
                case PublishFires():
                    self._publish(action)
                case WakeAt():
                    self._wake_at(action)
                case RemoveExpired():
                    self._remove(action)
                case _:
                    self._ask(action)

    def _ask(self, question: Question) -> None:
        """Begin to find out something about one fire, or to read its content."""
        if isinstance(question, FetchContent) and not question.may_wait:
            self._urgent_reads.add(question.sequence)
        if self._port is not None:
            self._port.ask(question)
        else:
            self.receive(Unanswered(question, NO_CONTACT))

    def _publish(self, request: PublishFires) -> None:
        if self._port is not None:
            self._wakes.moderation.sent(len(request.fires))
            self._ends_schedules = self._ends_schedules or any(fire.next_fire is None for fire in request.fires)
            self._port.publish(request.fires)
            return
        for fire in request.fires:
            self.receive(PublishConcluded(fire, Unknown(NO_CONTACT, may_be_stored=False)))

    def _purge(self, request: PurgeSchedule) -> None:
        if self._port is not None:
            self._port.purge(request)
        else:
            self.receive(PurgeConcluded(request.schedule, request.through, NO_CONTACT, known=request.known))

    def _remove(self, request: RemoveExpired) -> None:
        if self._port is not None:
            self._port.remove(request)
        else:
            self.receive(ExpiryConcluded(request.sequence, failure=NO_CONTACT))

    def _wake_at(self, action: WakeAt) -> None:
        if action.instant <= self._now:
            self._soon()
        else:
            self._wakes.wake(self, action.instant)
