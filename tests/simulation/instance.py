"""One sidecar: the real engine in the real driver, on an event loop in virtual time.

What the runtime does around the driver is done here by the same rules: contacts that end and are made anew, a
checkpoint a second, hints about what others ask the server to remove.

Its rule: a process does nothing while it is stalled, and nothing at all once it is dead; what it sent is on its way
all the same.
Limit: `runtime.stream_service` is modelled, not run, and every instance serves every schedule: the harder case, which
identity and guard have to make safe. `boot` makes the engine, and so is the place to hand out shards.
"""

import asyncio
from collections.abc import Callable, Sequence
from random import Random

from nats_scheduler.engine.actions import PurgeSchedule, ReadContent, RemoveExpired
from nats_scheduler.engine.assembly import ServerLimits
from nats_scheduler.engine.events import Event
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import CheckpointLoaded, Input, RemovalRequested
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.message.dialect import DIALECTS
from nats_scheduler.runtime.driver import StreamDriver
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.memory_contact import MemoryContact
from tests.simulation.scenario import MILLISECOND
from tests.simulation.server import Server
from tests.simulation.timeline import Event as Happening
from tests.simulation.timeline import Timeline, virtual_loop
from tests.simulation.weather import Weather

CHECKPOINT_SECONDS = 1.0
FOLLOWS_ANEW_SECONDS = 1.0
"""After this long a stream is followed again through a connection that lives (`runtime.account`)."""

RECONNECT_AFTER = 500 * MILLISECOND
"""Longest wait (ns) between two attempts to connect."""


class Crashed(BaseException):
    """The process died at this point."""


class SkewedClock:
    """The clock of one machine."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.ahead = 0
        """How far (ns) it is ahead of the server's."""

    def now(self) -> int:
        """Return the wall clock."""
        return self._timeline.now + self.ahead

    def monotonic(self) -> int:
        """Return nanoseconds since an arbitrary start."""
        return self._timeline.clock.monotonic()


class SimulatedContact(MemoryContact):
    """A contact whose events happen on the timeline of the world, whatever becomes of who made it."""

    def __init__(self, server: Server, tell: Callable[[Input], None], weather: Weather) -> None:
        self._timeline = server.timeline
        super().__init__(server.stream, tell, server.timeline.clock, weather)

    def _after(self, duration: int, event: Happening) -> None:
        self._timeline.after(duration, event)


class CrashingPort:
    """A contact at whose requests the process may die: before the `crash_in`-th from now."""

    def __init__(self, instance: "Instance", contact: SimulatedContact) -> None:
        self._instance = instance
        self._contact = contact

    def publish(self, fires: Sequence[Fire]) -> None:
        """Begin to store these fires, as far as the process gets."""
        for fire in fires:
            self._instance.point(f"publish {fire.schedule}@{fire.sequence} for {fire.fire_time}")
            self._contact.publish([fire])

    def read(self, request: ReadContent) -> None:
        """Begin to read what a fire will say."""
        self._instance.point(f"read {request.schedule}@{request.sequence}")
        self._contact.read(request)

    def purge(self, request: PurgeSchedule) -> None:
        """Begin to remove a schedule's versions."""
        self._instance.point(f"purge {request.schedule} through {request.through}")
        self._contact.purge(request)
        self._instance.server.tell_of_removal(RemovalRequested(request.schedule), besides=self._instance)

    def remove(self, request: RemoveExpired) -> None:
        """Begin to remove a message whose TTL has run out."""
        self._instance.point(f"remove {request.sequence}")
        self._contact.remove(request)

    async def follow(self, after: int) -> None:
        """Follow nothing: the instance does that itself."""

    def end(self, reason: str) -> None:
        """End the contact."""
        self._contact.end(reason)


