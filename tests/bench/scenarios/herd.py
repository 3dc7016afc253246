"""Schedules that are all due at one instant: when is the last stored, and the last purged?

The rule: the instant lies further ahead than a fire is prepared, so that accepting, firing and purging are apart, and
the CPU of each can be measured.
Repeating schedules are not purged; each fires at one time of the day.
"""

import time
from dataclasses import dataclass

from tests.bench import measures as m
from tests.bench.fires import lateness, read_fires
from tests.bench.load import SECOND, at_pattern, daily_pattern, schedules
from tests.bench.processes import Cpu
from tests.bench.scenarios.scenario import FIRES_SECONDS, Scenario, refuse_if_late, until
from tests.bench.sides import Mark, Side

LEAD_SECONDS = 11.0
"""From the end of the load to the due time: more than the sidecar looks ahead by default."""
SMALLEST_FOR_CPU = 5_000
"""With fewer schedules, most CPU is used while idle before the due time."""
FOLLOWED_PER_SECOND = 8_000
"""The lowest rate at which a machine may load, and follow, before the burst is due."""


@dataclass(frozen=True)
class Herd(Scenario):
    """`count` schedules due at one instant."""

    repeating: bool = False
    lead_seconds: float = LEAD_SECONDS

    @property
    def name(self) -> str:
        return f"{'repeating' if self.repeating else 'herd'}-{self.count}"

    @property
    def title(self) -> str:
        return f"{self.count:,} {'repeating' if self.repeating else '`@at`'} at one instant"

    async def run(self, side: Side) -> dict[str, float]:
        """Store them, let them fire, and read back when each was stored."""
        before, cpu = await side.mark(), side.cpu()
        due = (time.time_ns() // SECOND + 1 + int(self.lead_seconds + self.count / FOLLOWED_PER_SECOND)) * SECOND
        pattern = daily_pattern(due) if self.repeating else at_pattern(due)
        rate = await side.store(schedules([pattern] * self.count, side.kind.prefix))
        loaded = time.time_ns()
        followed = (await side.until_it_fires() - loaded) / 1_000_000
        ready = await side.mark()
        refuse_if_late(due)
        found = m.figures([(m.LOAD_RATE, rate), (m.FOLLOWED, max(followed, 0.0))])
        found |= self._cpu(m.CPU_ACCEPT, side.cpu().since(cpu))
        found |= await self._fire(side, ready, before.messages + 1, due)  # and what the probe left
        # After all else was measured: reading a large burst back takes the server a second.
        late = lateness(await read_fires(side.connection, side.api), [due] * self.count)
        rate = self.count / max(late[-1] / 1_000, 0.000_001)
        return found | m.of_lateness(late) | m.figures([(m.FIRE_RATE, rate)])

    async def _fire(self, side: Side, ready: Mark, others: int, due: int) -> dict[str, float]:
        """Wait for the fires of a burst that was stored and for its purges, and return what they cost."""
        cpu = side.cpu()
        await until(due)
        await side.wait_for_fires(self.count, ready, FIRES_SECONDS)
        fired = side.cpu()
        found = self._cpu(m.CPU_FIRE, fired.since(cpu))
        if self.repeating:
            return found
        await side.wait_for_purges(others + self.count, FIRES_SECONDS)
        found |= m.figures([(m.PURGED, (time.time_ns() - due) / 1_000_000)])
        purged = side.cpu()
        return found | self._cpu(m.CPU_PURGE, purged.since(fired)) | self._cpu(m.CPU_FIRE_PURGE, purged.since(cpu))

    def _cpu(self, measure: m.CpuMeasure, used: Cpu) -> dict[str, float]:
        """Return the CPU for one of the burst, unless it is so small that idling before it used most of the CPU."""
        return measure.figures(used, self.count) if self.count >= SMALLEST_FOR_CPU else {}
