"""A herd of schedules due at one instant, and at that instant something happens to each of them.

Its rule: what was acknowledged counts. A fire that is stored behind the mark of its schedule's end is *stale*; a
replacement that was acknowledged and is not there any more is *lost*.
The mark is the sequence of what ended the schedule; where that has none (a delete, a purge), of a message published the
moment its answer came.
"""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND, SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from tests.differential.sides import fresh_name
from tests.harness.account import CLOCK, Account, account_on, in_seconds
from tests.harness.blocks import block_to_send
from tests.harness.burst import Asked, Burst
from tests.harness.processes import sidecar
from tests.harness.waiting import instant_reached

ACTS: dict[str, tuple[Callable[["Race"], Callable[[int], Asked]], dict[str, bool]]] = {
    "replaced": (lambda race: race.replacement, {"replaces": True}),
    "purged": (lambda race: race.purge, {"marked": True}),
}
"""The act on each schedule, and what its end is known by."""

PARTS = 20
"""The number of parts in which the acts are written, evenly over the time that the race lasts."""

LEAD, SETTLED = SECOND, SECOND // 2
"""The time (ns) before its instant at which a herd is loaded, and the time behind it at which all has been tried."""


@dataclass(frozen=True)
class Tally:
    """The result of a race: how many fired of how many; of those how many wrongly; how many replacements vanished."""

    herd: int
    fired: int
    stale: int
    lost: int

    @property
    def was_close(self) -> bool:
        """True if both sides won some of it: else nothing raced."""
        return 0 < self.fired < self.herd


class Race:
    """One herd on one stream of one server."""

    def __init__(self, account: Account, name: str, herd: int, *, lasts: int, begins: int = 0) -> None:
        """Prepare a race that begins `begins` ns behind the due instant, and goes on for `lasts` ns."""
        self.account = account
        self.herd = herd
        self.begins = begins
        self.lasts = lasts
        self.name = name

    def schedule(self, number: int) -> str:
        """Return the subject of a schedule."""
        return f"{self.name}.s.{number}"

    def replacement(self, number: int) -> Asked:
        """Replace a schedule by one that is due in an hour."""
        headers = {"Nats-Schedule": f"@at {in_seconds(3600)}", "Nats-Schedule-Target": f"{self.name}.t.{number}"}
        return self.schedule(number), block_to_send(headers), b"new"

    def purge(self, number: int) -> Asked:
        """Purge the subject of a schedule."""
        return f"$JS.API.STREAM.PURGE.{self.name}", b"", json.dumps({"filter": self.schedule(number)}).encode()

    def mark(self, number: int) -> Asked:
        """Mark the moment at which an answer came."""
        return f"{self.name}.m.{number}", b"", b"mark"

    async def run(self, act: Callable[[int], Asked], *, marked: bool = False, replaces: bool = False) -> Tally:
        """Load the herd, act on each schedule at the instant, and count what went wrong."""
        due = CLOCK.now() + LEAD
        await self._load(due)
        burst = Burst(self.account, f"{self.name}.act", self.mark if marked else None)
        parts = burst.frames([act(number) for number in range(self.herd)], PARTS)
        for number, part in enumerate(parts):
            await instant_reached(due + self.begins + self.lasts * number // PARTS, CLOCK.now)
            burst.write(part)
        await burst.answered(self.herd)
        await self._settled(due)
        ends = burst.followed if marked else burst.answers
        return await self._tally({n: int(answer.get("seq", 0)) for n, answer in ends.items()}, replaced=replaces)

    async def _load(self, due: int) -> None:
        burst = Burst(self.account, f"{self.name}.load")
        at = f"@at {format_rfc3339(due)}"
        blocks = [
            block_to_send({"Nats-Schedule": at, "Nats-Schedule-Target": f"{self.name}.t.{number}"})
            for number in range(self.herd)
        ]
        [frames] = burst.frames([(self.schedule(n), block, b"old") for n, block in enumerate(blocks)])
        burst.write(frames)
        await burst.answered(self.herd)

    async def _settled(self, due: int) -> None:
        """Wait for the fire of a schedule that is due behind the herd."""
        await instant_reached(due + SETTLED, CLOCK.now)
        headers = {"Nats-Schedule": f"@at {in_seconds(0.5)}", "Nats-Schedule-Target": f"{self.name}.canary"}
        await self.account.publish(f"{self.name}.last", headers)
        await self.account.wait_for(self.name, f"{self.name}.canary")

    async def _tally(self, ends: dict[int, int], *, replaced: bool) -> Tally:
        fires = await asyncio.gather(*(self._last(f"t.{number}") for number in range(self.herd)))
        stale = [fire for n, fire in enumerate(fires) if fire is not None and 0 < ends[n] < fire.sequence]
        lost = 0
        if replaced:
            last = await asyncio.gather(*(self._last(f"s.{number}") for number in range(self.herd)))
            lost = sum(one is None or one.sequence != ends[number] for number, one in enumerate(last))
        return Tally(self.herd, sum(fire is not None for fire in fires), len(stale), lost)

    async def _last(self, rest: str) -> StoredMessage | None:
        return await self.account.api.message(self.name, last_by_subj=f"{self.name}.{rest}")


async def raced(url: str, act: str, lasts: int, folder: Path, *, herd: int, begins: int = 0) -> Tally:
    """Race on one server, with a sidecar of its own process; times are in ms."""
    name = fresh_name()
    choose, how = ACTS[act]
    async with account_on(url) as account:
        race = Race(account, name, herd, lasts=lasts * MILLISECOND, begins=begins * MILLISECOND)
        with sidecar("run", "--server", url, "--no-context", "--log-format", "json", folder=folder) as process:
            await process.wait_for_line('"event": "connected"')
            await account.create(name)
            await process.wait_for_line('"event": "stream_ready"')
            tally = await race.run(choose(race), **how)
            assert await process.terminate() == 0
        await account.api.call(f"STREAM.DELETE.{name}")
    return tally
