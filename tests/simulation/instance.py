"""One instance through all its lives, and the faults that it can suffer.

Its rule: what is inside a process is in `tests.simulation.sidecar`; here are only the faults from outside.
"""

from collections.abc import Callable
from random import Random

from nats_scheduler.engine.inputs import RemovalRequested
from nats_scheduler.engine.views.seen import done
from nats_scheduler.engine.views.view import ALL
from nats_scheduler.schedule.instants import SECOND
from tests.simulation.files import Machine
from tests.simulation.network import Weather
from tests.simulation.process import Doom, Point, Process
from tests.simulation.server import Server
from tests.simulation.sidecar import REAL, Parts, Sidecar
from tests.simulation.timeline import Timeline


class SkewedClock:
    """The clock of one machine."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.ahead = 0
        """The lead (ns) of its clock over the server's."""

    def now(self) -> int:
        """Return the wall clock."""
        return self._timeline.now + self.ahead

    def monotonic(self) -> int:
        """Return nanoseconds since an arbitrary start."""
        return self._timeline.clock.monotonic()


class Instance:
    """One instance: a process at a time, on a machine with a clock and a network."""

    def __init__(
        self, name: str, server: Server, random: Random, trace: Callable[[str], None], parts: Parts = REAL
    ) -> None:
        self.name = name
        self.clock = SkewedClock(server.timeline)
        self.weather = Weather(random, server.timeline)
        self.crashed: Callable[[Instance], None] = lambda _instance: None
        """Called when it died at a point."""
        self.left: Callable[[Instance], None] = lambda _instance: None
        """Called when it has ended by itself."""
        self.lost_file: Callable[[Instance], None] = lambda _instance: None
        """Called when its file is given up."""
        self.machine: Machine | None = server.machine_of(name)
        """The machine with the folder that it uses, None if it keeps no file."""
        self._server = server
        self._random = random
        self._trace = trace
        self._parts = parts
        self._lives = 0
        self._doom: Doom | None = None
        self.is_leaving = False
        """True if the process was asked to end."""
        self.process = self._new_process()
        self.process.end()
        self._sidecar: Sidecar | None = None

    @property
    def is_alive(self) -> bool:
        """True if there is a process."""
        return self.process.is_alive

    @property
    def is_owner(self) -> bool:
        """True if it fires for the stream."""
        return self._sidecar is not None and self.is_alive and self._sidecar.service.is_owner

    @property
    def fires_beside(self) -> bool:
        """True if it does so in addition to another one, which is the owner."""
        return self._sidecar is not None and self.is_alive and self._sidecar.fires_beside

    @property
    def is_reading(self) -> bool:
        """True if it lives, and reads the stream."""
        return self._sidecar is not None and self.is_alive and self._sidecar.is_reading

    @property
    def schedules(self) -> set[str]:
        """The subjects of the schedules that it holds, and of those that it lists as rejected."""
        assert self._sidecar is not None, "it lives"
        view = self._sidecar.service.engine.view()
        rejected = {one.subject for one in done(view.rejected_page(ALL, 1_000, "")).messages}
        return rejected | {one.subject for one in view.page(0, limit=None).answer().schedules}

    def boot(self, memory: str) -> None:
        """Start a new process; of checkpoints it finds the `latest`, an `older` one, or `none`."""
        assert not self.is_alive, "it lives already"
        self._lives += 1
        self._sidecar, self.is_leaving = None, False
        self.process = process = self._new_process()
        process.doom, self._doom = self._doom, None
        process.note(f"boots; of checkpoints it finds: {memory}")
        process.begin(self._live(f"{self.name}-{self._lives}", process, memory))

    def kill(self) -> None:
        """Kill the process; what it sent before still arrives."""
        self.process.note("is killed")
        self.process.end()

    def leave(self) -> None:
        """Ask the process to end by itself."""
        if self.is_alive and self._sidecar is not None and not self.is_leaving:
            self.is_leaving = True
            process, sidecar = self.process, self._sidecar
            process.run(lambda: process.begin(self._leave(process, sidecar)))

    def doom(self, at: Point | None, after: int) -> None:
        """Let it die at a point; if there is no process, the next one does."""
        if self.is_alive:
            self.process.doom = Doom(at, after)
        else:
            self._doom = Doom(at, after)

    def spare(self) -> None:
        """Let it die at no point any more."""
        self.process.doom = self._doom = None

    def wake(self, *, acts_first: bool) -> None:
        """Go on after a stall."""
        self.process.wake(acts_first=acts_first)

    def cut(self, duration: int) -> None:
        """Lose the connection, for `duration` ns at least."""
        self.weather.cut_until = max(self.weather.cut_until, self.process.timeline.now + duration)
        self.process.receive(self._lose)

    def step_clock(self, ahead: int) -> None:
        """Set the wall clock to another time."""
        self.process.note(f"has its clock set {ahead / SECOND:+.3f} s off")
        self.clock.ahead = ahead

    def fill_disk(self) -> None:
        """Have nothing more be written into its file."""
        if self.is_alive and self._sidecar is not None and self._sidecar.file is not None:
            self.process.note("has its disk full")
            self._sidecar.file.fill_disk()

    def alter_row(self) -> None:
        """Have a row of its file say something else than was written."""
        if self.is_alive and self._sidecar is not None and self._sidecar.file is not None:
            self.process.note("has a row altered")
            self._sidecar.file.alter_row()

    def receive(self, request: RemovalRequested) -> None:
        """Receive a request to remove messages that the server got."""
        self.process.receive(lambda: None if self._sidecar is None else self._sidecar.recheck(request))

    def receive_bucket_deletion(self) -> None:
        """Receive a request to delete the bucket."""
        self.process.receive(lambda: None if self._sidecar is None else self._sidecar.look_at_bucket())

    def list_streams(self) -> None:
        """Receive the list of all streams, as once in half a minute."""
        self.process.receive(lambda: None if self._sidecar is None else self._sidecar.list_streams())

    def receive_calendars(self) -> None:
        """Receive the calendars as they are."""
        self.process.receive(lambda: None if self._sidecar is None else self._sidecar.read_calendars())

    def _new_process(self) -> Process:
        process = Process(self.name, self._server.timeline, lambda what: self._trace(f"{self.name}: {what}"))
        process.died = lambda: self.crashed(self)
        return process

    async def _live(self, name: str, process: Process, memory: str) -> None:
        machine, weather = (self.machine, self._parts), self.weather
        self._sidecar = Sidecar(name, process, self.clock, self._server, weather, self._random, memory, *machine)
        self._sidecar.notify_of_loss = lambda: self.lost_file(self)
        await self._sidecar.run()

    async def _leave(self, process: Process, sidecar: Sidecar) -> None:
        process.note("is asked to end")
        await sidecar.leave()
        process.note("ends")
        process.timeline.after(0, lambda: self._has_left(process, sidecar))

    def _has_left(self, process: Process, sidecar: Sidecar) -> None:
        process.run(sidecar.close)
        if process.is_alive:
            process.end()
            self.left(self)

    def _lose(self) -> None:
        if self._sidecar is not None and self._sidecar.link is not None:
            self._sidecar.link.lose("the connection was cut")
