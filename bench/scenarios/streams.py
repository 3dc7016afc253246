"""As many streams as schedules, compared with one stream that holds as many: what does a stream cost?

First all schedules lie in one stream, then one in each of many; the rest is the same. `@every 1s` fires all of them at
the same instant, whenever they were stored; how late one is that fires alone is seen of `@at`, spread evenly.
The rule: both are measured in the same run, and what is compared is their ratio.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.fires import WrongFiresError, lateness, read_fires_of
from bench.load import SECOND, STREAM, at_pattern, schedule
from bench.measures import (
    MANY_BURST_P99,
    MANY_CPU,
    MANY_IDLE_CPU,
    MANY_OVER_ONE,
    ONE_BURST_P99,
    ONE_CPU,
    SERVED,
    figures,
    of_lateness,
    percentile,
)
from bench.scenarios.scenario import all_fires, refuse_if_late, until
from bench.sides import Side

EVERY_SECOND = "@every 1s"
SETTLE_SECONDS = 2.0
"""From the end of a load to the first measurement: what was overdue has fired by then."""
HALF_A_SECOND = SECOND // 2


@dataclass(frozen=True)
class Streams:
    """`count` schedules in one stream, and then one in each of `count` streams."""

    count: int
    seconds: int = 10
    spread_seconds: float = 5.0
    lead_seconds: float = 4.0
    """From the load to the first that is due: what is accepted late would be fired late."""
    within_seconds: float = 120.0
    sidecars: int = 1

    @property
    def name(self) -> str:
        """The name under which it is asked for, saved and compared."""
        return f"streams-{self.count}"

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return f"{self.count:,} `{EVERY_SECOND}` in one stream, and in as many streams"

    async def run(self, side: Side) -> dict[str, float]:
        """Fire from one stream, then from many, and compare."""
        await side.store(self._every_second([STREAM] * self.count, side))
        one, one_late = await self._watch(side, [STREAM])
        await side.api.call(f"STREAM.PURGE.{STREAM}", {})
        names = [f"{STREAM}-{number}" for number in range(self.count)]
        served = await side.serve_many(names, self.within_seconds)
        await asyncio.sleep(SETTLE_SECONDS)
        idle = await self._cpu(side)
        spread = await self._spread(side, names)
        await side.store(self._every_second(names, side))
        many, many_late = await self._watch(side, names)
        found = [(ONE_CPU, one), (MANY_CPU, many), (MANY_OVER_ONE, many / one), (MANY_IDLE_CPU, idle)]
        found += [(ONE_BURST_P99, percentile(one_late, 0.99)), (MANY_BURST_P99, percentile(many_late, 0.99))]
        return figures(found if served is None else [*found, (SERVED, served)]) | of_lateness(spread)

    def _every_second(self, streams: Sequence[str], side: Side) -> Iterator[bytes]:
        for number, stream in enumerate(streams):
            yield schedule(f"{stream}.s.{number}", EVERY_SECOND, side.kind.prefix, f"{stream}.out")

    async def _watch(self, side: Side, streams: Sequence[str]) -> tuple[float, list[float]]:
        """Let them fire for a while; returns the CPU (% of a core), and how late each fire was (ms), in order."""
        begin = (time.time_ns() // SECOND + 1) * SECOND + int(SETTLE_SECONDS * SECOND) + HALF_A_SECOND
        await until(begin)
        cpu = await self._cpu(side)
        end = begin + self.seconds * SECOND
        stored = await read_fires_of(side.connection, side.api, streams)
        fires = [fire for fire in stored if begin <= fire.stored_at < end]
        if len(fires) != self.count * self.seconds:
            raise WrongFiresError(f"{len(fires)} fires of {self.count} schedules in {self.seconds} s")
        return cpu, sorted((fire.stored_at % SECOND) / 1_000_000 for fire in fires)

    async def _cpu(self, side: Side) -> float:
        started, cpu = time.perf_counter(), side.scheduler_cpu()
        await asyncio.sleep(self.seconds)
        return (side.scheduler_cpu() - cpu) / (time.perf_counter() - started) * 100

    async def _spread(self, side: Side, names: Sequence[str]) -> list[float]:
        """Fire one `@at` in each stream, evenly over some seconds; returns how late each was (ms), in order."""
        begin = time.time_ns() + int(self.lead_seconds * SECOND)
        dues = [begin + int(number * self.spread_seconds * SECOND / self.count) for number in range(self.count)]
        load = [
            schedule(f"{name}.at.{number}", at_pattern(due), side.kind.prefix, f"{name}.out")
            for number, (name, due) in enumerate(zip(names, dues, strict=True))
        ]
        await side.store(load)
        refuse_if_late(begin)
        await until(dues[-1] + SECOND)
        return lateness(await all_fires(side, names, self.count), dues)
