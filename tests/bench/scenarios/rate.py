"""The highest steady rate at which fires are punctual: p99 of 10 ms or less, while the load goes on.

The rule: the rate doubles until it is too high, then the interval is halved until it is known to an eighth. A step that
does not hold is repeated once, so that one pause of the machine does not decide.
Each step begins with an empty stream, and its first seconds do not count.
Limit: the generator of the load takes a part of the machine, the more the higher the rate. A rate that this program
cannot publish, or that the server cannot accept in time, is too high as well.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from tests.bench.measures import CPU_FIRE, HIGHEST_RATE, P99, figures, of_lateness
from tests.bench.publisher import LateLoadError
from tests.bench.scenarios.steady import Steady
from tests.bench.sides import Side

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
class Rate:
    """The highest rate up to `limit` a second."""

    limit: int
    step_seconds: float = STEP_SECONDS
    warm_up_seconds: float = WARM_UP_SECONDS
    search_seconds: float = SEARCH_SECONDS
    sidecars: int = 1

    @property
    def name(self) -> str:
        return f"rate-{self.limit}"

    @property
    def title(self) -> str:
        return f"the highest rate up to {self.limit:,} a second with p99 ≤ {PUNCTUAL_P99_MS:g} ms"

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

        rate = await highest(holds, max(self.limit >> DOUBLINGS, 1), self.limit, self.search_seconds)
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
