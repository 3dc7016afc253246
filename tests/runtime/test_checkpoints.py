"""Checkpoints of several holders in one value: no instance writes for the shards of another one."""

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from nats_scheduler.engine.inputs import CheckpointLoaded
from nats_scheduler.engine.sharing.holdings import MAX_UNSETTLED_PER_SHARD
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, SHARDS
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.runtime.checkpoints import MAX_CHECKPOINT_LEAD_NS, CheckpointKeeper, checkpoint_key, read_checkpoint
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.instants import SECOND
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import V2_11

CREATED = "2026-01-01T00:00:00Z"
LOW, HIGH = frozenset(range(32)), frozenset(range(32, 64))


@pytest.fixture
async def registry(shared_server: SharedServer, stream_name: str) -> AsyncIterator[Registry]:
    """Open a bucket of its own."""
    async with account_on((await shared_server(V2_11)).url) as account:
        bucket = Registry(account.connection, account.api, stream_name)
        assert await bucket.open()
        assert not await bucket.open()
        yield bucket


class Stream:
    """A stream that is written to: a message is stored, and a checkpoint written, behind each look at it."""

    def __init__(self, keeper: CheckpointKeeper | None = None) -> None:
        self._keeper = keeper
        self._last = 100

    async def stream(self, name: str) -> Any:
        """Return what the server says of the stream."""
        info = {"config": {"name": name}, "created": CREATED, "state": {"first_seq": 1, "last_seq": self._last}}
        if self._keeper is not None:
            self._last += 1
            assert await self._keeper.write(CheckpointLoaded(self._last, self._last))
        return info


def keeper(registry: Registry, created: str = CREATED) -> CheckpointKeeper:
    """Make what writes the checkpoints of one instance."""
    return CheckpointKeeper(registry, created, checkpoint_key("S", Mode.EMULATED))


async def read(registry: Registry, now: int = 1_000) -> set[CheckpointLoaded]:
    """Return what a new holder reads."""
    return set(await read_checkpoint(registry, Stream(), "S", Mode.EMULATED, now) or ())


async def test_each_holder_writes_for_its_own_shards(registry: Registry) -> None:
    one, other = keeper(registry), keeper(registry)
    for through in (5, 7):
        assert await one.write(CheckpointLoaded(through, 10, frozenset({3}), LOW))
        assert await other.write(CheckpointLoaded(through + 1, 11, frozenset({4}), HIGH))
    assert await read(registry) == {
        CheckpointLoaded(7, 10, frozenset({3}), LOW),
        CheckpointLoaded(8, 11, frozenset({4}), HIGH),
    }


async def test_the_first_fire_of_a_refused_backlog_is_written_with_its_schedule(registry: Registry) -> None:
    settled = CheckpointLoaded(900, 10, frozenset({3, 7}), LOW, owed={7: 850})
    assert await keeper(registry).write(settled)
    assert await keeper(registry).write(CheckpointLoaded(800, 9, shards=HIGH))
    (found,) = [one for one in await read(registry) if one.shards == LOW]
    assert (found.unsettled, found.owed) == (frozenset({3, 7}), {7: 850})


@pytest.mark.parametrize("owed", [{"7": 850}, [7, 850], [[7]], [[7, "850"]], [[7, True]], [[7, 850, 1]]])
async def test_first_fires_that_no_sidecar_wrote_make_an_entry_incredible(registry: Registry, owed: Any) -> None:
    entry = {"through": 900, "sequence": 10, "unsettled": [7], "owed": owed, "shards": sorted(ALL_SHARDS)}
    key = checkpoint_key("S", Mode.EMULATED)
    assert await registry.swap(key, {"created": CREATED, "entries": [entry]}, 0) is not None
    assert await read(registry) == set()


async def test_a_first_fire_ahead_of_the_clock_is_not_believed(registry: Registry) -> None:
    broken: list[str] = []
    registry.broken = lambda _key, reason: broken.append(reason)
    ahead = 1_000 + MAX_CHECKPOINT_LEAD_NS + 1
    assert await keeper(registry).write(CheckpointLoaded(900, 10, frozenset({7}), owed={7: ahead}))
    assert await read(registry) == set()
    assert "ahead of the server's clock" in broken[0]


