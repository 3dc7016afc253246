"""One round: servers and sidecars come up, everything breaks by the script, everything heals, and the judge is asked.

Its rule: what is judged begins when all sidecars serve, and ends when they are killed in the end.
"""

import asyncio
import sys
from collections.abc import Awaitable
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from nats_scheduler.control.errors import SchedulerError
from nats_scheduler.runtime.embedded import EmbeddedServer
from tests.harness.processes import ChildProcess
from tests.harness.waiting import instant_reached, time_reached
from tests.judge.checkers import verdict
from tests.judge.forgotten import Losses
from tests.judge.history import SECOND, FireAnswered, History, Verb
from tests.nemesis.beside import Beside
from tests.nemesis.calendars import Editor
from tests.nemesis.forger import forge
from tests.nemesis.ground import BUCKET, ELSEWHERE, STREAM, Ground, ground_for
from tests.nemesis.instance import Clock, Instance
from tests.nemesis.machine import Machine
from tests.nemesis.publishers import Publishers
from tests.nemesis.reading import read_into
from tests.nemesis.record import Record, now
from tests.nemesis.scenario import FAULTS_OF_SIDECARS, PAUSES, Scenario, Strike, drawn, in_cluster
from tests.nemesis.workers import Workers

LATE_SCHEDULES = 3
WATCHES_SECONDS = 2.5
"""The time for which the round goes on once *Live* must hold again."""
WATCHES_CLUSTER_SECONDS = 8.0
"""The same for the round of a loaded cluster."""
AMID_SECONDS = 0.1
STALLS_SECONDS = 30.0
"""The longest time that the round waits for that: each time the machine stalls, *Live* is excused anew."""
HANDED_OVER_SECONDS = 1.0
"""Time between the connection of the sidecars and the first strike."""
LAST_LINES = 12
"""The number of lines of each sidecar about a schedule that fails that are shown."""
BUSY = (sys.executable, "-c", "while True: pass")


@dataclass(slots=True)
class Outcome:
    """The result of a round."""

    scenario: Scenario
    history: History
    violations: list[tuple[str, str]] = field(default_factory=list)
    """The promise and the evidence."""
    strikes: list[str] = field(default_factory=list)
    """The kinds of the strikes that were done."""
    story: list[str] = field(default_factory=list)
    continued: int = 0
    """The number of lives of sidecars that continued from their file."""
    lost: list[str] = field(default_factory=list)
    """The messages that servers acknowledged and lost, by the files of all nodes."""
    log_lines: dict[str, list[str]] = field(default_factory=dict)
    """Of each schedule that a violation names, the last lines about it in the logs of the sidecars."""


