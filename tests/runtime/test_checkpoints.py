"""Checkpoints of several holders in one value: nobody writes for the shards of another."""

from collections.abc import AsyncIterator

import pytest

from nats_scheduler.engine.holdings import MAX_UNSETTLED_PER_SHARD
from nats_scheduler.engine.inputs import CheckpointLoaded
from nats_scheduler.engine.shards import ALL_SHARDS, SHARDS
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.runtime.checkpoints import CheckpointKeeper, checkpoint_key, read_checkpoint
from nats_scheduler.runtime.modes import Mode
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import V2_11

STATE = StreamState({"name": "S"}, "2026-01-01T00:00:00Z", 1, 100)
LOW, HIGH = frozenset(range(32)), frozenset(range(32, 64))


@pytest.fixture
async def registry(shared_server: SharedServer, stream_name: str) -> AsyncIterator[Registry]:
    """Open a bucket of its own."""
    async with account_on((await shared_server(V2_11)).url) as account:
        bucket = Registry(account.connection, account.api, stream_name)
        assert await bucket.open()
        assert not await bucket.open()
        yield bucket


def keeper(registry: Registry, created: str = STATE.created) -> CheckpointKeeper:
    """Make what writes the checkpoints of one instance."""
    return CheckpointKeeper(registry, created, checkpoint_key(STATE, Mode.EMULATED))


async def read(registry: Registry, now: int = 1_000) -> set[CheckpointLoaded]:
    """Return what a new holder is told."""
    return set(await read_checkpoint(registry, STATE, Mode.EMULATED, now))


async def test_each_holder_writes_for_its_own_shards(registry: Registry) -> None:
    one, other = keeper(registry), keeper(registry)
    for through in (5, 7):
        assert await one.write(CheckpointLoaded(through, 10, frozenset({3}), LOW))
        assert await other.write(CheckpointLoaded(through + 1, 11, frozenset({4}), HIGH))
    assert await read(registry) == {
        CheckpointLoaded(7, 10, frozenset({3}), LOW),
        CheckpointLoaded(8, 11, frozenset({4}), HIGH),
    }


async def test_a_shard_that_changed_hands_is_written_by_its_new_holder(registry: Registry) -> None:
    assert await keeper(registry).write(CheckpointLoaded(5, 10, frozenset({3})))
    assert await keeper(registry).write(CheckpointLoaded(9, 12, shards=HIGH))
    assert await read(registry) == {
        CheckpointLoaded(5, 10, frozenset({3}), LOW),
        CheckpointLoaded(9, 12, frozenset(), HIGH),
    }


async def test_what_an_earlier_version_wrote_speaks_for_all_shards(registry: Registry) -> None:
    old = {"created": STATE.created, "through": 5, "sequence": 10, "unsettled": [3]}
    await registry.put(checkpoint_key(STATE, Mode.EMULATED), old)
    assert await read(registry) == {CheckpointLoaded(5, 10, frozenset({3}), ALL_SHARDS)}
    assert await keeper(registry).write(CheckpointLoaded(9, 12, shards=HIGH))
    assert CheckpointLoaded(5, 10, frozenset({3}), LOW) in await read(registry)


async def test_what_was_written_of_an_earlier_stream_of_the_name_is_dropped(registry: Registry) -> None:
    assert await keeper(registry, "2025-01-01T00:00:00Z").write(CheckpointLoaded(5, 10))
    assert await read(registry) == set()
    assert await keeper(registry).write(CheckpointLoaded(9, 12, shards=HIGH))
    assert await read(registry) == {CheckpointLoaded(9, 12, frozenset(), HIGH)}


def numbers(shard: int, count: int) -> frozenset[int]:
    """Return sequences as large as those of a stream that is old."""
    return frozenset(range((shard + 1) * 10**12, (shard + 1) * 10**12 + count))


async def test_all_that_the_holders_of_all_shards_name_is_kept(registry: Registry) -> None:
    for shard in range(SHARDS):
        named = numbers(shard, MAX_UNSETTLED_PER_SHARD)
        assert await keeper(registry).write(CheckpointLoaded(5, 10, named, frozenset({shard})))
    found = await read(registry)
    assert sum(len(checkpoint.unsettled) for checkpoint in found) == SHARDS * MAX_UNSETTLED_PER_SHARD
    assert len(found) == SHARDS


async def test_an_exception_that_finds_no_room_is_not_taken_for_settled(registry: Registry) -> None:
    """Not even one of a holder that is gone, whose shards change hands one by one."""
    everything = numbers(99, SHARDS * MAX_UNSETTLED_PER_SHARD)
    assert await keeper(registry).write(CheckpointLoaded(5, 10, everything))
    for shard in range(SHARDS):
        named = numbers(shard, MAX_UNSETTLED_PER_SHARD)
        assert await keeper(registry).write(CheckpointLoaded(6, 10, named, frozenset({shard})))
        for checkpoint in await read(registry):
            assert checkpoint.unsettled == (everything if checkpoint.through == 5 else numbers_of(checkpoint))


def numbers_of(checkpoint: CheckpointLoaded) -> frozenset[int]:
    """Return what the holder of a single shard named."""
    [shard] = checkpoint.shards
    return numbers(shard, MAX_UNSETTLED_PER_SHARD)


async def test_what_was_settled_while_we_emulated_is_settled_in_every_mode(registry: Registry) -> None:
    async def write(mode: Mode, through: int) -> None:
        value = {"created": STATE.created, "through": through, "sequence": 50, "unsettled": []}
        await registry.put(checkpoint_key(STATE, mode), value)

    async def furthest(mode: Mode) -> int:
        return (await read_checkpoint(registry, STATE, mode, 1_000))[-1].through

    await write(Mode.EMULATED, 10)
    assert [await furthest(mode) for mode in (Mode.EMULATED, Mode.DORMANT, Mode.NATIVE)] == [10, 10, 10]
    await write(Mode.DORMANT, 20)
    assert [await furthest(mode) for mode in (Mode.EMULATED, Mode.DORMANT)] == [10, 20]
    await write(Mode.EMULATED, 30)
    assert [await furthest(mode) for mode in (Mode.EMULATED, Mode.DORMANT)] == [30, 30]
