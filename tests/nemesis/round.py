"""One round: servers and sidecars come up, everything breaks by the script, everything heals, and the judge is asked.

Its rule: what is judged begins when all sidecars serve, and ends when they are killed in the end.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

from tests.harness.waiting import time_reached
from tests.judge.checkers import verdict
from tests.judge.history import SECOND, History
from tests.nemesis.calendars import Editor
from tests.nemesis.ground import Ground, ground_for
from tests.nemesis.instance import Instance
from tests.nemesis.machine import Machine
from tests.nemesis.publishers import Publishers
from tests.nemesis.reading import read_into
from tests.nemesis.record import Record, now
from tests.nemesis.scenario import BREAKS_FOR, OF_SIDECARS, Scenario, Strike, drawn
from tests.nemesis.workers import Workers

LATE_SCHEDULES = 3
WATCHES_SECONDS = 2.5
"""The time for which the round goes on once *Live* must hold again."""
STALLS_SECONDS = 30.0
"""The longest time that the round waits for that: each time the machine stalls, *Live* is excused anew."""
HANDED_OVER_SECONDS = 1.0
"""Time between the connection of the sidecars and the first strike."""


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

    def evidence(self) -> str:
        """Write what a failed round shows: the script, the violations, and all about the schedules that they name."""
        lines = [f"round {self.scenario.seed}: {self.scenario}", *(text for _promise, text in self.violations)]
        lines += self.story
        for name in sorted({one.schedule for one in self.history.schedules}):
            if any(f": {name} (" in text for _promise, text in self.violations):
                lines += _lines_of(self.history, name)
        return "\n  ".join(lines)


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
        self.instances = [Instance(f"i{n}", ground.urls, folder, self.record) for n in range(scenario.instances)]
        self._publishers = Publishers(ground, self.record, scenario.seed)
        self._editor = Editor(ground, self.record, scenario.seed)
        self.workers = Workers(ground, self.record.history, scenario.seed)
        self._machine = Machine(self.record, self._processes)
        self._is_server_struck = False

    async def run(self) -> None:
        """Let everything happen."""
        for instance in self.instances:
            await instance.open()
            instance.start()
        await asyncio.gather(*(instance.connected() for instance in self.instances))
        await self._editor.begin()
        await self._publishers.store_steady()
        beside = [
            asyncio.create_task(self._machine.watch()),
            asyncio.create_task(self._publishers.connect_now_and_again()),
            asyncio.create_task(self.workers.work_now_and_again()),
            asyncio.create_task(self._editor.edit_now_and_again()),
        ]
        acting = asyncio.create_task(self._publishers.act_now_and_again())
        try:
            await self._break()
            acting.cancel()
            await self._editor.end()
            self._publishers.store_some(LATE_SCHEDULES)
            await asyncio.gather(*(instance.connected() for instance in self.instances))
            await self._watch()
            await self._publishers.all_answered()
            self._close()
        finally:
            for task in (acting, *beside):
                task.cancel()
            await asyncio.gather(acting, *beside, return_exceptions=True)

    def _processes(self) -> list[int]:
        """Return the ids of the processes of the round that run at the moment."""
        sidecars = [instance.process.pid for instance in self.instances if instance.process is not None]
        return [*sidecars, *(node.pid for node in self._ground.nodes if node.pid is not None)]

    async def _break(self) -> None:
        begin = asyncio.get_running_loop().time() + HANDED_OVER_SECONDS
        async with asyncio.TaskGroup() as strikes:
            for strike in self.scenario.strikes:
                strikes.create_task(self._strike(strike, begin + strike.after))
            strikes.create_task(time_reached(begin + BREAKS_FOR))

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
        return terms.resumes_within + int(WATCHES_SECONDS * SECOND) + terms.slack - self.scenario.terms.slack

    async def _strike(self, strike: Strike, time: float) -> None:
        await time_reached(time)
        if strike.kind in OF_SIDECARS:
            await self._strike_sidecar(strike)
        elif not self._is_server_struck:  # one at a time
            self._is_server_struck = True
            await self._strike_servers(strike)
            self._is_server_struck = False

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

    async def _strike_servers(self, strike: Strike) -> None:
        """End servers, and start them again; a cluster that lost one node serves again before that."""
        begin, nodes = now(), self._ground.nodes
        struck = [nodes[(strike.victim + n) % len(nodes)] for n in range(2 if strike.kind == "quorum" else 1)]
        self.record.tell(f"{strike} strikes {', '.join(node.name for node in struck)}")
        self.done.append(strike.kind)
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

    def _is_last(self, instance: str, end: int) -> bool:
        return end == max(life.end for life in self.record.history.lives if life.instance == instance)


async def play(seed: int, folder: Path) -> Outcome:
    """Play the round of a seed and judge it; logs and stores are left in the folder."""
    scenario = drawn(seed)
    async with ground_for(scenario, folder) as ground:
        one = Round(scenario, ground, folder)
        history = one.record.history
        try:
            await one.run()
            async with ground.account() as account:
                await read_into(history, account, one.workers)
        finally:
            for instance in one.instances:
                await instance.close()
    violations = [(violation.promise, str(violation)) for violation in verdict(history)]
    surprises = [("Process", line) for line in one.surprises]
    return Outcome(scenario, history, violations + surprises, one.done, sorted(one.record.story))


def _lines_of(history: History, schedule: str) -> list[str]:
    """List everything recorded about a schedule, in the order of time."""

    def seconds(instant: int | None) -> str:
        return "never" if instant is None else f"{(instant - history.begin) / SECOND:.4f}"

    told = [
        (o.invoked_at, f"{o.verb} {o.names or ''} answered at {seconds(o.completed_at)} as {o.sequence}: {o.pattern}")
        for o in history.operations
        if o.schedule == schedule
    ]
    told += [(s.stored_at, f"stored as {s.sequence}") for s in history.schedules if s.schedule == schedule]
    told += [
        (f.stored_at, f"fire of {f.schedule_sequence} for {seconds(f.fire_time)} stored as {f.sequence}")
        for f in history.fires
        if f.schedule == schedule
    ]
    return [f"{seconds(instant):>9} {schedule} {text}" for instant, text in sorted(told)]