class Instance:
    """One sidecar, through all its lives."""

    def __init__(self, name: str, server: Server, random: Random, trace: Callable[[str], None]) -> None:
        self.name = name
        self.server = server
        self.timeline = server.timeline
        self.clock = SkewedClock(server.timeline)
        self.weather = Weather(random, server.timeline)
        self.crash_in: int | None = None
        """The process dies before the so-manieth request from now; None: it does not."""
        self.crashed: Callable[[Instance], None] = lambda _instance: None
        self.driver: StreamDriver
        self.life = 0
        self.is_alive = False
        self._random = random
        self._trace = trace
        self._loop = virtual_loop(server.timeline, lambda event: event())
        self.is_stalled = False
        self._late: list[Happening] = []
        self._heard: list[Happening] = []
        self._written: tuple[int, int] | None = None
        self._contact: SimulatedContact | None = None

    # -- lives ---------------------------------------------------------------------------------------------------

    def boot(self, checkpoint: CheckpointLoaded | None) -> None:
        """Start a new process, which knows the stream and perhaps a checkpoint."""
        assert not self.is_alive, "it lives already"
        self.life += 1
        self.is_alive, self.is_stalled, self._written = True, False, None
        self._late, self._heard = [], []
        life = self.life
        self._loop = virtual_loop(self.timeline, lambda event: self._run(life, event))
        stream = self.server.stream
        expires = stream.rules.allow_msg_ttl and not stream.guard
        engine = StreamEngine(stream.rules, DIALECTS, ServerLimits(guard=stream.guard), removes_expired=expires)
        asyncio._set_running_loop(self._loop)
        try:
            self.driver = StreamDriver(engine, self.clock, self._report)
        finally:
            asyncio._set_running_loop(None)
        if checkpoint is not None:
            self.driver.tell(checkpoint)
        self._loop.call_later(CHECKPOINT_SECONDS, self._keep_checkpoint)
        self._note(f"boots with {checkpoint}")
        self._connect_soon()

    def kill(self) -> None:
        """End the process; what it sent is on its way."""
        self._note("is killed")
        self.is_alive = False
        self.driver.stop()
        self._end_contact("killed")

    def stall(self) -> None:
        """Stop doing anything."""
        self._note("stalls")
        self.is_stalled = True

    def wake(self, *, acts_first: bool) -> None:
        """Go on; `acts_first` on what it knew when it stalled, before it hears what happened meanwhile."""
        if not self.is_stalled:
            return
        self._note("wakes up")
        self.is_stalled = False
        late, heard = self._late, self._heard
        self._late, self._heard = [], []
        for event in [*late, *heard] if acts_first else [*heard, *late]:
            self._run(self.life, event)

    def cut(self, duration: int) -> None:
        """Lose the connection, for `duration` ns at least."""
        self.weather.cut_until = max(self.weather.cut_until, self.timeline.now + duration)
        if self.is_alive:
            self._run(self.life, lambda: self._lose("the connection was cut"))

    def step_clock(self, ahead: int) -> None:
        """Have the wall clock show another time."""
        self._note(f"has its clock set {ahead / SECOND:+.3f} s off")
        self.clock.ahead = ahead

    def hear(self, fact: Input) -> None:
        """Hear something that comes over the network."""
        if self.is_alive and self._contact is not None:
            self._hear(self.life, fact)

    # -- the process ---------------------------------------------------------------------------------------------

    def point(self, name: str) -> None:
        """Pass a point at which the process may die."""
        self._note(name)
        if self.crash_in is not None:
            self.crash_in -= 1
            if self.crash_in < 0:
                raise Crashed

    def _run(self, life: int, event: Happening) -> None:
        if life != self.life or not self.is_alive:
            return
        if self.is_stalled:
            self._late.append(event)
            return
        try:
            event()
        except Crashed:
            self._note("crashes here")
            self.crash_in = None
            self.kill()
            self.crashed(self)
        if self.driver.failed.done():
            raise self.driver.failed.result()
        if self._contact is not None and self.driver.outdated.done():
            self._note(f"is outdated: {self.driver.outdated.result()}")
            self._contact = None
            self._loop.call_later(FOLLOWS_ANEW_SECONDS, self._connect_soon)

    def _hear(self, life: int, fact: Input) -> None:
        if life != self.life or not self.is_alive:
            return
        if self.is_stalled:
            self._heard.append(lambda: self.driver.tell(fact))
        else:
            self.driver.tell(fact)

    # -- contact -------------------------------------------------------------------------------------------------

    def _connect_soon(self) -> None:
        wait = int(self._random.random() * RECONNECT_AFTER) + self.weather.way()
        self._loop.call_later(wait / SECOND, self._connect)

    def _connect(self) -> None:
        if self.weather.cut_until > self.timeline.now:
            self._connect_soon()
            return
        life = self.life
        self._contact = SimulatedContact(self.server, lambda fact: self._hear(life, fact), self.weather)
        self.driver.attach(CrashingPort(self, self._contact))
        self._contact.begin_following(self.driver.engine.last_read)
        self._note("is in contact")

    def _lose(self, reason: str) -> None:
        if self._contact is None:
            return
        self._note(f"loses contact: {reason}")
        self._contact = None
        self.driver.detach(reason)
        self._connect_soon()

    def _end_contact(self, reason: str) -> None:
        contact, self._contact = self._contact, None
        if contact is not None:
            contact.end(reason)

    # -- checkpoint ----------------------------------------------------------------------------------------------

    def _keep_checkpoint(self) -> None:
        engine = self.driver.engine
        self._loop.call_later(CHECKPOINT_SECONDS, self._keep_checkpoint)
        progress = (engine.last_read, engine.fires_stored)
        if self._contact is None or progress == self._written or not engine.is_live:
            return
        self.point("write checkpoint")
        if not self.weather.is_lost():
            checkpoint = engine.checkpoint(self.clock.now())
            self.timeline.after(self.weather.way(), lambda: self.server.put(checkpoint))
            self._written = progress

    def _report(self, event: Event) -> None:
        self._note(str(event))

    def _note(self, what: str) -> None:
        self._trace(f"{self.name}: {what}")
