"""Schedules that are due at random over some seconds: how late is each?

`Spread`: all are stored before the first is due, so that the load does not disturb the fires. `Steady`: each is
published a little before it is due, while those before it fire, as most applications do it; what is published too late
to be accepted in time fails the scenario.
"""

import time
from dataclasses import dataclass
from functools import partial

from tests.bench.fires import lateness, read_fires
from tests.bench.load import SECOND, at_pattern, reminder, schedules, spread, subject_of
from tests.bench.measures import CPU_FIRE, of_lateness
from tests.bench.scenarios.scenario import FIRES_SECONDS, Scenario, refuse_if_late, until
from tests.bench.sides import Side

LOADED_PER_SECOND = 12_000
"""The lowest rate at which a machine may load before the first schedule is due."""

SMALLEST_FOR_CPU = 2_000
"""With fewer schedules, most CPU is used while idle between them."""


@dataclass(frozen=True)
class Spread(Scenario):
    """`count` schedules due over `seconds`."""

    FAMILY = "spread"

    seconds: float = 10.0
    lead_seconds: float = 1.5

    @property
    def title(self) -> str:
        return f"{self.count:,} over {self.seconds:g} s"

    async def run(self, side: Side) -> dict[str, float]:
        """Store them, let them fire, and read back when each was stored."""
        begin = time.time_ns() + int((self.lead_seconds + self.count / LOADED_PER_SECOND) * SECOND)
        dues = spread(side.draw, begin, self.seconds, self.count)
        before = await side.mark()
        await side.store(schedules(map(at_pattern, dues), side.kind.prefix))
        loaded, cpu = await side.mark(), side.cpu()
        refuse_if_late(begin)
        await until(dues[-1])
        await side.wait_for_fires(self.count, loaded, FIRES_SECONDS)
        await side.wait_for_purges(before.messages + self.count, FIRES_SECONDS)
        used = side.cpu().since(cpu)
        late = lateness(await read_fires(side.connection, side.api), dues)
        found = CPU_FIRE.figures(used, self.count) if self.count >= SMALLEST_FOR_CPU else {}
        return found | of_lateness(late)


LOOK_AHEAD_SECONDS = 10.0
"""The sidecar's default: the contents of fires are read so long before."""


@dataclass(frozen=True)
class Budget(Scenario):
    """`per_second` fires with a lateness budget of `count` ms, beside the native scheduler, which has 250 ms.

    All are stored first. CPU is counted while contents are read and fires sent at the same rate: from the first fire
    on, and until nothing is left to be read.
    """

    per_second: int = 200
    family: str = "budget"
    seconds: float = 15.0

    @property
    def name(self) -> str:
        return f"{self.family}-{self.count}"

    @property
    def title(self) -> str:
        return f"{self.per_second:,} a second with a budget of {self.count:,} ms"

    @property
    def flags(self) -> tuple[str, ...]:
        """The budget."""
        return "--lateness-budget", f"{self.count}ms"

    async def run(self, side: Side) -> dict[str, float]:
        """Store them, let them fire, and read back when each was stored."""
        number = round(self.per_second * (self.seconds + LOOK_AHEAD_SECONDS))
        begin = time.time_ns() + int((LOOK_AHEAD_SECONDS + 2 + number / LOADED_PER_SECOND) * SECOND)
        dues = spread(side.draw, begin, self.seconds + LOOK_AHEAD_SECONDS, number)
        before = await side.mark()
        await side.store(schedules(map(at_pattern, dues), side.kind.prefix))
        loaded = await side.mark()
        refuse_if_late(begin)
        await until(begin)
        cpu = side.cpu()
        end = begin + int(self.seconds * SECOND)
        await until(end)
        used = side.cpu().since(cpu)
        await until(dues[-1])
        await side.wait_for_fires(number, loaded, FIRES_SECONDS)
        await side.wait_for_purges(before.messages + number, FIRES_SECONDS)
        late = lateness(await read_fires(side.connection, side.api), dues)
        return CPU_FIRE.figures(used, sum(due < end for due in dues)) | of_lateness(late)


AHEAD_SECONDS = 2.0
"""From the publish of a schedule to its fire."""


@dataclass(frozen=True)
class Steady(Scenario):
    """`rate` schedules published a second, and as many fires."""

    FAMILY = "steady"

    seconds: float = 30.0
    ahead_seconds: float = AHEAD_SECONDS

    @property
    def title(self) -> str:
        return f"{self.count:,} a second for {self.seconds:g} s, each published {self.ahead_seconds:g} s ahead"

    async def run(self, side: Side) -> dict[str, float]:
        """Publish and fire, and read back when each was stored; CPU is from the first publish to the last purge."""
        ahead = int(self.ahead_seconds * SECOND)
        dues = spread(side.draw, time.time_ns() + SECOND // 10 + ahead, self.seconds, round(self.count * self.seconds))
        frame = partial(reminder, prefix=side.kind.prefix)
        load = ((due - ahead, frame(subject_of(number), at_pattern(due))) for number, due in enumerate(dues))
        before, cpu = await side.mark(), side.cpu()
        await side.publisher.publish_on_time(load, at_most_late_ns=ahead // 2)
        await until(dues[-1])
        await side.wait_for_fires(len(dues), before, FIRES_SECONDS)
        await side.wait_for_purges(before.messages + len(dues), FIRES_SECONDS)
        used = side.cpu().since(cpu)
        late = lateness(await read_fires(side.connection, side.api), dues)
        return of_lateness(late) | (CPU_FIRE.figures(used, len(late)) if len(late) >= SMALLEST_FOR_CPU else {})