async def test_first_fires_take_the_room_of_exceptions(registry: Registry) -> None:
    """An entry is left out as a whole, if there is no room for all that it names."""
    many = dict.fromkeys(range(1, 1101), 850)
    assert await keeper(registry).write(CheckpointLoaded(900, 10, frozenset(many), LOW, owed=many))
    assert await keeper(registry).write(CheckpointLoaded(900, 10, frozenset(range(5_000, 5_201)), HIGH))
    assert {one.shards for one in await read(registry)} == {HIGH}


async def test_a_shard_that_changed_hands_is_written_by_its_new_holder(registry: Registry) -> None:
    assert await keeper(registry).write(CheckpointLoaded(5, 10, frozenset({3})))
    assert await keeper(registry).write(CheckpointLoaded(9, 12, shards=HIGH))
    assert await read(registry) == {
        CheckpointLoaded(5, 10, frozenset({3}), LOW),
        CheckpointLoaded(9, 12, frozenset(), HIGH),
    }


async def test_calendars_that_a_holder_did_not_know_are_kept_with_its_shards(registry: Registry) -> None:
    known = CheckpointLoaded(100, 10, shards=frozenset({2}))
    unknown = CheckpointLoaded(100, 10, shards=frozenset({0, 1}), calendars={"de-by": 40, "work": -1})
    for settled in (known, unknown):
        assert await keeper(registry).write(settled)
    assert await read(registry) == {known, unknown}
    assert unknown.through_of(["de-by"]) == 40
    assert unknown.through_of(["de-by", "work"]) == -1
    assert unknown.through_of([]) == 100
    assert known.through_of(["de-by"]) == 100
    key = checkpoint_key("S", Mode.EMULATED)
    await registry.put(key, {"created": CREATED, "through": 100, "sequence": 10, "calendars": {"work": "soon"}})
    assert await read(registry) == set()


async def test_what_an_earlier_version_wrote_speaks_for_all_shards(registry: Registry) -> None:
    old = {"created": CREATED, "through": 5, "sequence": 10, "unsettled": [3]}
    await registry.put(checkpoint_key("S", Mode.EMULATED), old)
    assert await read(registry) == {CheckpointLoaded(5, 10, frozenset({3}), ALL_SHARDS)}
    assert await keeper(registry).write(CheckpointLoaded(9, 12, shards=HIGH))
    assert CheckpointLoaded(5, 10, frozenset({3}), LOW) in await read(registry)


async def test_what_was_written_of_an_earlier_stream_of_the_name_is_dropped(registry: Registry) -> None:
    assert await keeper(registry, "2025-01-01T00:00:00Z").write(CheckpointLoaded(5, 10))
    assert await read(registry) == set()
    assert await keeper(registry).write(CheckpointLoaded(9, 12, shards=HIGH))
    assert await read(registry) == {CheckpointLoaded(9, 12, frozenset(), HIGH)}


async def test_what_is_written_while_it_is_read_is_not_taken_for_another_state_of_the_stream(
    registry: Registry,
) -> None:
    writer = keeper(registry)
    assert await writer.write(CheckpointLoaded(5, 100))
    growing = Stream(writer)
    for through in (5, 101, 102):
        assert await read_checkpoint(registry, growing, "S", Mode.EMULATED, 1_000) == [
            CheckpointLoaded(through, max(through, 100))
        ]


async def test_what_reaches_beyond_the_stream_is_not_believed_and_told(registry: Registry) -> None:
    """It was written before the stream was rolled back, or is forged."""
    refused = refusals_of(registry)
    assert await keeper(registry).write(CheckpointLoaded(5, 101))
    assert await read(registry) == set()
    assert refused == [
        "it covers messages up to sequence 101, and the stream ends at 100: forged, or the stream was rolled back"
    ]


class Lagging(Stream):
    """A stream whose leader has not applied what a holder has read, until it is asked again."""

    async def stream(self, name: str) -> Any:
        """Return what the leader says, which applies a message meanwhile."""
        info = await super().stream(name)
        self._last += 1
        return info


async def test_what_the_leader_has_not_applied_yet_is_believed_once_it_has(registry: Registry) -> None:
    refused = refusals_of(registry)
    assert await keeper(registry).write(CheckpointLoaded(5, 102))
    found = await read_checkpoint(registry, Lagging(), "S", Mode.EMULATED, 1_000)
    assert (found, refused) == ([CheckpointLoaded(5, 102)], [])


