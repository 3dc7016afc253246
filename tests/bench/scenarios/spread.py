"""Schedules that are due at random over some seconds: how late is each, and up to which rate does this go well?

`Spread`: alone, or with a busy stream beside, or with a message that each fire samples; all are stored before the first
is due, so that the load does not disturb the fires. `Steady`: each is published a little before it is due, while those
before it fire, as most applications do it; what is published too late to be accepted in time fails the scenario.
`Rate`: the highest steady rate at which fires are punctual, p99 of 10 ms or less. The rate doubles until it is too
high, then the interval is halved until it is known to an eighth. A step that does not hold is repeated once, so that
one pause of the machine does not decide; each begins with an empty stream, and its first seconds do not count.
Limit: the generator of the load takes a part of the machine, the more the higher the rate. A rate that this program
cannot publish, or that the server cannot accept in time, is too high as well.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from tests.bench.fires import lateness, lateness_by_number, read_fires
from tests.bench.load import SECOND, at_pattern, message, ordinary, reminder, schedules, source_of, spread, subject_of
from tests.bench.measures import CPU_FIRE, HIGHEST_RATE, OTHERS_RATE, P99, figures, of_lateness
from tests.bench.processes import Cpu
from tests.bench.publisher import LateLoadError
from tests.bench.scenarios.scenario import FIRES_SECONDS, Scenario, refuse_if_late, until
from tests.bench.sides import Mark, Side

LOADED_PER_SECOND = 12_000
"""The lowest rate at which a machine may load before the first schedule is due."""

SMALLEST_FOR_CPU = 2_000
"""With fewer schedules, most CPU is used while idle between them."""


@dataclass(frozen=True)
class Spread(Scenario):
    """`count` schedules due over `seconds`."""

    seconds: float = 10.0
    others_per_second: int = 0
    """Ordinary messages that are stored in the same stream meanwhile."""
    sampling: bool = False
    family: str = "spread"
    asked: int = 0
    """The number of its name, if that is not `count`."""
    lead_seconds: float = 1.5

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
        dues = spread(side.draw, begin, self.seconds, self.count)
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
    within_seconds: float = FIRES_SECONDS
    """Longest wait for the last fire, and for the last purge."""

    @property
    def title(self) -> str:
        return f"{self.count:,} a second for {self.seconds:g} s, each published {self.ahead_seconds:g} s ahead"

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
        dues = spread(side.draw, time.time_ns() + SECOND // 10 + ahead, self.seconds, round(self.count * self.seconds))
        frame = partial(reminder, prefix=side.kind.prefix)
        load = ((due - ahead, frame(subject_of(number), at_pattern(due))) for number, due in enumerate(dues))
        before, cpu = await side.mark(), side.cpu()
        await side.publisher.publish_on_time(load, at_most_late_ns=ahead // 2)
        await until(dues[-1])
        await side.wait_for_fires(len(dues), before, self.within_seconds)
        await side.wait_for_purges(before.messages + len(dues), self.within_seconds)
        used = side.cpu().since(cpu)
        return lateness_by_number(await read_fires(side.connection, side.api), dues), used


PUNCTUAL_P99_MS = 10.0
DOUBLINGS = 5
"""From the first rate to the limit, if all hold."""
PRECISION = 1 / 8
"""Of the rate that is found."""
TRIES = 2
STEP_SECONDS = 10.0
WARM_UP_SECONDS = 2.0
"""At the start of a step, not counted."""
DRAIN_SECONDS = 60.0
"""Longest wait for the last fire of a step whose rate was too high."""
SETTLE_SECONDS = 1.0
"""Between two steps."""
SEARCH_SECONDS = 300.0
"""Past it, no further rate is tried."""

Holds = Callable[[int], Awaitable[bool]]


async def highest(holds: Holds, lowest: int, limit: int, within_seconds: float = SEARCH_SECONDS) -> int:
    """Return the highest rate that was found to hold, at most `limit`; 0 if `lowest` does not."""
    end = time.perf_counter() + within_seconds
    good, bad = 0, 0
    tried = lowest
    while good < limit and time.perf_counter() < end:
        if await holds(tried):
            good = tried
        elif good == 0:
            return 0
        else:
            bad = tried
        if bad and bad - good <= good * PRECISION:
            break
        tried = (good + bad) // 2 if bad else min(good * 2, limit)
    return good


@dataclass(frozen=True)
class Rate(Scenario):
    """The highest rate up to `limit` a second."""

    FAMILY = "rate"

    step_seconds: float = STEP_SECONDS
    warm_up_seconds: float = WARM_UP_SECONDS
    search_seconds: float = SEARCH_SECONDS

    @property
    def title(self) -> str:
        return f"the highest rate up to {self.count:,} a second with p99 ≤ {PUNCTUAL_P99_MS:g} ms"

    async def run(self, side: Side) -> dict[str, float]:
        """Search, and return the rate with the figures of its step."""
        found: dict[int, dict[str, float]] = {}

        async def holds(rate: int) -> bool:
            for _ in range(TRIES):
                step = await self._step(side, rate)
                if step and step[P99.name] <= PUNCTUAL_P99_MS:
                    found[rate] = step
                    return True
            return False

        rate = await highest(holds, max(self.count >> DOUBLINGS, 1), self.count, self.search_seconds)
        return figures([(HIGHEST_RATE, rate)]) | found.get(rate, {})

    async def _step(self, side: Side, rate: int) -> dict[str, float]:
        """Return the figures of one rate, none if the load could not be published at it."""
        try:
            late, used = await Steady(rate, self.step_seconds, within_seconds=DRAIN_SECONDS).fire(side)
            counted = sorted(late[int(rate * self.warm_up_seconds) :])
            return of_lateness(counted) | CPU_FIRE.figures(used, len(late))
        except LateLoadError:
            return {}
        finally:
            for _ in range(2):  # what was in flight at the first purge may be stored after it
                await side.purge()
                await asyncio.sleep(SETTLE_SECONDS)
