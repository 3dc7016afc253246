"""Schedules that are stored as fast as the server takes them: when can the last one fire?

The rule: all frames are built before, so that the rate is the server's and the sidecar's, not this program's.
"""

import time
from dataclasses import dataclass

from tests.bench.load import schedules
from tests.bench.measures import CPU_ACCEPT, FOLLOWED, LOAD_RATE, figures
from tests.bench.scenarios.held import far_patterns
from tests.bench.sides import Side


@dataclass(frozen=True)
class Loaded:
    """`count` schedules due in a month."""

    count: int
    sidecars: int = 1

    @property
    def name(self) -> str:
        return f"loaded-{self.count}"

    @property
    def title(self) -> str:
        return f"{self.count:,} stored as fast as it goes"

    async def run(self, side: Side) -> dict[str, float]:
        """Store them, and then one that is due."""
        frames = list(schedules(far_patterns(self.count), side.kind.prefix))
        cpu = side.cpu()
        rate = await side.store(frames)
        loaded = time.time_ns()
        followed = max((await side.until_it_fires() - loaded) / 1_000_000, 0.0)
        used = side.cpu().since(cpu)
        return figures([(LOAD_RATE, rate), (FOLLOWED, followed)]) | CPU_ACCEPT.figures(used, self.count)
