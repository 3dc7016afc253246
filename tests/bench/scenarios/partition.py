"""One stream that one instance owns, against the same load in several streams that two instances own.

The publisher does the same both times: it publishes schedules whose fires go to another stream, at subjects that end in
a number. The second time a mapping of the account moves each of them into one of the streams, by `partition()`, as
docs/operating/scale.md shows it.
The rule: all schedules are stored first, then due at random, so that what is measured is the firing alone.
Limit: there is no native counterpart, so that side is left out. Instances and server share the cores of this machine.
"""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from tests.bench import measures as m
from tests.bench.fires import lateness, read_fires
from tests.bench.load import SECOND, STREAM, Extras, at_pattern, schedule, spread
from tests.bench.registry import owners, streams_read
from tests.bench.scenarios.scenario import FIRES_SECONDS, READ_AGAIN_SECONDS, Scenario, refuse_if_late, until
from tests.bench.scenarios.spread import LOADED_PER_SECOND
from tests.bench.sides import POLL_SECONDS, READY_SECONDS, Side

PARTS = 8
"""The number of streams; so few that each costs little, and so many that each instance owns some."""
INSTANCES = 2
PARTED = "parted"
"""The first token of the subjects that the mapping moves."""
TARGETS = "TARGETS"
"""The stream of the fires."""
PREFIX = b"X-"
"""A fire into another stream exists with the portable headers only."""


def part(number: int) -> str:
    """Return the name of one of the streams."""
    return f"{STREAM}-{number}"


@dataclass(frozen=True)
class Partition(Scenario):
    """`count` fires a second, from one stream and then from several."""

    FAMILY = "partition"
    sidecars = 0  # they start when all streams are there
    server_config = f'mappings = {{\n"{PARTED}.*": "part.{{{{partition({PARTS},1)}}}}.{{{{wildcard(1)}}}}"\n}}\n'

    seconds: float = 10.0
    lead_seconds: float = 2.0

    @property
    def title(self) -> str:
        return f"{self.count:,} a second, one stream with one owner, and {PARTS} with {INSTANCES}"

    @property
    def flags(self) -> tuple[str, ...]:
        """All streams may fire into the other one."""
        streams = (STREAM, *map(part, range(PARTS)))
        return "--allowed-targets-elsewhere", ",".join(f"{name}={TARGETS}.>" for name in streams)

    async def run(self, side: Side) -> dict[str, float]:
        """Fire from one stream, then from all the others."""
        if not side.kind.sidecar:
            return {}
        await side.api.create_stream({"name": TARGETS, "subjects": [f"{TARGETS}.>"], "storage": "file"})
        for number in range(PARTS):
            await side.api.create_stream({**side.kind.stream(part(number)), "subjects": [f"part.{number}.>"]})
            side.streams.append(part(number))
        share = await self._start(side)
        one_late, one_cpu = await self._fire(side, STREAM, "one")
        late, cpu = await self._fire(side, PARTED, "two")
        found = [(m.ONE_OWNER_P99, m.percentile(one_late, 0.99)), (m.TWO_OWNERS_P99, m.percentile(late, 0.99))]
        return m.figures([*found, (m.LARGEST_SHARE, 100 * share)]) | one_cpu | cpu

    async def _start(self, side: Side) -> float:
        """Start both instances, until each owns some of the parts; returns the share of the one that owns most."""
        async with asyncio.timeout(READY_SECONDS):
            side.start_sidecar()
            while True:
                side.start_sidecar()
                await self._until_owned(side)
                owned = Counter(owner for stream, owner in (await owners(side.api)).items() if stream != STREAM)
                if len(owned) == INSTANCES:
                    return max(owned.values()) / PARTS
                await side.sidecars.pop().stop()  # the next one has another name, and so another part

    async def _until_owned(self, side: Side) -> None:
        """Wait until both have read each stream, and it has an owner that is to stay."""
        steady = 0
        before: dict[str, str] = {}
        while steady * POLL_SECONDS < 1.0:
            await asyncio.sleep(POLL_SECONDS)
            read, found = await streams_read(side.api), await owners(side.api)
            is_ready = len(read) == INSTANCES and read.total() == INSTANCES * len(side.streams)
            is_same = is_ready and len(found) == len(side.streams) and found == before
            steady, before = steady + 1 if is_same else 0, found

    async def _fire(self, side: Side, first: str, kind: str) -> tuple[list[float], dict[str, float]]:
        """Let them fire; returns how late each fire was (ms), in order, and the CPU of each with its purge."""
        number = round(self.count * self.seconds)
        begin = time.time_ns() + int((self.lead_seconds + number / LOADED_PER_SECOND) * SECOND)
        dues = spread(side.draw, begin, self.seconds, number)
        group = f"s-{kind}"
        await side.store(
            self._schedule(f"{first}.{one}", f"{TARGETS}.t-{kind}.{one}", due) for one, due in enumerate(dues)
        )
        refuse_if_late(begin)
        cpu = side.cpu()
        await until(dues[-1])
        async with asyncio.timeout(FIRES_SECONDS):
            for stream in side.streams:
                # The server does not notify us.
                while (await side.api.call(f"STREAM.INFO.{stream}"))["state"]["messages"]:  # noqa: ASYNC110
                    await asyncio.sleep(READ_AGAIN_SECONDS)
        measure = m.ONE_OWNER_CPU if first == STREAM else m.TWO_OWNERS_CPU
        used = measure.figures(side.cpu().since(cpu), number)
        fires = await read_fires(
            side.connection, side.api, TARGETS, group, target=lambda schedule: self._target(schedule, kind)
        )
        return lateness(fires, dues), used

    def _schedule(self, subject: str, target: str, due: int) -> bytes:
        elsewhere = Extras(headers=b"X-Nats-Schedule-X-Target: %b\r\n" % target.encode())
        return schedule(subject, at_pattern(due), PREFIX, "", elsewhere)

    def _target(self, subject: str, kind: str) -> str:
        return f"{TARGETS}.t-{kind}.{subject.rpartition('.')[2]}"
