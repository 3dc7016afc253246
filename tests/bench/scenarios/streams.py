"""As many streams as schedules, compared with one stream that holds as many: what does a stream cost?

`Streams`: first all schedules lie in one stream, then one in each of many; the rest is the same, in the same run, and
what is compared is their ratio. `@every 1s` fires all of them at the same instant, whenever they were stored; how late
one is that fires alone is seen of `@at`, spread at random.
`Takeover`: of three instances one is killed (`SIGKILL`) in the middle of the fires, and then one of the two that are
left: how late are the latest, and did each fire once? The schedules lie in one stream, whose owner is killed each time
and which all of them have read, or one in each of many: then those of the killed one get other owners at once.
`HandOver`: an instance is stopped (`SIGTERM`), one is started, another one is stopped, as in a rolling update.
Limit: there is no native counterpart of either on one server, so that side is left out.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench import measures as m
from tests.bench.fires import lateness, lateness_of_repeating, read_fires_of
from tests.bench.load import GROUP, SECOND, STREAM, at_pattern, reminder, spread, subject_of
from tests.bench.processes import Cpu
from tests.bench.registry import instances, owners
from tests.bench.scenarios.scenario import Scenario, all_fires, refuse_if_late, until
from tests.bench.sides import Side
from tests.harness.account import Account

EVERY_SECOND = "@every 1s"
SPREAD_GROUP = "s-at"
WAITED_SECONDS = 0.05
"""A fire that is later than this waited until its stream was taken over."""
SETTLE_SECONDS = 2.0
"""From the end of a load to the first measurement: what was overdue has fired by then."""
HALF_A_SECOND = SECOND // 2
INSTANCES = 3
"""The number of instances of which all but one are killed."""


@dataclass(frozen=True)
class Streams(Scenario):
    """`count` schedules in one stream, and then one in each of `count` streams."""

    FAMILY = "streams"

    seconds: int = 10
    spread_seconds: float = 5.0
    lead_seconds: float = 4.0
    """From the load to the first that is due: what is accepted late would be fired late."""
    within_seconds: float = 120.0

    @property
    def title(self) -> str:
        return f"{self.count:,} `{EVERY_SECOND}` in one stream, and in as many streams"

    async def run(self, side: Side) -> dict[str, float]:
        """Fire from one stream, then from many, and compare."""
        alone = [STREAM] * self.count
        one_spread = await self._spread(side, alone)
        await side.store(self._every_second(alone, side))
        one, one_late = await self._watch(side, [STREAM])
        await side.purge()
        names = [f"{STREAM}-{number}" for number in range(self.count)]
        served = await side.serve_many(names, self.within_seconds)
        await asyncio.sleep(SETTLE_SECONDS)
        idle = await self._cpu(side)
        spread = await self._spread(side, names)
        await side.store(self._every_second(names, side))
        many, many_late = await self._watch(side, names)
        shares = [(m.ONE_CPU, one), (m.MANY_CPU, many), (m.MANY_IDLE_CPU, idle)]
        one_p99, p99 = m.percentile(one_spread, 0.99), m.percentile(spread, 0.99)
        found = [
            (m.MANY_OVER_ONE, many.both / one.both),
            (m.ONE_SPREAD_P99, one_p99),
            (m.P99_MANY_OVER_ONE, p99 / one_p99),
        ]
        found += [(m.ONE_BURST_P99, m.percentile(one_late, 0.99)), (m.MANY_BURST_P99, m.percentile(many_late, 0.99))]
        found += [] if served is None else [(m.SERVED, served)]
        cpu = {name: figure for measure, used in shares for name, figure in measure.figures(used, 1).items()}
        return cpu | m.figures(found) | m.of_lateness(spread)

    def _every_second(self, streams: Sequence[str], side: Side) -> Iterator[bytes]:
        for number, stream in enumerate(streams):
            yield reminder(subject_of(number, stream=stream), EVERY_SECOND, side.kind.prefix)

    async def _watch(self, side: Side, streams: Sequence[str]) -> tuple[Cpu, list[float]]:
        """Let them fire for a while; returns the CPU (cores), and how late each fire was (ms), in order."""
        begin = time.time_ns() // SECOND + 1 + int(SETTLE_SECONDS)
        await until(begin * SECOND + HALF_A_SECOND)
        cpu = await self._cpu(side)
        end = begin + 1 + self.seconds
        stored = await read_fires_of(side.connection, side.api, streams)
        return cpu, lateness_of_repeating(stored, [1] * self.count, begin + 1, end)

    async def _cpu(self, side: Side) -> Cpu:
        """Return the CPU (cores) that is used from now on, over some seconds."""
        started, cpu = time.perf_counter(), side.cpu()
        await asyncio.sleep(self.seconds)
        seconds = time.perf_counter() - started
        return Cpu(*(part / seconds for part in side.cpu().since(cpu)))

    async def _spread(self, side: Side, streams: Sequence[str]) -> list[float]:
        """Fire one `@at` in each of the streams, spread over some seconds; returns how late each was (ms), in order."""
        dues = await store_spread(side, streams, self.spread_seconds, self.lead_seconds, SPREAD_GROUP)
        await until(dues[-1] + SECOND)
        return lateness(await all_fires(side, list(dict.fromkeys(streams)), self.count, SPREAD_GROUP), dues)


@dataclass(frozen=True)
class Takeover(Scenario):
    """`count` schedules due over `seconds`, instances killed one after the other, until one is left."""

    sidecars = 1  # the others start when all streams are there: one that stands by for none would never be ready

    seconds: float = 12.0
    lead_seconds: float = 2.5
    family: str = "takeover"
    is_in_many: bool = False
    """True if each schedule is stored in a stream of its own."""
    within_seconds: float = 120.0

    @property
    def name(self) -> str:
        return f"{self.family}-{self.count}"

    @property
    def flags(self) -> tuple[str, ...]:
        """All instances read the one stream; of many, each has an owner and a standby."""
        return () if self.is_in_many else ("--standbys", str(INSTANCES - 1))

    @property
    def title(self) -> str:
        where = "in as many streams, " if self.is_in_many else ""
        return f"{self.count:,} {where}over {self.seconds:g} s, two of three instances killed"

    async def run(self, side: Side) -> dict[str, float]:
        """Fire, kill all but one in turn, and return how long fires waited; on the native side none."""
        if not side.sidecars:
            return {}
        streams = [STREAM] * self.count
        if self.is_in_many:
            streams = [f"{STREAM}-{number}" for number in range(self.count)]
            await side.serve_many(streams, self.within_seconds, INSTANCES)
        else:
            for _ in range(1, INSTANCES):
                await side.start_sidecar().ready(owns=False)
        account = Account(side.connection, side.api)
        names = await instances(account)
        dues = await store_spread(side, streams, self.seconds, self.lead_seconds)
        for number in range(1, INSTANCES):
            await until(dues[self.count * number // INSTANCES])
            owner = (await owners(account)).get(STREAM)
            place = names.index(owner) if owner in names else 0  # the record may still name the last victim
            names.pop(place)
            victim = side.sidecars.pop(place)
            victim.process.kill()
            await asyncio.to_thread(victim.process.wait)
        await until(dues[-1])
        late = [ms / 1_000 for ms in lateness(await all_fires(side, list(dict.fromkeys(streams)), self.count), dues)]
        waited = [seconds for seconds in late if seconds > WAITED_SECONDS] or late[-1:]
        return m.figures([(m.TAKEOVER, late[-1]), (m.TAKEOVER_P50, m.percentile(waited, 0.5))])


@dataclass(frozen=True)
class HandOver(Scenario):
    """`count` schedules due over `seconds`: of two instances one is stopped, one more is started, one is stopped."""

    FAMILY = "handover"
    sidecars = 2

    seconds: float = 12.0
    lead_seconds: float = 2.5

    @property
    def title(self) -> str:
        return f"{self.count:,} over {self.seconds:g} s, a rolling update of two instances"

    async def run(self, side: Side) -> dict[str, float]:
        """Fire meanwhile, and return how late the latest was; there is nobody to hand over to on the native side."""
        if not side.sidecars:
            return {}
        dues = await store_spread(side, [STREAM] * self.count, self.seconds, self.lead_seconds)
        for number in range(1, 6, 2):
            await until(dues[self.count * number // 6])
            if number == 3:
                await side.start_sidecar().ready(owns=False)
            else:
                await side.sidecars.pop(0).stop()
        await until(dues[-1])
        late = lateness(await all_fires(side, [STREAM], self.count), dues)
        return m.of_lateness(late)


async def store_spread(
    side: Side, streams: Sequence[str], seconds: float, lead_seconds: float, group: str = GROUP
) -> list[int]:
    """Store one schedule in each of the streams, due at random over some seconds; returns when each is due."""
    begin = time.time_ns() + int(lead_seconds * SECOND)
    dues = spread(side.draw, begin, seconds, len(streams))
    await side.store(
        reminder(subject_of(number, group, stream), at_pattern(due), side.kind.prefix)
        for number, (stream, due) in enumerate(zip(streams, dues, strict=True))
    )
    refuse_if_late(begin)
    return dues