async def test_what_is_ahead_of_the_servers_clock_by_seconds_is_not_believed_and_told(registry: Registry) -> None:
    """And what others wrote beside it is."""
    refused = refusals_of(registry)
    now = 1_000 * SECOND
    assert await keeper(registry).write(CheckpointLoaded(now + MAX_CHECKPOINT_LEAD_NS, 10, shards=LOW))
    assert await keeper(registry).write(CheckpointLoaded(now + MAX_CHECKPOINT_LEAD_NS + 1, 10, shards=HIGH))
    assert await read(registry, now) == {CheckpointLoaded(now + MAX_CHECKPOINT_LEAD_NS, 10, shards=LOW)}
    assert refused == ["it claims fires as settled that are due 5 s ahead of the server's clock"]


def refusals_of(registry: Registry) -> list[str]:
    """Return a list to which the reasons are added for which values are ignored."""
    refused: list[str] = []
    registry.broken = lambda _key, reason: refused.append(reason)
    return refused


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
        value = {"created": CREATED, "through": through, "sequence": 50, "unsettled": []}
        await registry.put(checkpoint_key("S", mode), value)

    async def furthest(mode: Mode) -> int:
        found = await read_checkpoint(registry, Stream(), "S", mode, 1_000)
        assert found is not None
        return found[-1].through

    await write(Mode.EMULATED, 10)
    assert [await furthest(mode) for mode in (Mode.EMULATED, Mode.DORMANT, Mode.NATIVE)] == [10, 10, 10]
    await write(Mode.DORMANT, 20)
    assert [await furthest(mode) for mode in (Mode.EMULATED, Mode.DORMANT)] == [10, 20]
    await write(Mode.EMULATED, 30)
    assert [await furthest(mode) for mode in (Mode.EMULATED, Mode.DORMANT)] == [30, 30]


class TestAStreamThatSeemsToBeAnotherOne:
    """Servers up to 2.12 say otherwise when a stream was created, once it was updated and they were started again."""

    async def test_what_was_settled_is_bounded_by_what_had_been_read(self, registry: Registry) -> None:
        settled = CheckpointLoaded(7, 10, frozenset({3}), LOW, stored_by=500)
        assert await keeper(registry, "2025-01-01T00:00:00Z").write(settled)
        assert await read(registry) == {settled}

    async def test_of_the_very_same_stream_nothing_is_bounded(self, registry: Registry) -> None:
        assert await keeper(registry).write(CheckpointLoaded(7, 10, stored_by=500))
        assert await read(registry) == {CheckpointLoaded(7, 10)}

    async def test_what_others_wrote_before_stays_until_their_shards_are_written(self, registry: Registry) -> None:
        before = CheckpointLoaded(7, 10, frozenset({3}), stored_by=500)
        assert await keeper(registry, "2025-01-01T00:00:00Z").write(before)
        one = keeper(registry)
        for through in (9, 11):
            assert await one.write(CheckpointLoaded(through, 12, shards=LOW, stored_by=600))
        assert await read(registry) == {CheckpointLoaded(11, 12, shards=LOW), replace(before, shards=HIGH)}
        assert await keeper(registry).write(CheckpointLoaded(13, 14, shards=HIGH))
        assert await read(registry) == {CheckpointLoaded(11, 12, shards=LOW), CheckpointLoaded(13, 14, shards=HIGH)}

    async def test_what_reaches_beyond_it_is_of_another_one_and_no_forgery(self, registry: Registry) -> None:
        refused: list[tuple[str, str]] = []
        registry.broken = lambda key, reason: refused.append((key, reason))
        settled = CheckpointLoaded(7, 1_000_000, stored_by=500)
        assert await keeper(registry, "2025-01-01T00:00:00Z").write(settled)
        assert (await read(registry), refused) == (set(), [])

    async def test_what_is_not_bounded_counts_for_nothing(self, registry: Registry) -> None:
        assert await keeper(registry, "2025-01-01T00:00:00Z").write(CheckpointLoaded(7, 10))
        assert await read(registry) == set()
