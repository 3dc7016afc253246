"""Few schedules among many ordinary messages: how long does a start take that has to find them?

The rule: the ordinary messages lie in front of the schedules and between them, on a thousand subjects.
"""

from dataclasses import dataclass
from itertools import islice
from time import time_ns

from nats_scheduler.runtime.snapshots import MIN_MESSAGES_AFTER
from tests.bench.load import at_pattern, ordinary, schedules
from tests.bench.measures import MEMORY_RESTARTED, RESTART, figures
from tests.bench.scenarios.held import MEGABYTE, MONTH
from tests.bench.sides import Side


@dataclass(frozen=True)
class Ordinary:
    """`count` ordinary messages and `held` schedules in one stream."""

    count: int
    held: int = 100
    subjects: int = 1_000
    sidecars: int = 1

    @property
    def name(self) -> str:
        return f"ordinary-{self.count}"

    @property
    def title(self) -> str:
        return f"{self.count:,} ordinary messages beside {self.held:,} schedules"

    async def run(self, side: Side) -> dict[str, float]:
        """Store them in turn, and start again."""
        stretch = ordinary("other", self.subjects)
        patterns = [at_pattern(time_ns() + MONTH)] * (self.held // 2)
        for group in ("s-first", "s-second"):
            await side.store(islice(stretch, self.count // 2))
            await side.store(schedules(patterns, side.kind.prefix, group))
        kept = await side.until_snapshot_is_kept() if self.count > MIN_MESSAGES_AFTER else {}
        seconds = await side.restart_scheduler()
        return kept | figures([(RESTART, seconds), (MEMORY_RESTARTED, side.scheduler_memory() / MEGABYTE)])
