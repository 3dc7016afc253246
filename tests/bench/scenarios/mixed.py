"""Schedules as users mix them, in three streams: of all patterns, and with all that a schedule can carry.

Half of the fires are of `@at` schedules that are published 2 s ahead while the others fire. The other half repeat: as
many fires of `@every` as of cron patterns in several time zones, with intervals of 1 to 10 s.
A fifth of the schedules sample a subject, a third have a TTL, half have headers of their own, and bodies are of 100 B
to 10 KB; the generated messages have all that too.
The rule: each fire of a repeating schedule is checked as that of an `@at` is.
Limit: repeating schedules fire at full seconds, so half of the load comes as a small burst each second.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.bench.fires import lateness, lateness_of_repeating, read_fires_of
from tests.bench.load import GROUP, SECOND, STREAM, Extras, at_pattern, message, reminder, source_of, spread, subject_of
from tests.bench.measures import CPU_FIRE, of_lateness
from tests.bench.processes import Cpu
from tests.bench.scenarios.scenario import Scenario, all_fires, until
from tests.bench.scenarios.spread import AHEAD_SECONDS
from tests.bench.sides import Side

STREAMS = tuple(f"{STREAM}-{number}" for number in range(3))
SERVED_SECONDS = 60.0
"""Longest wait for the sidecar to serve them."""
SETTLE_SECONDS = 3
"""From the last repeating schedule to the first publish of an `@at`."""
AT_GROUP = "s-at"
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Auckland")
BODY_SIZES = (100, 200, 500, 1_000, 2_000, 5_000, 10_000)
HEADERS = b"Content-Type: application/json\r\nTraceparent: 00-%032x-%016x-01\r\nOrder-Id: %d\r\n"


def stream_of(number: int) -> str:
    """Return the stream of a schedule."""
    return STREAMS[number % len(STREAMS)]


def samples(number: int) -> bool:
    """Return whether a schedule samples a subject; in each stream, and of each pattern, a fifth do."""
    return number // 6 % 5 == 1


def extras(number: int, group: str) -> Extras:
    """Return what a schedule carries; each combination occurs in each stream and with each pattern."""
    draw = number // 6
    return Extras(
        source=source_of(number, group, stream_of(number)) if samples(number) else "",
        ttl="1h" if draw % 3 == 0 else "",
        headers=HEADERS % (number + 1, number + 1, number) if draw % 2 == 0 else b"",
        body=b"x" * BODY_SIZES[draw % len(BODY_SIZES)],
    )


def sources(count: int, group: str) -> Iterator[bytes]:
    """Yield what the schedules of a group sample."""
    for number in filter(samples, range(count)):
        yield message(source_of(number, group, stream_of(number)), b"y" * BODY_SIZES[number % len(BODY_SIZES)])


def repeating(number: int, interval: int, prefix: bytes) -> bytes:
    """Return the publish of a schedule that fires each `interval` seconds, a divisor of 60; of two, one is a cron."""
    pattern, carried = f"@every {interval}s", extras(number, GROUP)
    if number % 2:
        pattern = f"{number // 2 % interval}-59/{interval} * * * * *"
        carried = carried._replace(time_zone=ZONES[number % len(ZONES)])
    return reminder(subject_of(number, stream=stream_of(number)), pattern, prefix, carried)


def at(number: int, due: int, prefix: bytes) -> bytes:
    """Return the publish of an `@at` schedule."""
    subject = subject_of(number, AT_GROUP, stream_of(number))
    return reminder(subject, at_pattern(due), prefix, extras(number, AT_GROUP))


@dataclass(frozen=True)
class Mixed(Scenario):
    """About `rate` fires a second of all kinds."""

    FAMILY = "mixed"

    seconds: int = 20
    """A multiple of each interval."""
    intervals: tuple[int, ...] = (1, 2, 5, 10)
    ahead_seconds: float = AHEAD_SECONDS
    """From the publish of an `@at` schedule to its fire."""

    @property
    def title(self) -> str:
        return f"about {self.count:,} fires a second of all kinds, in {len(STREAMS)} streams, for {self.seconds} s"

    @property
    def repeating(self) -> list[int]:
        """The interval (s) of each repeating schedule; each interval has as many fires a second."""
        pairs = max(self.count // (4 * len(self.intervals)), 1)
        return [interval for interval in self.intervals for _ in range(2 * pairs * interval)]

    @property
    def _ahead(self) -> int:
        return int(self.ahead_seconds * SECOND)

    async def run(self, side: Side) -> dict[str, float]:
        """Start the repeating ones, measure while `@at` ones are published and fire, and read all back."""
        await side.serve_many(STREAMS, SERVED_SECONDS, has_ttl=True)
        intervals, prefix = self.repeating, side.kind.prefix
        at_rate = max(self.count // 2, 1)
        ats = round(at_rate * (self.seconds + self.ahead_seconds))
        await side.store(sources(len(intervals), GROUP))
        await side.store(sources(ats, AT_GROUP))
        starts = spread(side.draw, time.time_ns(), max(intervals), len(intervals))  # `@every` fires in that phase
        frames = (repeating(number, interval, prefix) for number, interval in enumerate(intervals))
        await side.publisher.publish_on_time(zip(starts, frames, strict=True), self._ahead)
        begin = (time.time_ns() + self._ahead) // SECOND + 1 + SETTLE_SECONDS
        dues = spread(side.draw, begin * SECOND, self.seconds + self.ahead_seconds, ats)
        used = await self._publish(side, dues, begin)
        late = lateness(await all_fires(side, STREAMS, ats, AT_GROUP), dues)
        fires = await read_fires_of(side.connection, side.api, STREAMS)
        often = lateness_of_repeating(fires, intervals, begin, begin + self.seconds)
        return CPU_FIRE.figures(used, len(often) + at_rate * self.seconds) | of_lateness(sorted(late + often))

    async def _publish(self, side: Side, dues: Sequence[int], begin: int) -> Cpu:
        """Publish the `@at` schedules, and return the CPU that is used from `begin` (s) on, while all that goes on."""
        load = ((due - self._ahead, at(number, due, side.kind.prefix)) for number, due in enumerate(dues))
        publishing = asyncio.create_task(side.publisher.publish_on_time(load, self._ahead // 2))
        try:
            await until(begin * SECOND)
            cpu = side.cpu()
            await until((begin + self.seconds) * SECOND)
            used = side.cpu().since(cpu)
            await publishing
        finally:
            publishing.cancel()
            await asyncio.wait((publishing,))
        await until(dues[-1])
        return used
