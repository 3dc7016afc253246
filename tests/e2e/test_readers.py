"""Several sidecars that do not all read every stream (`engine/sharing/readers.py`): who does, and that nothing is lost.

Every test ends with the same account: each fire that came due is stored, and none twice.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nats_scheduler.engine.events import StreamReady
from nats_scheduler.engine.sharing.readers import order_of
from nats_scheduler.engine.sharing.shards import SHARDS
from nats_scheduler.message.foreign_json import read_object
from nats_scheduler.message.headers import MSG_ID, header_value
from nats_scheduler.runtime import instances
from nats_scheduler.runtime.instances import Instances
from nats_scheduler.service.client import ANSWER_SECONDS, ask
from tests.conftest import StartServer
from tests.harness.account import Account, account_on, in_seconds, sidecar_on
from tests.harness.flagged import FLAG, FlaggedStream
from tests.harness.fleet import BUCKET
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

    def start(self, per_stream: int, *further: str) -> ChildProcess:
        settings = ("--log-format", "json", "--instances-per-stream", str(per_stream), *further)
        number = len(self.processes)
        one = sidecar("run", "--server", self.url, *settings, folder=self._folder, name=f"sidecar-{number}")
        self.processes.append(one)
        return one

    async def values(self, kind: str) -> dict[str, Any]:
        """Return what the bucket has of a kind, by the rest of its key."""
        api = self.account.api
        if await api.stream(BUCKET) is None:
            return {}
        found: dict[str, Any] = {}
        following = 1
        while one := await api.message(BUCKET, seq=following, next_by_subj=f"$KV.nats_scheduler.{kind}.>"):
            following = one.sequence + 1
            found[one.subject.split(".", 3)[3]] = read_object(one.body or b"")
        return {key: value for key, value in found.items() if value}

    async def lives(self, count: int) -> list[str]:
        """Return the instances that live, if they are so many."""
        found = [*await self.values("instance")]
        return found if len(found) == count else []

    async def served_by(self, count: int, readers: int, most: int | None = None) -> dict[str, list[str]]:
        """Wait until `count` instances live, and each stream is served and held by so many; return who reads each.

        They are those that are first in the order, or, with `most`, any that read so many streams each at most.
        """
        served: dict[str, list[str]] = {}
        held: dict[str, list[str]] = {}
        lives: dict[str, Any] = {}

        async def is_so() -> bool:
            nonlocal served, held, lives
            lives = await self.values("instance")
            served = {
                name: sorted(one for one, value in lives.items() if f"emulated.{name}" in value["serves"])
                for name in STREAMS
            }
            leases = await self.values("lease")
            held = {
                name: sorted(one for one, shards in leases[f"emulated.{name}"]["holders"].items() if shards)
                for name in STREAMS
                if f"emulated.{name}" in leases
                and sum(map(len, leases[f"emulated.{name}"]["holders"].values())) == SHARDS
            }
            wanted = {name: sorted(order_of(f"emulated.{name}", lives)[:readers]) for name in STREAMS}
            if most is not None:
                parts = Counter(one for names in served.values() for one in names)
                are_wanted = max(parts.values()) <= most and {len(names) for names in served.values()} == {readers}
            else:
                are_wanted = served == wanted
            return len(lives) == count and held == served and are_wanted

        def state() -> str:
            said = "\n".join(f"{one.exit_code}: {one.stderr[-2_000:]}" for one in self.processes)
            return f"{count} instances, {readers} for each stream: {lives}\n{served}\n{held}\n{said}\n"

        await eventually(is_so, describe=state)
        return served

    async def schedule_all(self) -> None:
        """Have schedules of all streams fire in the next seconds."""
        for name in STREAMS:
            for number in range(SCHEDULES):
                await FlaggedStream(self.account, name).schedule(f"s.{number}", f"@at {in_seconds(2 + number * 0.1)}")

    async def expect_the_same_answers_of_all(self, count: int) -> None:
        """Ask until each instance has answered about all streams, those included that it does not read."""
        answered = set[str]()

        async def have_answered() -> bool:
            async def asked(endpoint: str, **request: object) -> Any:
                return await ask(self.account.connection, endpoint, request, ANSWER_SECONDS)

            listed, timeline = await asked("streams.list"), await asked("timeline.list", minutes=15)
            assert listed["unanswered"] == []
            assert {one["stream"]: one["ready"] for one in listed["streams"]} == dict.fromkeys(STREAMS, True)
            assert all(one["schedules"]["total"] >= 1 for one in listed["streams"])
            assert timeline["complete"]
            assert sum(one["fires"] for one in timeline["minutes"]) >= len(STREAMS)
            for name in STREAMS:
                known = await asked("schedules.get", stream=name, subject=f"{name}.far")
                assert known["holder_answered"]
                page = await asked("schedules.list", stream=name, filter=f"{name}.far")
                assert [one["subject"] for one in page["schedules"]] == [f"{name}.far"]
                assert (await asked("activity.list", stream=name))["unanswered"] == []
            answered.add(listed["instance"])
            return len(answered) == count

        await eventually(have_answered, describe=lambda: f"{count} instances answer: {answered}")

    async def expect_fires(self) -> None:
        """Wait until the schedules of all streams have fired, each once."""
        through = SCHEDULES
        for name in STREAMS:
            await FlaggedStream(self.account, name).wait_for("out", through)
        for name in STREAMS:
            fires = await FlaggedStream(self.account, name).messages("out")
            ids = Counter(header_value(fire.block, MSG_ID) for fire in fires)
            assert len(ids) == len(fires) == through, name


@asynccontextmanager
async def a_group(start_server: StartServer, folder: Path) -> AsyncIterator[Group]:
    """Prepare sidecars beside a server that has the streams, and kill those that are left at the end.

    Each stream has a schedule that is far from its fire.
    """
    server = await start_server(V2_11)
    async with account_on(server.url) as account:
        for name in STREAMS:
            await account.create(name, **FLAG)
            await FlaggedStream(account, name).schedule("far", f"@at {in_seconds(600)}")
        group = Group(account, server.url, folder)
        try:
            yield group
        finally:
            for process in group.processes:
                process.kill()


async def test_each_stream_is_read_by_two_of_three_and_one_that_dies_is_replaced(
    start_server: StartServer, tmp_path: Path
) -> None:
    async with a_group(start_server, tmp_path) as group:
        for _ in range(3):
            group.start(2)
        await group.served_by(3, 2)
        await group.expect_the_same_answers_of_all(3)
        await group.schedule_all()
        group.processes[0].kill()
        await group.expect_fires()
        await group.served_by(2, 2)


async def test_each_instance_reads_what_it_has_room_for_and_more_only_where_nobody_else_has(
    start_server: StartServer, tmp_path: Path
) -> None:
    async with a_group(start_server, tmp_path) as group:
        for name in STREAMS:
            for number in range(SCHEDULES):
                await FlaggedStream(group.account, name).schedule(f"held.{number}", f"@at {in_seconds(600)}")
        room_for_two = str(2 * SCHEDULES + SCHEDULES // 2)
        group.start(1, "--schedules-per-instance", room_for_two)
        await group.served_by(1, 1)
        for _ in range(2):
            group.start(1, "--schedules-per-instance", room_for_two)
        await group.served_by(3, 1, most=2)
        await group.schedule_all()
        group.processes[0].kill()
        await group.expect_fires()
        await group.served_by(2, 1, most=len(STREAMS))


async def test_the_only_reader_of_a_stream_ends_when_another_one_has_read_it(
    start_server: StartServer, tmp_path: Path
) -> None:
    async with a_group(start_server, tmp_path) as group:
        leaves, stays = group.start(1), group.start(1)
        served = await group.served_by(2, 1)
        await group.schedule_all()
        assert await leaves.terminate() == 0
        holders = {one for value in (await group.values("lease")).values() for one in value["holders"]}
        assert len(holders) == 1, "all of it was handed over by then, and nothing was left without a holder"
        assert holders < {one for readers in served.values() for one in readers}
        await group.expect_fires()
        await group.served_by(1, 1)
        stays.kill()
        group.start(1)
        await group.served_by(1, 1)


async def test_streams_are_read_on_if_the_next_reader_is_killed_as_it_takes_them_over(
    start_server: StartServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the wait of 2 s: here the killed one is known to be gone when it is asked whether they may be left."""
    original, may_end = Instances.may_end_reading, list[bool]()
    monkeypatch.setattr(instances, "LEASE_DURATION_NS", 0)

    async def killed_first(self: Instances, key: str) -> bool:
        group.processes[-1].kill()
        await eventually(lambda: len(self._leases.held(key)) == SHARDS, describe=f"{key} is held again")
        may_end.append(await original(self, key))
        return may_end[-1]

    monkeypatch.setattr(Instances, "may_end_reading", killed_first)
    async with a_group(start_server, tmp_path) as group, sidecar_on(group.url, instances_per_stream=1) as first:
        while True:
            await group.served_by(1, 1)
            group.start(1)
            lives = await eventually(partial(group.lives, 2))
            if any(order_of(f"emulated.{name}", lives)[0] != first.sidecar.instance for name in STREAMS):
                break  # of some streams it is the next reader
            group.processes[-1].kill()
        await eventually(lambda: may_end)
        await group.served_by(1, 1)
        await group.schedule_all()
        await group.expect_fires()
        assert not any(may_end)
        assert [len(first.of(name, StreamReady)) for name in STREAMS] == [1] * len(STREAMS)
