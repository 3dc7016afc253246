"""Many streams among several instances: what does one of them hold and use if each stream has one standby?

The same work is done twice: at first every instance reads every stream, then the owner and `standbys` others read each
one. Beside the schedules that are held, some fire over a few seconds; the second time one instance is killed
(`SIGKILL`) in the middle, the standbys take its streams over, and no fire may be missing or stored twice.
The rule: an instance reads the streams that its heartbeat in the bucket names, which it does once it has read them.
Limit: there is no native counterpart, so that side is left out. All instances share the cores of this machine.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench import measures as m
from tests.bench.fires import lateness
from tests.bench.load import STREAM, reminder, subject_of
from tests.bench.processes import Cpu
from tests.bench.registry import owners, streams_read
from tests.bench.scenarios.held import HELD_GROUP, MEGABYTE, SETTLE_SECONDS, far_patterns
from tests.bench.scenarios.scenario import Scenario, all_fires, until
from tests.bench.scenarios.streams import store_spread
from tests.bench.sides import READY_SECONDS, Side

ALL_READ_ALL = 1_000
"""As a number of standbys."""
POLL_SECONDS = 0.2
"""Pause between two looks at the bucket."""


@dataclass(frozen=True)
class Divided(Scenario):
    """`count` schedules in `streams` streams, among `instances` instances."""

    FAMILY = "divided"
    sidecars = 0  # they start when everything is stored

    streams: int = 100
    instances: int = 5
    standbys: int = 1
    fires: int = 5_000
    """The number of schedules that fire, each time."""
    seconds: float = 10.0
    """The time over which they are due."""
    lead_seconds: float = 5.0
    idle_seconds: float = 10.0
    family: str = "divided"
    is_one_each: bool = False
    """True if the number in its name is that of the streams, and nothing is held but one schedule in each of them."""

    @property
    def name(self) -> str:
        return f"{self.family}-{self.count}"

    @property
    def title(self) -> str:
        where = "one in each of as many streams" if self.is_one_each else f"in {self.streams} streams"
        return f"{self.count:,} {where}, {self.instances} instances, {self.standbys} standby for each; one is killed"

    async def run(self, side: Side) -> dict[str, float]:
        """Store all, let every instance read every stream, and then let few read each."""
        if not side.kind.sidecar:
            return {}
        names = [f"{STREAM}-{number}" for number in range(self.count if self.is_one_each else self.streams)]
        for name in names:
            await side.api.create_stream(side.kind.stream(name))
        side.streams += names
        await side.store(self._held(names, side))
        found: dict[str, float] = {}
        for standbys, measures in ((ALL_READ_ALL, m.READ_BY_ALL), (self.standbys, m.READ_BY_FEW)):
            if self.is_one_each and standbys != self.standbys:
                continue  # what is compared is what everybody runs
            seconds = await self._start(side, standbys)
            await asyncio.sleep(SETTLE_SECONDS)
            memory = side.scheduler_memory() / MEGABYTE / self.instances
            most = max((await streams_read(side.api)).values()) / len(side.streams)
            is_last = standbys == self.standbys
            idle = await self._idle(side) if is_last else {}
            cpu, late = await self._fire(side, names, f"s-{standbys}", kills=is_last)
            figures = seconds, 100 * most, memory, 100 * cpu.scheduler / self.instances
            found |= idle | m.figures(zip(measures, figures, strict=True))
            if is_last:
                found |= m.FIRING_CPU.figures(cpu, 1)
                again = await self._read_again(side, standbys)
                found |= m.figures([(m.TAKEOVER, late[-1] / 1_000), (m.READ_AGAIN, again)])
            await side.stop_sidecars()
        return found

    def _held(self, names: Sequence[str], side: Side) -> Iterator[bytes]:
        """Yield the schedules that do not fire, in turn for each stream."""
        for number, pattern in enumerate(far_patterns(self.count)):
            yield reminder(subject_of(number, HELD_GROUP, names[number % len(names)]), pattern, side.kind.prefix)

    async def _start(self, side: Side, standbys: int) -> float:
        """Start all instances at once, and return the seconds until each stream is read by so many of them."""
        started = time.perf_counter()
        side.flags = ("--standbys", str(standbys))
        for _ in range(self.instances):
            side.start_sidecar()
        await self._read_again(side, standbys)
        return time.perf_counter() - started

    async def _read_again(self, side: Side, standbys: int) -> float:
        """Wait until each stream has its owner and its standbys, all of them alive; return the seconds."""
        started, streams = time.perf_counter(), len(side.streams)
        async with asyncio.timeout(READY_SECONDS):
            while True:
                read = await streams_read(side.api)
                readers = min(1 + standbys, len(side.sidecars)) * streams
                if len(read) == len(side.sidecars) and read.total() == readers and await _owned(side, read) == streams:
                    return time.perf_counter() - started
                await asyncio.sleep(POLL_SECONDS)

    async def _idle(self, side: Side) -> dict[str, float]:
        """Return the CPU of all instances and the server while nothing fires."""
        started, before = time.perf_counter(), side.cpu()
        await asyncio.sleep(self.idle_seconds)
        return m.IDLE_CPU.figures(side.cpu().since(before), time.perf_counter() - started)

    async def _fire(self, side: Side, names: Sequence[str], group: str, *, kills: bool) -> tuple[Cpu, list[float]]:
        """Let schedules fire; returns the CPU (cores) of the first half, and how late each fire was (ms), in order."""
        started, before = time.perf_counter(), side.cpu()
        streams = [names[number % len(names)] for number in range(self.fires)]
        dues = await store_spread(side, streams, self.seconds, self.lead_seconds, group)
        await until(dues[self.fires // 2])
        seconds, used = time.perf_counter() - started, side.cpu().since(before)
        if kills:
            victim = side.sidecars.pop(0)
            victim.process.kill()
            await asyncio.to_thread(victim.process.wait)
        await until(dues[-1])
        fires = await all_fires(side, names, self.fires, group)
        return Cpu(*(part / seconds for part in used)), lateness(fires, dues)


async def _owned(side: Side, instances: Counter[str]) -> int:
    """Return the number of streams that one of these instances owns."""
    return sum(owner in instances for owner in (await owners(side.api)).values())
