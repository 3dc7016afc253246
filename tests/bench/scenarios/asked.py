"""Fires while the micro service is asked all the time, beside fires of the same sidecar while it is not.

In one go: many schedules are held, then a spread load and a burst fire without requests, then the same with three
requesters: one asks for a page of 1,000 as soon as it has got the last one, one searches for what none is, and one is
an open status page.
The rule: both are measured in the same process, one after the other, so that they differ in the requests alone.
Limit: a server that schedules by itself is not asked: there is nobody to ask.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from tests.bench import measures as m
from tests.bench.load import STREAM, schedules, targets_of
from tests.bench.scenarios.held import HELD_GROUP, far_patterns
from tests.bench.scenarios.herd import Herd
from tests.bench.scenarios.scenario import Scenario
from tests.bench.scenarios.spread import Spread
from tests.bench.sides import Side

PAGE_LENGTH = 1_000
ANSWER_SECONDS = 60.0
"""Longest wait for a page."""
BUSY_SECONDS = 0.1
REFRESH_SECONDS = 2.0
ENDPOINTS = (
    *("streams.list", "activity.list", "fires.recent", "timeline.list", "failures.list", "instances.list"),
    "health.get",
)
"""The endpoints that a page asks."""


async def answer(side: Side, endpoint: str, **request: object) -> dict[str, Any]:
    """Return what a sidecar answers; while it says that it is too busy, it is asked again."""
    body = json.dumps(request).encode()
    while True:
        reply = await side.connection.request(f"nats_scheduler.v1.{endpoint}", body, deadline=ANSWER_SECONDS)
        if not reply.block:
            found: dict[str, Any] = json.loads(reply.body)
            return found
        assert b"503" in reply.block, reply.block
        await asyncio.sleep(BUSY_SECONDS)


@dataclass(frozen=True)
class Asked(Scenario):
    """`count` schedules are held; a spread load and a burst fire beside them."""

    FAMILY = "asked"

    spread: int = 2_000
    spread_seconds: float = 10.0
    burst: int = 3_000
    lead_seconds: float = 3.0

    @property
    def title(self) -> str:
        return (
            f"pages of {PAGE_LENGTH:,} out of {self.count:,} held; {self.spread:,} spread and a burst of {self.burst:,}"
        )

    async def run(self, side: Side) -> dict[str, float]:
        """Load, then fire without requests and with them."""
        await side.store(schedules(far_patterns(self.count), side.kind.prefix, HELD_GROUP))
        await side.until_it_fires()
        found = await self._fire(side, m.QUIET_SPREAD_P99, m.QUIET_BURST_P99)
        if not side.kind.sidecar:
            return found
        answered: list[float] = []
        async with self._asking(side, answered):
            found |= await self._fire(side, m.ASKED_SPREAD_P99, m.ASKED_BURST_P99)
        return found | m.figures([(m.PAGE_SECONDS, sum(answered) / max(len(answered), 1))])

    async def _fire(self, side: Side, spread: m.Measure, burst: m.Measure) -> dict[str, float]:
        fired = await Spread(self.spread, self.spread_seconds, lead_seconds=self.lead_seconds).run(side)
        await side.purge(targets_of())
        together = await Herd(self.burst, lead_seconds=self.lead_seconds).run(side)
        await side.purge(targets_of())
        return m.figures([(spread, fired[m.P99.name]), (burst, together[m.P99.name])])

    @asynccontextmanager
    async def _asking(self, side: Side, answered: list[float]) -> AsyncIterator[None]:
        """Ask all the time; `answered` gets how long (s) each page took."""
        asking = [asyncio.create_task(one) for one in (self._ask(side, answered), self._search(side), self._show(side))]
        try:
            yield
            ended = [task.result() for task in asking if task.done()]  # raises what ended a requester
            assert not ended, "it was asked all the time"
        finally:
            for task in asking:
                task.cancel()
            await asyncio.wait(asking)

    async def _ask(self, side: Side, answered: list[float]) -> None:
        """Ask for one page after the other."""
        cursor = None
        while True:
            began = time.perf_counter()
            page = await answer(side, "schedules.list", stream=STREAM, limit=PAGE_LENGTH, cursor=cursor)
            cursor = page["cursor"]
            answered.append(time.perf_counter() - began)

    async def _search(self, side: Side) -> None:
        """Search again and again for a target that no schedule has: all rows are looked at to find that out."""
        while True:
            page = await answer(side, "schedules.list", stream=STREAM, limit=PAGE_LENGTH, target="t.none")
            assert page["schedules"] == []

    async def _show(self, side: Side) -> None:
        """Ask for all that an open page shows, at each refresh."""
        while True:
            await asyncio.gather(*(answer(side, endpoint) for endpoint in ENDPOINTS))
            await asyncio.sleep(REFRESH_SECONDS)
