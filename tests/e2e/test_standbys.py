"""Several sidecars and several streams (`engine/ownership/order.py`): who owns each and who stands by; nothing is lost.

Every test ends with the same account: each fire that came due is stored, and none twice.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from nats_scheduler.engine.ownership.order import order_of
from nats_scheduler.message.headers import MSG_ID, header_value
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, in_seconds
from tests.harness.flagged import FLAG, FlaggedStream
from tests.harness.fleet import values
from tests.harness.processes import ChildProcess, sidecar
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

SCHEDULES = 10
STREAMS = ("A", "B", "C", "D", "E", "F")


class Group:
    """Sidecars of one account that read parts of its streams."""

    def __init__(self, account: Account, url: str, folder: Path) -> None:
        self.account, self.url = account, url
        self._folder = folder
        self.processes: list[ChildProcess] = []

    def start(self, standbys: int) -> ChildProcess:
        settings = ("--log-format", "json", "--standbys", str(standbys))
        number = len(self.processes)
        one = sidecar("run", "--server", self.url, *settings, folder=self._folder, name=f"sidecar-{number}")
        self.processes.append(one)
        return one

    async def owners(self) -> dict[str, str]:
        """Return who owns each stream that is owned, by the records."""
        records = await values(self.account, "owner")
        return {key.partition(".")[2]: record["owner"] for key, record in records.items() if record["owner"]}

    async def served_by(self, count: int, standbys: int) -> None:
        """Wait until `count` instances live, and those that are first in its order have read each stream."""
        served: dict[str, list[str]] = {}

        async def is_so() -> bool:
            nonlocal served
            lives, owners = await values(self.account, "instance"), await self.owners()
            order = {name: order_of(f"emulated.{name}", lives) for name in STREAMS}
            served = {
                name: [one for one in order[name] if f"emulated.{name}" in lives[one]["serves"]] for name in STREAMS
            }
            are_wanted = served == {name: order[name][: 1 + standbys] for name in STREAMS}
            return len(lives) == count and are_wanted and owners == {name: order[name][0] for name in STREAMS}

        await eventually(is_so, describe=lambda: f"{count} instances, {standbys} standbys for each stream: {served}")

    async def schedule_all(self) -> None:
        """Have schedules of all streams fire in the next seconds."""
        for name in STREAMS:
            for number in range(SCHEDULES):
                await FlaggedStream(self.account, name).schedule(f"s.{number}", f"@at {in_seconds(2 + number * 0.1)}")

    async def expect_fires(self) -> None:
        """Wait until the schedules of all streams have fired, each once."""
        for name in STREAMS:
            fires = await FlaggedStream(self.account, name).wait_for("out", SCHEDULES)
            assert len({header_value(fire.block, MSG_ID) for fire in fires}) == len(fires) == SCHEDULES, name


@asynccontextmanager
async def a_group(start_server: StartServer, folder: Path) -> AsyncIterator[Group]:
    """Prepare sidecars beside a server that has the streams, and kill those that are left at the end."""
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        for name in STREAMS:
            await account.create(name, **FLAG)
        group = Group(account, server.url, folder)
        try:
            yield group
        finally:
            for process in group.processes:
                process.kill()


async def test_an_owner_that_dies_is_replaced_on_each_of_its_streams(start_server: StartServer, tmp_path: Path) -> None:
    async with a_group(start_server, tmp_path) as group:
        for _ in range(3):
            group.start(1)
        await group.served_by(3, 1)
        await group.schedule_all()
        group.processes[0].kill()
        await group.expect_fires()
        await group.served_by(2, 1)


async def test_an_owner_without_a_standby_hands_over_before_it_ends(start_server: StartServer, tmp_path: Path) -> None:
    async with a_group(start_server, tmp_path) as group:
        leaves, _stays = group.start(0), group.start(0)
        await group.served_by(2, 0)
        await group.schedule_all()
        assert await leaves.terminate() == 0
        owners = await group.owners()
        assert owners.keys() == set(STREAMS), "all was handed over by then"
        assert len(set(owners.values())) == 1
        await group.expect_fires()
        await group.served_by(1, 0)
