"""Fires while a status page is open, beside fires of the same sidecar while none is.

As `bench.scenarios.asked`, but for what is asked: not one page after the other, but every `REFRESH_SECONDS` all that a
status page shows, at once.
"""

import asyncio
import time
from dataclasses import dataclass

from tests.bench.scenarios.asked import Asked, answer
from tests.bench.sides import Side

REFRESH_SECONDS = 2.0
ENDPOINTS = (
    "streams.list",
    "activity.list",
    "fires.recent",
    "timeline.list",
    "failures.list",
    "instances.list",
    "health.get",
)
"""The endpoints that a page asks."""


@dataclass(frozen=True)
class Watched(Asked):
    """`count` schedules are held and watched; a spread load and a burst fire beside them."""

    @property
    def name(self) -> str:
        return f"watched-{self.count}"

    @property
    def title(self) -> str:
        return f"an open page over {self.count:,} held; {self.spread:,} spread and a burst of {self.burst:,}"

    async def _ask(self, side: Side, answered: list[float]) -> None:
        """Ask for all that a page shows, again and again; what takes longer than a refresh is asked again at once."""
        while True:
            began = time.perf_counter()
            await asyncio.gather(*(answer(side, endpoint) for endpoint in ENDPOINTS))
            took = time.perf_counter() - began
            answered.append(took)
            await asyncio.sleep(max(REFRESH_SECONDS - took, 0.0))
