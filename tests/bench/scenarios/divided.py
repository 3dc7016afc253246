"""Many streams among several instances: what does one of them hold and use if each stream is read by two?

The same work is done twice: at first every instance reads every stream, then `readers` of them read each one. Beside
the schedules that are held, some fire over a few seconds; the second time one instance is killed (`SIGKILL`) in the
middle, the others take its streams over, and no fire may be missing or stored twice.
The rule: an instance reads the streams that its heartbeat in the bucket names, which it does once it has read them.
Limit: there is no native counterpart, so that side is left out. All instances share the cores of this machine.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from nats_scheduler.runtime.instances import holders_of
from tests.bench import measures as m
from tests.bench.fires import lateness
from tests.bench.load import STREAM, reminder, subject_of
from tests.bench.processes import Cpu
from tests.bench.scenarios.held import HELD_GROUP, MEGABYTE, SETTLE_SECONDS, far_patterns
from tests.bench.scenarios.scenario import Scenario, all_fires, until
from tests.bench.scenarios.streams import store_spread
from tests.bench.sides import READY_SECONDS, Side

BUCKET = "KV_nats_scheduler"
HEARTBEATS = "$KV.nats_scheduler.instance.*"
LEASES = "$KV.nats_scheduler.lease.*.>"
POLL_SECONDS = 0.2
"""Pause between two looks at the bucket."""


@dataclass(frozen=True)
class Divided(Scenario):
    """`count` schedules in `streams` streams, among `instances` instances."""

    FAMILY = "divided"
    sidecars = 0  # they start when everything is stored

    streams: int = 100
    instances: int = 5
    readers: int = 2
    fires: int = 5_000
    """The number of schedules that fire, each time."""
    seconds: float = 10.0
    """The time over which they are due."""
    lead_seconds: float = 5.0

    @property
    def title(self) -> str:
        who = f"{self.instances} instances, {self.readers} for each; one is killed"
        return f"{self.count:,} in {self.streams} streams, {who}"

    async def run(self, side: Side) -> dict[str, float]:
        """Store all, let every instance read every stream, and then let few read each."""
        if not side.kind.sidecar:
            return {}
        names = [f"{STREAM}-{number}" for number in range(self.streams)]
        for name in names:
            await side.api.create_stream(side.kind.stream(name))
        side.streams += names
        await side.store(self._held(names, side))
        found: list[tuple[m.Measure, float]] = []
        for readers, measures in ((self.instances, m.READ_BY_ALL), (self.readers, m.READ_BY_FEW)):
            seconds = await self._start(side, readers)
            await asyncio.sleep(SETTLE_SECONDS)
            memory = side.scheduler_memory() / MEGABYTE / self.instances
            most = max((await streams_read(side)).values()) / len(side.streams)
            is_last = readers == self.readers
            cpu, late = await self._fire(side, names, f"s-{readers}", kills=is_last)
            figures = seconds, 100 * most, memory, 100 * cpu.scheduler / self.instances
            found += zip(measures, figures, strict=True)
            if is_last:
                found += [(m.TAKEOVER, late[-1] / 1_000), (m.READ_AGAIN, await self._read_again(side, readers))]
            await side.stop_sidecars()
        return m.figures(found)

    def _held(self, names: Sequence[str], side: Side) -> Iterator[bytes]:
        """Yield the schedules that do not fire, in turn for each stream."""
        for number, pattern in enumerate(far_patterns(self.count)):
            yield reminder(subject_of(number, HELD_GROUP, names[number % len(names)]), pattern, side.kind.prefix)

    async def _start(self, side: Side, readers: int) -> float:
        """Start all instances at once, and return the seconds until each stream is read by so many of them."""
        started = time.perf_counter()
        side.flags = ("--instances-per-stream", str(readers))
        for _ in range(self.instances):
            side.start_sidecar()
        await self._read_again(side, readers)
        return time.perf_counter() - started

    async def _read_again(self, side: Side, readers: int) -> float:
        """Wait until each stream is read by so many instances, and all its shards are held; return the seconds."""
        started, streams = time.perf_counter(), len(side.streams)
        async with asyncio.timeout(READY_SECONDS):
            while True:
                read = await streams_read(side)
                are_read = len(read) == len(side.sidecars) and read.total() == readers * streams
                if are_read and await streams_held(side, read) == streams:
                    return time.perf_counter() - started
                await asyncio.sleep(POLL_SECONDS)

    async def _fire(self, side: Side, names: Sequence[str], group: str, *, kills: bool) -> tuple[Cpu, list[float]]:
        """Let schedules fire; returns the CPU (cores) of the first half, and how late each fire was (ms), in order."""
        started, before = time.perf_counter(), side.cpu()
        streams = [names[number % len(names)] for number in range(self.fires)]
        dues = await store_spread(side, streams, self.seconds, self.lead_seconds, group)
        await until(dues[self.fires // 2])
        seconds, used = time.perf_counter() - started, side.cpu().since(before)
        if kills:
            victim = side.sidecars.pop(0)
            victim.process.kill()
            await asyncio.to_thread(victim.process.wait)
        await until(dues[-1])
        fires = await all_fires(side, names, self.fires, group)
        return Cpu(*(part / seconds for part in used)), lateness(fires, dues)


async def streams_read(side: Side) -> Counter[str]:
    """Return how many streams each instance has read and serves, by their heartbeats."""
    return Counter({key: len(value.get("serves") or ()) for key, value in (await _values(side, HEARTBEATS)).items()})


async def streams_held(side: Side, instances: Counter[str]) -> int:
    """Return the number of streams of which each shard is held by one of these instances."""
    names = {key.rpartition(".")[2] for key in instances}
    return sum(set(holders_of(lease)) <= names for lease in (await _values(side, LEASES)).values())


async def _values(side: Side, keys: str) -> dict[str, dict[str, Any]]:
    """Return what is stored in the bucket under some keys, by key; nothing as long as there is no bucket."""
    found: dict[str, dict[str, Any]] = {}
    if await side.api.stream(BUCKET) is None:
        return found
    message = await side.api.message(BUCKET, seq=1, next_by_subj=keys)
    while message is not None:
        if message.body:
            found[message.subject] = json.loads(message.body)
        message = await side.api.message(BUCKET, seq=message.sequence + 1, next_by_subj=keys)
    return found
