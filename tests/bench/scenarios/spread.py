"""Schedules that are due evenly over some seconds: how late is each?

Alone, or with a busy stream beside, or with a message that each fire samples.
The rule: all are stored before the first is due, so that the load does not disturb the fires.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.bench.fires import lateness, read_fires
from tests.bench.load import SECOND, at_pattern, evenly, message, ordinary, schedules, source_of
from tests.bench.measures import CPU_FIRE, OTHERS_RATE, figures, of_lateness
from tests.bench.scenarios.scenario import FIRES_SECONDS, refuse_if_late, until
from tests.bench.sides import Mark, Side

LOADED_PER_SECOND = 12_000
"""The lowest rate at which a machine may load before the first schedule is due."""

SMALLEST_FOR_CPU = 2_000
"""With fewer schedules, most CPU is used while idle between them."""


@dataclass(frozen=True)
class Spread:
    """`count` schedules due over `seconds`."""

    count: int
    seconds: float = 10.0
    others_per_second: int = 0
    """Ordinary messages that are stored in the same stream meanwhile."""
    sampling: bool = False
    family: str = "spread"
    asked: int = 0
    """The number of its name, if that is not `count`."""
    lead_seconds: float = 1.5
    sidecars: int = 1

    @property
    def name(self) -> str:
        return f"{self.family}-{self.asked or self.count}"

    @property
    def title(self) -> str:
        beside = f", {self.others_per_second:,} other messages a second" if self.others_per_second else ""
        sampled = ", each samples a subject" if self.sampling else ""
        return f"{self.count:,} over {self.seconds:g} s{beside}{sampled}"

    async def run(self, side: Side) -> dict[str, float]:
        """Store them, let them fire, and read back when each was stored."""
        begin = time.time_ns() + int((self.lead_seconds + self.count / LOADED_PER_SECOND) * SECOND)
        dues = evenly(begin, self.seconds, self.count)
        if self.sampling:
            await side.store(message(source_of(number)) for number in range(self.count))
        before = await side.mark()
        await side.store(schedules(map(at_pattern, dues), side.kind.prefix, sampling=self.sampling))
        loaded, cpu = await side.mark(), side.cpu()
        refuse_if_late(begin)
        found: dict[str, float] = {}
        async with self._others(side, found):
            await until(dues[-1])
        await self._finish(side, before, loaded)
        used = side.cpu().since(cpu)
        late = lateness(await read_fires(side.connection, side.api), dues)
        if self.count >= SMALLEST_FOR_CPU:
            found |= CPU_FIRE.figures(used, self.count)
        return found | of_lateness(late)

    async def _finish(self, side: Side, before: Mark, loaded: Mark) -> None:
        """Wait for the last fire, and until each schedule is purged: the generated and the other messages are left."""
        await side.wait_for_fires(self.count, loaded, FIRES_SECONDS)
        others = side.publisher.acknowledged - loaded.acknowledged
        await side.wait_for_purges(before.messages + others + self.count, FIRES_SECONDS)

    @asynccontextmanager
    async def _others(self, side: Side, found: dict[str, float]) -> AsyncIterator[None]:
        """Keep the stream busy, and record the rate that was reached."""
        if not self.others_per_second:
            yield
            return
        started, before = time.perf_counter(), side.publisher.acknowledged
        endless = side.publisher.publish_at_rate(ordinary("other", 1_000), self.others_per_second)
        busy = asyncio.create_task(endless)
        try:
            yield
            rate = (side.publisher.acknowledged - before) / (time.perf_counter() - started)
            found |= figures([(OTHERS_RATE, rate)])
        finally:
            busy.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await busy
        await side.publisher.until_acknowledged()
