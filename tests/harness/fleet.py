"""Several sidecars of one account, as real processes, and how they divide one stream among them."""

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from nats_scheduler.engine.sharing.leases import Holders
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, SHARDS, shard_of
from nats_scheduler.jetstream.errors import NoJetStreamError
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime.instances import holders_of
from nats_scheduler.schedule.instants import SECOND
from tests.harness.account import Account
from tests.harness.flagged import FlaggedStream
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.waiting import eventually

SCHEDULES = 60
RESUME_SECONDS = 3
"""*Live* promises it."""
PATIENCE_SECONDS = 45
"""Longest wait for what takes a moment, on a machine that is busy with other things."""

STREAM = "SHARED"
BUCKET = "KV_nats_scheduler"
RECORD = f"$KV.nats_scheduler.lease.emulated.{STREAM}"


@dataclass
class ProcessFleet:
    """Sidecars of one account, and the record by which they divide its stream."""

    account: Account
    url: str
    folder: Path
    sidecars: list[ChildProcess] = field(default_factory=list)

    @property
    def stream(self) -> FlaggedStream:
        return FlaggedStream(self.account, STREAM)

    async def add(self, url: str | None = None) -> ChildProcess:
        """Start one more sidecar, behind this address if any, and wait until the work is divided among all."""
        name, log = f"sidecar-{len(self.sidecars)}", ("--log-format", "json")
        self.sidecars.append(sidecar("run", "--server", url or self.url, *log, folder=self.folder, name=name))
        running = sum(one.exit_code is None for one in self.sidecars)
        await self.divided(running)
        return self.sidecars[-1]

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
            said = "\n".join(f"{one.exit_code}: {one.stderr[-2_000:]}" for one in self.sidecars)
            return f"{count} instances hold {STREAM}: {parts}\n{said}\n"

        await eventually(is_divided, within_seconds=PATIENCE_SECONDS, describe=state)

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

    async def fires_since(self, instant: int) -> dict[str, list[StoredMessage]]:
        """Return what was generated since, by schedule."""
        found: dict[str, list[StoredMessage]] = {}
        for message in await self.stream.messages("out"):
            if message.stored_at >= instant:
                found.setdefault((header_value(message.block, b"Nats-Scheduler") or b"").decode(), []).append(message)
        return found

    async def all_fire(self, since: int) -> None:
        """Wait until every schedule has fired since an instant."""

        async def complete() -> bool:
            return len(await self.fires_since(since)) == SCHEDULES

        await eventually(complete, within_seconds=PATIENCE_SECONDS, describe="every schedule fires again")

    async def longest_silence(self, since: int, shards: Collection[int] = ALL_SHARDS) -> float:
        """Return how long (seconds) a schedule in these shards stored nothing since an instant, at most."""
        found = (await self.fires_since(since)).items()
        times = [[since, *(fire.stored_at for fire in fires)] for name, fires in found if shard_of(name) in shards]
        return max(later - earlier for one in times for earlier, later in pairwise(one)) / SECOND

    async def expect_no_fire_twice(self) -> None:
        """Show that no identity is stored twice."""
        ids = Counter(header_value(m.block, b"Nats-Msg-Id") for m in await self.stream.messages("out"))
        assert [one for one, count in ids.items() if count > 1] == []

    async def expect_no_fire_missed(self, since: int) -> None:
        """Show that schedules which fire each second did so in each second since an instant."""
        for name, fires in (await self.fires_since(since)).items():
            seconds = [second_of(fire) for fire in fires]
            assert seconds == list(range(seconds[0], seconds[-1] + 1)), (name, seconds)


def second_of(fire: StoredMessage) -> int:
    """Return the second for which a message was generated, from its identity."""
    return int((header_value(fire.block, b"Nats-Msg-Id") or b"").split(b":")[2]) // SECOND


def parts_of(record: StoredMessage) -> dict[str, int]:
    """Return how many shards each instance holds, by the record."""
    text = (record.body or b"").decode()
    return {name: len(shards.split(",")) for name, shards in re.findall(r'"(\w{12})": \[([\d, ]+)\]', text)}
