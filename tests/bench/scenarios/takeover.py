"""Two instances, and one of them is killed while schedules fire: how late is the latest, and did each fire once?

The schedules lie in one stream, or one in each of many: then the parts of all those streams change hands at once.

The rule: the kill is `SIGKILL`, in the middle of the fires.
Limit: there is no native counterpart on one server, so that side is left out.
"""

import asyncio
import time
from dataclasses import dataclass

from tests.bench.fires import lateness
from tests.bench.load import SECOND, STREAM, at_pattern, evenly, reminder, subject_of
from tests.bench.measures import TAKEOVER, figures
from tests.bench.scenarios.scenario import all_fires, refuse_if_late, until
from tests.bench.sides import Side


@dataclass(frozen=True)
class Takeover:
    """`count` schedules due over `seconds`, one of two instances killed in the middle."""

    count: int
    seconds: float = 10.0
    lead_seconds: float = 2.5
    family: str = "takeover"
    is_in_many: bool = False
    """True if each schedule is stored in a stream of its own."""
    within_seconds: float = 120.0
    sidecars: int = 2

    @property
    def name(self) -> str:
        return f"{self.family}-{self.count}"

    @property
    def title(self) -> str:
        where = "in as many streams, " if self.is_in_many else ""
        return f"{self.count:,} {where}over {self.seconds:g} s, one of two instances killed"

    async def run(self, side: Side) -> dict[str, float]:
        """Fire, kill one in the middle, and return the longest wait; there is nothing to kill on the native side."""
        if not side.sidecars:
            return {}
        streams = [STREAM] * self.count
        if self.is_in_many:
            streams = [f"{STREAM}-{number}" for number in range(self.count)]
            await side.serve_many(streams, self.within_seconds, self.sidecars)
        begin = time.time_ns() + int(self.lead_seconds * SECOND)
        dues = evenly(begin, self.seconds, self.count)
        await side.store(
            reminder(subject_of(number, stream=stream), at_pattern(due), side.kind.prefix)
            for number, (stream, due) in enumerate(zip(streams, dues, strict=True))
        )
        refuse_if_late(begin)
        await until(dues[self.count // 2])
        victim = side.sidecars.pop(0)
        victim.process.kill()
        await asyncio.to_thread(victim.process.wait)
        await until(dues[-1])
        found = await all_fires(side, list(dict.fromkeys(streams)), self.count)
        return figures([(TAKEOVER, lateness(found, dues)[-1] / 1_000)])
