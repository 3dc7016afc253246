"""Several sidecars of one account, one of which owns its stream while the others stand by."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats_scheduler.control.errors import NoRespondersError
from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.message.stored import StoredMessage
from tests.harness.account import CLOCK, Account
from tests.harness.flagged import FlaggedStream
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.waiting import eventually

SCHEDULES = 24

STREAM = "SHARED"
KEY = f"emulated.{STREAM}"
"""The name of the stream in records and heartbeats."""

BUCKET = "KV_nats_scheduler"


async def values(account: Account, kind: str) -> dict[str, Any]:
    """Return what the bucket of the registry has of a kind, by the rest of the key."""
    if await account.api.stream(BUCKET) is None:
        return {}
    found: dict[str, Any] = {}
    following = 1
    while one := await account.api.message(BUCKET, seq=following, next_by_subj=f"$KV.nats_scheduler.{kind}.>"):
        following = one.sequence + 1
        found[one.subject.split(".", 3)[3]] = read_object(one.body or b"")
    return {key: value for key, value in found.items() if value}


@dataclass
class Fleet:
    """Sidecars of one account that all read its stream, the record of its owner, and the fires of that."""

    account: Account
    processes: list[ChildProcess] = field(default_factory=list)
    names: dict[str, ChildProcess] = field(default_factory=dict)
    """The processes, by the names of their instances."""
    _fires: list[StoredMessage] = field(default_factory=list)

    @property
    def stream(self) -> FlaggedStream:
        return FlaggedStream(self.account, STREAM)

    async def add(self, url: str, folder: Path) -> ChildProcess:
        """Start one more sidecar as a process, and wait until all have read the stream."""
        name, log = f"sidecar-{len(self.processes)}", ("--log-format", "json", "--standbys", "1000")
        known = set(await values(self.account, "instance"))
        self.processes.append(sidecar("run", "--server", url, *log, folder=folder, name=name))
        (instance,) = set(await self.settled(len(known) + 1)) - known
        self.names[instance] = self.processes[-1]
        return self.processes[-1]

    async def schedule_all(self) -> int:
        """Store schedules that fire each second; return the instant (ns) of the last one."""
        for number in range(SCHEDULES):
            await self.stream.schedule(f"s.{number}", "@every 1s")
        return CLOCK.now()

    async def settled(self, count: int, *, owner: str | None = None) -> list[str]:
        """Wait until `count` instances live and have read the stream, and one of them owns it; return their names.

        The owner is the first one in the order, if none is named.
        """
        lives: dict[str, Any] = {}
        found = ""

        async def is_settled() -> bool:
            nonlocal lives, found
            try:
                lives, found = await values(self.account, "instance"), await self.owner()
            except NoRespondersError:
                return False  # a server that reads its configuration anew answers nobody for a moment
            have_read = all(KEY in one["serves"] for one in lives.values())
            return len(lives) == count and have_read and found == (owner or order_of(KEY, lives)[0])

        def state() -> str:
            said = "\n".join(f"{one.exit_code}: {one.stderr[-2_000:]}" for one in self.processes)
            return f"{count} instances have read {STREAM}, and {found} owns it: {lives}\n{said}\n"

        await eventually(is_settled, describe=state)
        return list(lives)

    async def owner(self) -> str:
        """Return the name of the owner, by the record; "" if there is none."""
        record = (await values(self.account, "owner")).get(KEY, {})
        return str(record.get("owner", ""))

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

    async def all_fire(self) -> None:
        """Wait until every schedule has fired from now on."""
        begin = CLOCK.now()

        async def complete() -> bool:
            return len(await self.fires_since(begin)) == SCHEDULES

        await eventually(complete, describe="every schedule fires again")

    async def expect_no_fire_twice(self) -> None:
        """Show that no identity is stored twice."""
        ids = Counter(header_value(fire.block, MSG_ID) for fire in await self.fires())
        assert [one for one, count in ids.items() if count > 1] == []
