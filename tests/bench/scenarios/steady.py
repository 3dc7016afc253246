"""Schedules that are published at a steady rate, each a little before it is due, while those before them fire.

So most applications do it: the load never ends, and accepting, firing and purging share the machine all the time.
The rule: what is published too late to be accepted before it is due fails the scenario; `bench.scenarios.rate` asks up
to which rate this goes well.
"""

import time
from dataclasses import dataclass
from functools import partial

from tests.bench.fires import lateness_by_number, read_fires
from tests.bench.load import SECOND, at_pattern, evenly, reminder, subject_of
from tests.bench.measures import CPU_FIRE, of_lateness
from tests.bench.processes import Cpu
from tests.bench.scenarios.scenario import FIRES_SECONDS, until
from tests.bench.scenarios.spread import SMALLEST_FOR_CPU
from tests.bench.sides import Side

AHEAD_SECONDS = 2.0
"""From the publish of a schedule to its fire."""


@dataclass(frozen=True)
class Steady:
    """`rate` schedules published a second, and as many fires."""

    rate: int
    seconds: float = 30.0
    ahead_seconds: float = AHEAD_SECONDS
    within_seconds: float = FIRES_SECONDS
    """Longest wait for the last fire, and for the last purge."""
    sidecars: int = 1

    @property
    def name(self) -> str:
        return f"steady-{self.rate}"

    @property
    def title(self) -> str:
        return f"{self.rate:,} a second for {self.seconds:g} s, each published {self.ahead_seconds:g} s ahead"

    async def run(self, side: Side) -> dict[str, float]:
        """Publish and fire, and read back when each was stored."""
        late, used = await self.fire(side)
        found = of_lateness(sorted(late))
        return found | CPU_FIRE.figures(used, len(late)) if len(late) >= SMALLEST_FOR_CPU else found

    async def fire(self, side: Side) -> tuple[list[float], Cpu]:
        """Return how late each fire was (ms), by number, and the CPU from the first publish to the last purge.

        Raises `LateLoadError` if the load was not stored well ahead of its times.
        """
        ahead = int(self.ahead_seconds * SECOND)
        dues = evenly(time.time_ns() + SECOND // 10 + ahead, self.seconds, round(self.rate * self.seconds))
        frame = partial(reminder, prefix=side.kind.prefix)
        load = ((due - ahead, frame(subject_of(number), at_pattern(due))) for number, due in enumerate(dues))
        before, cpu = await side.mark(), side.cpu()
        await side.publisher.publish_on_time(load, at_most_late_ns=ahead // 2)
        await until(dues[-1])
        await side.wait_for_fires(len(dues), before, self.within_seconds)
        await side.wait_for_purges(before.messages + len(dues), self.within_seconds)
        used = side.cpu().since(cpu)
        return lateness_by_number(await read_fires(side.connection, side.api), dues), used