class Round:
    """A round while it runs."""

    def __init__(self, scenario: Scenario, ground: Ground, folder: Path) -> None:
        self.scenario = scenario
        self.record = Record(scenario.terms)
        self.done: list[str] = []
        """The kinds of the strikes that were done."""
        self.surprises: list[str] = []
        """Errors that no sidecar should make, whatever breaks."""
        self._ground = ground
        names = [f"i{n}" for n in range(scenario.instances)]
        self._clocks = [Clock(folder / f"{name}-clock") for name in names] if scenario.is_loaded_cluster else []
        options: tuple[str, ...] = ("--log-level", "debug") if scenario.is_loaded_cluster else ()
        options += ("--standbys", str(scenario.standbys)) if scenario.standbys is not None else ()
        self.instances = [
            Instance(name, ground.urls, folder, self.record, clock=clock, options=options)
            for name, clock in zip_longest(names, self._clocks)
        ]
        self._publishers = Publishers(ground, self.record, scenario)
        self._editor = Editor(ground, self.record, scenario.seed)
        self.workers = Workers(ground, self.record.history, scenario.seed)
        self.beside = Beside(ground, scenario.beside)
        self._machine = Machine(self.record, self._processes)
        self._is_server_struck = False
        self._are_clocks_ahead = False

    async def run(self) -> None:
        """Let everything happen."""
        for instance in self.instances:
            await instance.open()
            instance.start()
        await asyncio.gather(*(instance.connected() for instance in self.instances))
        await self._editor.begin()
        await self._publishers.store_steady()
        await self.beside.store()
        beside = [
            asyncio.create_task(self._machine.watch()),
            asyncio.create_task(self._publishers.connect_now_and_again()),
            asyncio.create_task(self.workers.work_now_and_again()),
            asyncio.create_task(self._editor.edit_now_and_again()),
        ]
        acting = [
            asyncio.create_task(self._publishers.act_now_and_again()),
            asyncio.create_task(self._publishers.store_soon_now_and_again()),
        ]
        try:
            await self._break()
            for task in acting:
                task.cancel()
            await self._editor.end()
            self._publishers.store_some(LATE_SCHEDULES)
            await asyncio.gather(*(instance.connected() for instance in self.instances))
            await self._watch()
            await self._publishers.all_answered()
            self._close()
        finally:
            for task in (*acting, *beside):
                task.cancel()
            await asyncio.gather(*acting, *beside, return_exceptions=True)

    def _processes(self) -> list[int]:
        """Return the ids of the processes of the round that run at the moment."""
        sidecars = [instance.process.pid for instance in self.instances if instance.process is not None]
        return [*sidecars, *(node.pid for node in self._ground.nodes if node.pid is not None)]

    async def _break(self) -> None:
        begin = asyncio.get_running_loop().time() + HANDED_OVER_SECONDS
        async with asyncio.TaskGroup() as strikes:
            for strike in self.scenario.strikes:
                strikes.create_task(self._strike(strike, begin + strike.after))
            strikes.create_task(time_reached(begin + self.scenario.breaks_for))

    async def _watch(self) -> None:
        """Go on until *Live* had to hold for a while: a round whose end is excused shows nothing."""
        give_up = now() + int(STALLS_SECONDS * SECOND)
        since = now()
        while (left := min(since + self._watched(), give_up) - now()) > 0:
            await self._pass(left / SECOND)
            since = max(since, self.record.last_trouble)

    def _watched(self) -> int:
        """Return how long (ns) the round goes on after the last fault, by what the machine allowed so far."""
        terms = self._machine.allowed(self.scenario.terms)
        watches = WATCHES_CLUSTER_SECONDS if self.scenario.is_loaded_cluster else WATCHES_SECONDS
        return terms.resumes_within + int(watches * SECOND) + terms.slack - self.scenario.terms.slack

    async def _strike(self, strike: Strike, time: float) -> None:
        await time_reached(time)
        if self.scenario.is_loaded_cluster:
            await self._amid_fires(strike)
        if strike.kind in FAULTS_OF_SIDECARS:
            await self._strike_sidecar(strike)
        elif strike.kind == "bucket":
            await self._delete_bucket()
        elif strike.kind == "forged":
            await self._forge(strike)
        elif strike.kind == "clock":
            await self._shift_clocks(strike)
        else:
            await self._strike_server(strike)

    async def _amid_fires(self, strike: Strike) -> None:
        """Wait until up to 0.1 s after a whole second, when most fires are in flight."""
        await instant_reached((now() // SECOND + 1) * SECOND + int(strike.after % AMID_SECONDS * SECOND), now)

    async def _strike_sidecar(self, strike: Strike) -> None:
        instance = self.instances[strike.victim % len(self.instances)]
        if instance.is_struck:
            return
        instance.is_struck = True
        begin = now()
        instance.strike(strike)
        self.done.append(strike.kind)
        self.record.took_over_from(strike.kind, begin)
        self.record.tell(f"{strike} strikes {instance.name}", begin)
        await self._pass(strike.lasts)
        # While connections are slow but stand, no other instance takes over.
        self.record.broken(strike.kind, None if strike.kind == "slow" else instance.name, begin)
        instance.heal(strike)
        instance.is_struck = False

    async def _delete_bucket(self) -> None:
        begin = now()
        try:
            async with self._ground.account() as account:
                await account.api.call(f"STREAM.DELETE.{BUCKET}")
        except SchedulerError as error:
            self.record.tell(f"the bucket is not deleted: {error}")
            return
        self.done.append("bucket")
        self.record.broken("bucket", None, begin)

    async def _forge(self, strike: Strike) -> None:
        """Write into the bucket what a hostile client may write there, again and again."""
        begin = now()
        try:
            async with self._ground.account() as account:
                await forge(account, strike)
        except (SchedulerError, AssertionError) as error:  # no bucket, or no server
            self.record.tell(f"{strike} ends early: {error}")
        self.done.append(strike.kind)
        self.record.tell(f"{strike}", begin)
        self.record.broken(strike.kind, None, begin)

    async def _shift_clocks(self, strike: Strike) -> None:
        """Let clocks be ahead for a while; what the wall clock of its machine says does not matter to a sidecar."""
        if self._are_clocks_ahead:
            return
        self._are_clocks_ahead = True
        begin = now()
        shifted = self._clocks if strike.way.endswith("of-all") else [self._clocks[strike.victim % len(self._clocks)]]
        self.done.append(strike.kind)
        self.record.tell(f"{strike}", begin)
        for clock in shifted:
            clock.set_ahead(strike.delay, strike.way)
        await self._pass(strike.lasts)
        for clock in shifted:
            clock.set_ahead(0.0, strike.way)
        if strike.puts_ahead:  # others do not take over from one whose clock is wrong
            self.record.broken(strike.kind, None, begin, ahead=int(strike.delay * SECOND))
        self._are_clocks_ahead = False

    async def _strike_server(self, strike: Strike) -> None:
        """Strike servers, one strike at a time."""
        if self._is_server_struck:
            return
        self._is_server_struck = True
        try:
            if strike.kind in PAUSES:
                await self._pause_nodes(strike)
            elif strike.kind == "two-kills":
                await self._kill_two(strike)
            elif strike.kind == "step-down":
                await self._step_down(strike)
            else:
                await self._end_servers(strike)
        finally:
            self._is_server_struck = False

    def _struck(self, strike: Strike, count: int) -> list[EmbeddedServer]:
        """Return the nodes that a strike is for, and note that it is done."""
        nodes = self._ground.nodes
        struck = [nodes[(strike.victim + n) % len(nodes)] for n in range(count)]
        self.record.tell(f"{strike} strikes {', '.join(node.name for node in struck)}")
        self.done.append(strike.kind)
        return struck

    async def _pause_nodes(self, strike: Strike) -> None:
        """Stop nodes, and let them go on; a cluster of which one is stopped may serve again before that."""
        begin, struck = now(), self._struck(strike, 2 if strike.kind == "two-stops" else 1)
        for node in struck:
            self._ground.pause(node)
        serving = asyncio.create_task(self._ground.serves())
        await asyncio.wait(
            [serving, going_on := asyncio.ensure_future(self._pass(strike.lasts))], return_when="FIRST_COMPLETED"
        )
        if not going_on.done():
            self.record.broken(strike.kind, None, begin)
            await going_on
            begin = now()
        serving.cancel()
        await asyncio.gather(serving, return_exceptions=True)
        self._ground.resume()
        await self._well_again(strike, begin)

    async def _kill_two(self, strike: Strike) -> None:
        """Kill two nodes, one after the other; each returns."""
        begin, struck = now(), self._struck(strike, 2)

        async def killed(node: EmbeddedServer, after: float) -> None:
            await self._pass(after)
            if after:
                await self._amid_fires(strike)
            await node.kill()
            self.record.tell(f"{node.name} is killed")
            await self._pass(strike.lasts)
            await node.start()
            self.record.tell(f"{node.name} runs again")

        await asyncio.gather(*(killed(node, number * strike.delay) for number, node in enumerate(struck)))
        await self._well_again(strike, begin)

    async def _step_down(self, strike: Strike) -> None:
        """Let the leader of the stream step down, or that of the bucket."""
        stream, begin = (STREAM, BUCKET)[strike.victim == 0], now()
        try:
            await self._ground.step_down(stream)
        except (SchedulerError, OSError) as error:  # TimeoutError is one
            self.record.tell(f"the leader of {stream} does not step down: {error!r}", begin)
            return
        self.done.append(strike.kind)
        self.record.tell(f"the leader of {stream} steps down", begin)
        await self._well_again(strike, begin)

    async def _end_servers(self, strike: Strike) -> None:
        """End servers, and start them again; a cluster that lost one node serves again before that."""
        begin, struck = now(), self._struck(strike, 2 if strike.kind == "quorum" else 1)
        for node in struck:
            await (node.stop() if strike.kind == "server-restart" else node.kill())
        if strike.kind == "node-kill":
            await self._well_again(strike, begin)
        await self._pass(strike.lasts)
        begin = now() if strike.kind == "node-kill" else begin
        await asyncio.gather(*(node.start() for node in struck))
        await self._well_again(strike, begin)

    async def _well_again(self, strike: Strike, begin: int) -> None:
        if self._ground.cluster is not None:
            await self._ground.cluster.meta_leader()
        await self._ground.serves()
        self.record.broken(strike.kind, None, begin)

    def _pass(self, seconds: float) -> Awaitable[None]:
        return time_reached(asyncio.get_running_loop().time() + seconds)

    def _close(self) -> None:
        """Kill all sidecars; what happens from then on is not judged."""
        self.surprises += [f"{one.name} ended by itself" for one in self.instances if one.has_ended_by_itself]
        for instance in self.instances:
            instance.end()
        self.surprises += [f"a traceback in {name}" for one in self.instances for name in one.traces]
        history = self.record.history
        history.end = now()
        history.terms = self._machine.allowed(history.terms)
        waited = self._machine.longest_waiting / SECOND
        self.record.tell(f"no thread waited longer for a processor than {waited:.3f} s within a second")
        history.lives = [
            type(life)(life.instance, life.begin, history.end) if self._is_last(life.instance, life.end) else life
            for life in history.lives
        ]

    def answered(self) -> list[FireAnswered]:
        """Return the answers of servers to fires of the stream under test, by the logs of the sidecars."""
        here = {
            operation.sequence
            for operation in self.record.history.operations
            if operation.verb is Verb.STORE and not operation.target.startswith(ELSEWHERE)
        }
        answers = [answer for instance in self.instances for answer in instance.answered()]
        return [answer for answer in answers if answer.fire.schedule_sequence in here]

    def last_lines(self, schedule: str) -> list[str]:
        """Return the last lines about a schedule in the logs of the sidecars."""
        return [line for instance in self.instances for line in instance.last_lines(schedule, LAST_LINES)]

    def _is_last(self, instance: str, end: int) -> bool:
        return end == max(life.end for life in self.record.history.lives if life.instance == instance)


async def play(seed: int, folder: Path, *, cluster: bool = False, busy: int = 0) -> Outcome:
    """Play the round of a seed and judge it; logs and stores are left in the folder.

    With `cluster` it is a round of a loaded cluster, and `busy` processes compute beside it.
    """
    scenario = in_cluster(seed, busy) if cluster else drawn(seed)
    async with ground_for(scenario, folder) as ground:
        one = Round(scenario, ground, folder)
        history = one.record.history
        try:
            with ExitStack() as beside:
                for number in range(scenario.busy):
                    beside.enter_context(ChildProcess(BUSY, folder, name=f"busy-{number}"))
                await one.run()
            async with ground.account() as account:
                await read_into(history, account, one.workers)
                others = await one.beside.histories(account, history)
            if scenario.is_loaded_cluster:
                history.stores = await ground.stores()
                history.answered = one.answered()
        finally:
            for instance in one.instances:
                await instance.close()
    broken = [violation for each in (history, *others) for violation in verdict(each)]
    violations = [(violation.promise, str(violation)) for violation in broken]
    losses = Losses(history)
    return Outcome(
        scenario=scenario,
        history=history,
        violations=violations + [("Process", line) for line in one.surprises],
        strikes=one.done,
        story=sorted(one.record.story),
        continued=sum(instance.continued for instance in one.instances),
        lost=[*losses.schedules.values(), *losses.fires.values()],
        log_lines={name: one.last_lines(name) for name in sorted({violation.schedule for violation in broken})},
    )
