"""Checkpoints of several holders in one value: nobody writes for the shards of another."""

from collections.abc import AsyncIterator

import pytest

from nats_scheduler.engine.inputs import CheckpointLoaded
from nats_scheduler.engine.shards import ALL_SHARDS
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


async def test_what_is_rejected_by_the_thousand_does_not_outgrow_the_registry(registry: Registry) -> None:
    numbers = frozenset(range(10**12, 10**12 + 1_000))
    for shard in range(16):
        assert await keeper(registry).write(CheckpointLoaded(5, 10, numbers, frozenset({shard})))
    assert len(await read(registry)) == 16


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
