"""Many schedules that are held and not due: what do they cost, and does a fire beside them cost more?

`Held`, in one go for each number: the rate of loading, how soon the last is followed, memory, idle CPU, a restart until
the scheduler can fire, a burst beside the rest, and a restart without the file of schedules. `Loaded`: all frames are
built before, so that the rate is the server's and the sidecar's, not this program's. `Among`: few schedules in a stream
of other messages, and both restarts.
The rule: the schedules are due a month ahead, spread over a day, so that none of them fires or is prepared.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tests.bench import measures as m
from tests.bench.load import SECOND, STREAM, at_pattern, message, schedules
from tests.bench.processes import resident_bytes
from tests.bench.scenarios.herd import Herd
from tests.bench.scenarios.scenario import Scenario
from tests.bench.sides import Side

MEGABYTE = 1_000_000
DAY = 86_400 * SECOND
MONTH = 30 * DAY
HELD_GROUP = "s-held"
"""Their group of subjects: what fires beside them is counted alone."""
SETTLE_SECONDS = 2.0
"""From the end of a load to the measurement of memory or idle CPU: garbage is collected meanwhile."""


@dataclass(frozen=True)
class Held(Scenario):
    """`count` schedules due in a month, and a burst of `beside` that fires."""

    FAMILY = "held"

    beside: int = 1_000
    idle_seconds: float = 10.0
    burst_lead_seconds: float = 3.0

    @property
    def title(self) -> str:
        return f"{self.count:,} held; a burst of {self.beside:,} beside them"

    async def run(self, side: Side) -> dict[str, float]:
        """Load, idle, restart, and fire beside them."""
        found = await self._load(side)
        found |= await self._stand_idle(side)
        seconds = await side.restart_scheduler()
        await asyncio.sleep(SETTLE_SECONDS)
        memory = side.scheduler_memory() / MEGABYTE
        found |= m.figures([(m.RESTART, seconds), (m.MEMORY_RESTARTED, memory)])
        fired = await Herd(self.beside, lead_seconds=self.burst_lead_seconds).run(side)
        found |= {measure.name: fired[measure.name] for measure in (m.P50, m.P99, m.LAST)}
        return found | m.figures([(m.BARE_RESTART, await side.restart_scheduler(has_file=False))])

    async def _load(self, side: Side) -> dict[str, float]:
        memory = side.scheduler_memory()
        found = await loaded(side, schedules(far_patterns(self.count), side.kind.prefix, HELD_GROUP), self.count)
        await asyncio.sleep(SETTLE_SECONDS)
        grown = (side.scheduler_memory() - memory) / self.count
        return found | m.figures(
            [
                (m.MEMORY, side.scheduler_memory() / MEGABYTE),
                (m.SCHEDULE_BYTES, grown),
                (m.SERVER_MEMORY, resident_bytes(side.server_pid) / MEGABYTE),
            ]
        )

    async def _stand_idle(self, side: Side) -> dict[str, float]:
        started, cpu = time.perf_counter(), side.cpu()
        await asyncio.sleep(self.idle_seconds)
        return m.IDLE_CPU.figures(side.cpu().since(cpu), time.perf_counter() - started)


async def loaded(side: Side, frames: Iterable[bytes], count: int) -> dict[str, float]:
    """Store `count` schedules as fast as it goes, and then one that is due; return what that took."""
    cpu = side.cpu()
    rate = await side.store(frames)
    stored = time.time_ns()
    followed = max((await side.until_it_fires() - stored) / 1_000_000, 0.0)
    used = side.cpu().since(cpu)
    return m.CPU_ACCEPT.figures(used, count) | m.figures([(m.LOAD_RATE, rate), (m.FOLLOWED, followed)])


def far_patterns(count: int) -> Iterator[str]:
    """Yield the patterns of `count` schedules, due in a month, spread over a day."""
    begin = time.time_ns() + MONTH
    return (at_pattern(begin + number * DAY // count) for number in range(count))


@dataclass(frozen=True)
class Loaded(Scenario):
    """`count` schedules due in a month."""

    FAMILY = "loaded"

    @property
    def title(self) -> str:
        return f"{self.count:,} stored as fast as it goes"

    async def run(self, side: Side) -> dict[str, float]:
        """Store them, and then one that is due."""
        frames = list(schedules(far_patterns(self.count), side.kind.prefix))
        return await loaded(side, frames, self.count)


@dataclass(frozen=True)
class Among(Scenario):
    """`held` schedules, due in a month, between `count` other messages on as many subjects."""

    FAMILY = "among"

    held: int = 100

    @property
    def title(self) -> str:
        return f"{self.held:,} schedules among {self.count:,} other messages"

    async def run(self, side: Side) -> dict[str, float]:
        """Store them, restart, and restart without the file of schedules."""
        await side.store(self._frames(side.kind.prefix))
        await side.until_it_fires()
        found = m.figures([(m.RESTART, await side.restart_scheduler())])
        return found | m.figures([(m.BARE_RESTART, await side.restart_scheduler(has_file=False))])

    def _frames(self, prefix: bytes) -> Iterator[bytes]:
        each, subjects = self.count // self.held, [f"{STREAM}.other.{n}" for n in range(self.held)]
        for frame in schedules(far_patterns(self.held), prefix):
            yield frame
            yield from (message(subjects[number % self.held]) for number in range(each))
