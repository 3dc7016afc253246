"""Two instances, and one of them is killed while schedules fire: how late is the latest, and did each fire once?

The rule: the kill is `SIGKILL`, in the middle of the fires.
Limit: there is no native counterpart on one server, so that side is left out.
"""

import asyncio
import time
from dataclasses import dataclass

from bench.fires import lateness, read_fires
from bench.load import SECOND, at_pattern, schedules
from bench.measures import TAKEOVER, figures
from bench.scenarios.scenario import FIRES_SECONDS, until
from bench.sides import Side


@dataclass(frozen=True)
class Takeover:
    """`count` schedules due over `seconds`, one of two instances killed in the middle."""

    count: int
    seconds: float = 10.0
    lead_seconds: float = 2.5
    sidecars: int = 2

    @property
    def name(self) -> str:
        """The name under which it is asked for, saved and compared."""
        return f"takeover-{self.count}"

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        return f"{self.count:,} over {self.seconds:g} s, one of two instances killed"

    async def run(self, side: Side) -> dict[str, float]:
        """Fire, kill one in the middle, and return the longest wait; there is nothing to kill on the native side."""
        if not side.sidecars:
            return {}
        begin = time.time_ns() + int(self.lead_seconds * SECOND)
        dues = [begin + int(number * self.seconds * SECOND / self.count) for number in range(self.count)]
        await side.store(schedules(map(at_pattern, dues), side.kind.prefix))
        await until(dues[self.count // 2])
        victim = side.sidecars.pop(0)
        victim.process.kill()
        await asyncio.to_thread(victim.process.wait)
        await until(dues[-1])
        await side.wait_for_fires(self.count, FIRES_SECONDS)
        late = lateness(await read_fires(side.connection, side.api), dues)
        return figures([(TAKEOVER, late[-1] / 1_000)])
