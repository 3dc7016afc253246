"""Several sidecars of one account, and how they divide one stream among them."""

import re
from collections import Counter
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from nats_scheduler.engine.sharing.leases import Holders
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.jetstream.errors import NoJetStreamError
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.instances import holders_of
from nats_scheduler.schedule.instants import SECOND
from tests.harness.account import CLOCK, Account
from tests.harness.flagged import FlaggedStream
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.waiting import eventually

SCHEDULES = 24

STREAM = "SHARED"
BUCKET = "KV_nats_scheduler"
RECORD = f"$KV.nats_scheduler.lease.emulated.{STREAM}"


@dataclass
class Fleet:
    """Sidecars of one account, the record by which they divide its stream, and the fires of that."""

    account: Account
    processes: list[ChildProcess] = field(default_factory=list)
    _fires: list[StoredMessage] = field(default_factory=list)

    @property
    def stream(self) -> FlaggedStream:
        return FlaggedStream(self.account, STREAM)

    async def add(self, url: str, folder: Path) -> ChildProcess:
        """Start one more sidecar as a process, and wait until the work is divided among all."""
        name, log = f"sidecar-{len(self.processes)}", ("--log-format", "json")
        self.processes.append(sidecar("run", "--server", url, *log, folder=folder, name=name))
        running = sum(one.exit_code is None for one in self.processes)
        await self.divided(running)
        return self.processes[-1]

    async def schedule_all(self) -> int:
        """Store schedules that fire each second; return the instant (ns) of the last one."""
        for number in range(SCHEDULES):
            await self.stream.schedule(f"s.{number}", "@every 1s")
        return CLOCK.now()

    async def divided(self, count: int) -> None:
        """Wait until `count` instances hold the shards of the stream, and all of them."""

        parts: dict[str, int] = {}

        async def is_divided() -> bool:
            nonlocal parts
            try:
                parts = await self.parts()
            except NoJetStreamError:
                return False  # a server that reads its configuration anew answers nobody for a moment
            return len(parts) == count and sum(parts.values()) == SHARDS

        def state() -> str:
            said = "\n".join(f"{one.exit_code}: {one.stderr[-2_000:]}" for one in self.processes)
            return f"{count} instances hold {STREAM}: {parts}\n{said}\n"

        await eventually(is_divided, describe=state)

    async def parts(self) -> dict[str, int]:
        """Return how many shards each instance holds."""
        if await self.account.api.stream(BUCKET) is None:
            return {}
        message = await self.account.api.message(BUCKET, last_by_subj=RECORD)
        return {} if message is None else parts_of(message)

    async def holders(self) -> Holders:
        """Return who holds each shard."""
        message = await self.account.api.message(BUCKET, last_by_subj=RECORD)
        assert message is not None, "nobody holds anything"
        return holders_of(read_object(message.body or b""))

    async def fires(self) -> list[StoredMessage]:
        """Return all fires, of which only the new ones are read."""
        following = self._fires[-1].sequence + 1 if self._fires else 1
        subject = self.stream.subject("out")
        while message := await self.account.api.message(STREAM, seq=following, next_by_subj=subject):
            self._fires.append(message)
            following = message.sequence + 1
        return self._fires

    async def fires_since(self, instant: int) -> dict[str, list[StoredMessage]]:
        """Return what was generated since, by schedule."""
        found: dict[str, list[StoredMessage]] = {}
        for message in await self.fires():
            if message.stored_at >= instant:
                found.setdefault((header_value(message.block, b"Nats-Scheduler") or b"").decode(), []).append(message)
        return found

    async def all_fire(self, since: int | None = None) -> None:
        """Wait until every schedule has fired since an instant, or from now on."""
        begin = CLOCK.now() if since is None else since

        async def complete() -> bool:
            return len(await self.fires_since(begin)) == SCHEDULES

        await eventually(complete, describe="every schedule fires again")

    async def longest_silence(self, since: int) -> float:
        """Return how long (seconds) a schedule stored nothing since an instant, at most."""
        found = (await self.fires_since(since)).items()
        times = [[since, *(fire.stored_at for fire in fires)] for _name, fires in found]
        return max(later - earlier for one in times for earlier, later in pairwise(one)) / SECOND

    async def expect_no_fire_twice(self) -> None:
        """Show that no identity is stored twice."""
        ids = Counter(header_value(fire.block, MSG_ID) for fire in await self.fires())
        assert [one for one, count in ids.items() if count > 1] == []


def parts_of(record: StoredMessage) -> dict[str, int]:
    """Return how many shards each instance holds, by the record."""
    text = (record.body or b"").decode()
    return {name: len(shards.split(",")) for name, shards in re.findall(r'"(\w{12})": \[([\d, ]+)\]', text)}
