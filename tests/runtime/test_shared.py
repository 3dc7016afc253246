"""The shared record of failing schedules is bounded and fair among streams.

That it is read as it was written, and is empty in the end, is in `tests/cli/test_failing.py`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import cache

import pytest

from nats_scheduler.engine.events import FireRefused
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.message.rejection import Failing
from nats_scheduler.runtime.shared import (
    FAILING,
    MAX_ENTRY_BYTES,
    SharedEntry,
    failing_entry,
    read_failures,
    shared_failures,
)
from tests.conftest import SharedServer
from tests.engine.test_refusals import FULL, world_with
from tests.harness.account import account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

SOON = "@at 2026-01-01T00:00:05Z"


@cache
def engine_with(count: int) -> StreamEngine:
    """Return an engine of which `count` schedules fail.

    The tests only read it, so that they share it: what it takes to make one is most of what they take.
    """
    world, _network = world_with(count, SOON, out=FULL)
    world.advance("6s")
    assert world.engine.failing_count == count
    return world.engine


def test_an_entry_fits_into_its_room_and_counts_what_it_leaves_out() -> None:
    engine = engine_with(400)
    for streams in (1, 3, 40):
        keys = [f"emulated.\N{SNOWMAN}{number}" for number in range(streams)]
        for room in (0, 100, 300, 1_000, MAX_ENTRY_BYTES):
            entry = failing_entry(dict.fromkeys(keys, engine), room)
            assert len(json.dumps(entry)) <= max(room, 64), (streams, room)
            failures = read_failures({"me": entry}, {"me"})
            listed = sum(map(len, failures.schedules.values()))
            assert listed + sum(failures.more.values()) + failures.elsewhere == 400 * streams, (streams, room)
            assert listed > 100 or room < MAX_ENTRY_BYTES, (streams, room)


def test_few_that_fail_are_listed_beside_a_stream_with_many() -> None:
    many, few = engine_with(400), engine_with(3)
    entry = failing_entry({"emulated.MANY": many, "emulated.FEW": few}, MAX_ENTRY_BYTES)
    failures = read_failures({"me": entry}, {"me"})
    assert (len(failures.schedules["emulated.FEW"]), failures.more["emulated.FEW"]) == (3, 0)
    assert len(failures.schedules["emulated.MANY"]) > 200
    assert failures.more["emulated.MANY"] > 0


def test_of_two_who_share_a_schedule_the_earlier_time_counts() -> None:
    def entry(since: int) -> dict[str, object]:
        reason = {"code": 403, "description": "no", "schedules": [[7, since]]}
        return {"streams": {"emulated.ORDERS": {"reasons": [reason], "more": 2}}, "more": 3}

    value = {"one": entry(20), "other": entry(10), "dead": entry(1)}
    failures = read_failures(value, {"one", "other"})
    assert failures.schedules == {"emulated.ORDERS": {7: Failing(403, "no", 10)}}
    assert (failures.more, failures.elsewhere) == ({"emulated.ORDERS": 4}, 6)


@pytest.fixture
async def registry(shared_server: SharedServer, stream_name: str) -> AsyncIterator[Registry]:
    """Open a bucket of its own."""
    async with account_on((await shared_server(V2_11)).url) as account:
        bucket = Registry(account.connection, account.api, stream_name)
        await bucket.open()
        yield bucket


@asynccontextmanager
async def sharing(mine: SharedEntry, registry: Registry) -> AsyncIterator[None]:
    """Share through a connection that is lost at the end."""
    task = asyncio.create_task(mine.keep(registry))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def entries(registry: Registry, count: int) -> None:
    """Wait until the value has `count` entries."""

    async def so_many() -> bool:
        value = await registry.get(FAILING)
        return value is not None and len(value) == count

    await eventually(so_many, describe=f"{count} entries")


async def test_the_next_connection_goes_on_where_the_one_before_was_lost(registry: Registry) -> None:
    world, network = world_with(1, SOON, out=FULL)
    mine = shared_failures("me", lambda: {"emulated.S": world.engine})
    world.advance("6s")
    for event in world.events:
        if isinstance(event, FireRefused):
            mine.changed("S", event)
    async with sharing(mine, registry):
        await registry.get(FAILING)  # one round trip, of the three that a write takes
    assert await registry.get(FAILING) is None, "the connection was lost during the write"
    async with sharing(mine, registry):
        await entries(registry, 1)
    await registry.purge(FAILING)
    async with sharing(mine, registry):
        await entries(registry, 1)
        network.targets.clear()
        world.advance("3s")
        await entries(registry, 0)
