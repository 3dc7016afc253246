"""Checkpoints: several holders write one value, each for its shards, if something happened and when its turn comes."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any, cast

import pytest

from nats_scheduler.engine.firing.building import ServerLimits
from nats_scheduler.engine.inputs import CaughtUp, CheckpointLoaded, MessagesRead
from nats_scheduler.engine.sharing.holdings import MAX_UNSETTLED_PER_SHARD
from nats_scheduler.engine.sharing.shards import ALL_SHARDS, SHARDS
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.errors import NoAnswerError
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import DEFAULT_DUPLICATE_WINDOW_NS
from nats_scheduler.runtime import checkpoints as pace
from nats_scheduler.runtime.checkpoints import (
    CHECKPOINT_INTERVAL_SECONDS,
    MAX_CHECKPOINT_LEAD_NS,
    TURN_LIMIT_SECONDS,
    CheckpointKeeper,
    CheckpointWriter,
    Pace,
    checkpoint_key,
    read_checkpoint,
)
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import ManualClock
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

CREATED, EARLIER = "2026-01-01T00:00:00Z", "2025-01-01T00:00:00Z"
LOW, HIGH = frozenset(range(32)), frozenset(range(32, 64))
KEY = checkpoint_key("S", Mode.EMULATED)


@pytest.fixture
async def registry(shared_server: SharedServer, stream_name: str) -> AsyncIterator[Registry]:
    """Open a bucket of its own."""
    async with account_on((await shared_server(V2_11)).url) as account:
        bucket = Registry(account.connection, account.api, stream_name)
        assert await bucket.open()
        assert not await bucket.open()
        yield bucket


class Stream:
    """A stream that ends at 100, and by some more sequences at each later look."""

    def __init__(self, grows_by: int = 0) -> None:
        self._grows_by = grows_by
        self._last = 100

    async def stream(self, name: str) -> Any:
        """Return what the server says of the stream."""
        self._last += self._grows_by
        state = {"first_seq": 1, "last_seq": self._last - self._grows_by}
        return {"config": {"name": name}, "created": CREATED, "state": state}


def keeper(registry: Registry, created: str = CREATED) -> CheckpointKeeper:
    """Make what writes the checkpoints of one instance."""
    return CheckpointKeeper(registry, created, KEY)


async def written(registry: Registry, *settled: CheckpointLoaded, created: str = CREATED) -> None:
    """Write checkpoints, each as another instance."""
    for one in settled:
        assert await keeper(registry, created).write(one)


async def read(registry: Registry, now: int = 1_000, mode: Mode = Mode.EMULATED) -> list[CheckpointLoaded]:
    """Return what a new holder reads, by the first shard."""
    found = await read_checkpoint(registry, Stream(), "S", mode, now) or ()
    return sorted(found, key=lambda one: min(one.shards))


def refusals_of(registry: Registry) -> list[str]:
    """Return a list to which the reasons are added for which values are ignored."""
    refused: list[str] = []
    registry.broken = lambda _key, reason: refused.append(reason)
    return refused


async def test_each_holder_writes_for_its_own_shards_and_for_one_that_changed_hands_the_new_one(
    registry: Registry,
) -> None:
    await written(registry, CheckpointLoaded(5, 10, frozenset({3})), CheckpointLoaded(6, 12, shards=HIGH))
    assert await read(registry) == [CheckpointLoaded(5, 10, frozenset({3}), LOW), CheckpointLoaded(6, 12, shards=HIGH)]
    one, other = keeper(registry), keeper(registry)
    for through in (5, 7):
        assert await one.write(CheckpointLoaded(through, 10, frozenset({3}), LOW))
        assert await other.write(CheckpointLoaded(through + 1, 11, frozenset({4}), HIGH))
    assert await read(registry) == [
        CheckpointLoaded(7, 10, frozenset({3}), LOW),
        CheckpointLoaded(8, 11, frozenset({4}), HIGH),
    ]


async def test_the_first_fire_of_a_refused_backlog_is_written_with_its_schedule(registry: Registry) -> None:
    settled = CheckpointLoaded(900, 10, frozenset({3, 7}), LOW, owed={7: 850})
    await written(registry, settled, CheckpointLoaded(800, 9, shards=HIGH))
    found, _other = await read(registry)
    assert (found.unsettled, found.owed) == (frozenset({3, 7}), {7: 850})


async def test_first_fires_that_no_sidecar_wrote_make_an_entry_incredible(registry: Registry) -> None:
    for owed in ({"7": 850}, [7, 850], [[7]], [[7, "850"]], [[7, True]], [[7, 850, 1]]):
        entry = {"through": 900, "sequence": 10, "unsettled": [7], "owed": owed, "shards": sorted(ALL_SHARDS)}
        await registry.put(KEY, {"created": CREATED, "entries": [entry]})
        assert await read(registry) == [], owed


async def test_first_fires_take_the_room_of_exceptions(registry: Registry) -> None:
    """An entry is left out as a whole, if there is no room for all that it names."""
    many = dict.fromkeys(range(1, 1101), 850)
    first = CheckpointLoaded(900, 10, frozenset(many), LOW, owed=many)
    await written(registry, first, CheckpointLoaded(900, 10, frozenset(range(5_000, 5_201)), HIGH))
    assert [one.shards for one in await read(registry)] == [HIGH]


async def test_calendars_that_a_holder_did_not_know_are_kept_with_its_shards(registry: Registry) -> None:
    unknown = CheckpointLoaded(100, 10, shards=frozenset({0, 1}), calendars={"de-by": 40, "work": -1})
    known = CheckpointLoaded(100, 10, shards=frozenset({2}))
    await written(registry, known, unknown)
    assert await read(registry) == [unknown, known]
    named = (("de-by",), ("de-by", "work"), ())
    assert [unknown.through_of(calendars) for calendars in named] == [40, -1, 100]
    assert known.through_of(["de-by"]) == 100
    await registry.put(KEY, {"created": CREATED, "through": 100, "sequence": 10, "calendars": {"work": "soon"}})
    assert await read(registry) == []


async def test_what_an_earlier_version_wrote_speaks_for_all_shards(registry: Registry) -> None:
    await registry.put(KEY, {"created": CREATED, "through": 5, "sequence": 10, "unsettled": [3]})
    assert await read(registry) == [CheckpointLoaded(5, 10, frozenset({3}), ALL_SHARDS)]
    await written(registry, CheckpointLoaded(9, 12, shards=HIGH))
    assert CheckpointLoaded(5, 10, frozenset({3}), LOW) in await read(registry)


async def test_what_is_written_while_it_is_read_is_not_taken_for_another_state_of_the_stream(
    registry: Registry,
) -> None:
    class Written(Stream):
        async def stream(self, name: str) -> Any:
            info = await super().stream(name)
            await written(registry, CheckpointLoaded(self._last, self._last))
            return info

    await written(registry, CheckpointLoaded(5, 100))
    growing = Written(grows_by=1)
    for through in (5, 101, 102):
        found = await read_checkpoint(registry, growing, "S", Mode.EMULATED, 1_000)
        assert found == [CheckpointLoaded(through, max(through, 100))]


async def test_what_reaches_beyond_the_stream_is_believed_once_its_leader_has_applied_it_and_else_told(
    registry: Registry,
) -> None:
    """It was written before the stream was rolled back, or is forged."""
    refused = refusals_of(registry)
    await written(registry, CheckpointLoaded(5, 102))
    assert await read_checkpoint(registry, Stream(grows_by=1), "S", Mode.EMULATED, 1_000) == [CheckpointLoaded(5, 102)]
    assert refused == []
    assert await read(registry) == []
    assert refused == [
        "it covers messages up to sequence 102, and the stream ends at 100: forged, or the stream was rolled back"
    ]


async def test_what_is_ahead_of_the_servers_clock_by_seconds_is_not_believed_and_told(registry: Registry) -> None:
    """And what others wrote beside it is."""
    refused, now = refusals_of(registry), 1_000 * SECOND
    credible = CheckpointLoaded(now + MAX_CHECKPOINT_LEAD_NS, 10, shards=LOW)
    await written(registry, credible, CheckpointLoaded(now + MAX_CHECKPOINT_LEAD_NS + 1, 10, shards=HIGH))
    assert await read(registry, now) == [credible]
    owed = {7: now + MAX_CHECKPOINT_LEAD_NS + 1}
    await written(registry, CheckpointLoaded(900, 10, frozenset({7}), HIGH, owed=owed))
    assert await read(registry, now) == [credible]
    assert refused[0] == "it claims fires as settled that are due 5 s ahead of the server's clock"
    assert "ahead of the server's clock" in refused[1], "of a first fire"


def numbers(shard: int, count: int = MAX_UNSETTLED_PER_SHARD) -> frozenset[int]:
    """Return sequences as large as those of a stream that is old."""
    return frozenset(range((shard + 1) * 10**12, (shard + 1) * 10**12 + count))


async def test_all_that_the_holders_of_all_shards_name_is_kept_and_an_exception_without_room_is_not_settled(
    registry: Registry,
) -> None:
    """Not even one of a holder that is gone, whose shards change hands one by one."""
    everything = numbers(99, SHARDS * MAX_UNSETTLED_PER_SHARD)
    await written(registry, CheckpointLoaded(5, 10, everything))
    for shard in range(SHARDS):
        await written(registry, CheckpointLoaded(6, 10, numbers(shard), frozenset({shard})))
        for found in await read(registry):
            assert found.unsettled == (everything if found.through == 5 else numbers(*found.shards))
    assert [found.unsettled for found in await read(registry)] == [numbers(shard) for shard in range(SHARDS)]


async def test_what_was_settled_while_we_emulated_is_settled_in_every_mode(registry: Registry) -> None:
    async def furthest(*modes: Mode) -> list[int]:
        return [(await read(registry, mode=mode))[-1].through for mode in modes]

    async def write(mode: Mode, through: int) -> None:
        value = {"created": CREATED, "through": through, "sequence": 50, "unsettled": []}
        await registry.put(checkpoint_key("S", mode), value)

    await write(Mode.EMULATED, 10)
    assert await furthest(Mode.EMULATED, Mode.DORMANT, Mode.NATIVE) == [10, 10, 10]
    await write(Mode.DORMANT, 20)
    assert await furthest(Mode.EMULATED, Mode.DORMANT) == [10, 20]
    await write(Mode.EMULATED, 30)
    assert await furthest(Mode.EMULATED, Mode.DORMANT) == [30, 30]


async def test_what_was_settled_on_a_stream_that_seems_to_be_another_one_is_bounded_by_what_had_been_read(
    registry: Registry,
) -> None:
    """Servers up to 2.12 say otherwise when a stream was created, once it was updated and they were started again."""
    refused = refusals_of(registry)
    await written(registry, CheckpointLoaded(7, 10), created=EARLIER)
    assert await read(registry) == [], "what is not bounded counts for nothing"
    await written(registry, CheckpointLoaded(9, 12, shards=HIGH))
    assert await read(registry) == [CheckpointLoaded(9, 12, shards=HIGH)]
    await written(registry, CheckpointLoaded(7, 10, stored_by=500))
    assert await read(registry) == [CheckpointLoaded(7, 10)], "of the very same stream nothing is bounded"
    await written(registry, CheckpointLoaded(7, 1_000_000, stored_by=500), created=EARLIER)
    assert (await read(registry), refused) == ([], []), "it is of another stream, and no forgery"
    before = CheckpointLoaded(7, 10, frozenset({3}), stored_by=500)
    await written(registry, before, created=EARLIER)
    assert await read(registry) == [before]
    one = keeper(registry)
    for through in (9, 11):
        assert await one.write(CheckpointLoaded(through, 12, shards=LOW, stored_by=600))
    assert await read(registry) == [CheckpointLoaded(11, 12, shards=LOW), replace(before, shards=HIGH)]
    await written(registry, CheckpointLoaded(13, 14, shards=HIGH))
    assert await read(registry) == [CheckpointLoaded(11, 12, shards=LOW), CheckpointLoaded(13, 14, shards=HIGH)]


# -- when it is written


def state(**config: Any) -> StreamState:
    """Return a stream with this configuration."""
    info = {"config": {"name": "ORDERS", "subjects": ["orders.>"], **config}, "created": "2020-01-01T00:00:00Z"}
    return StreamState.from_info(info)


class Bucket:
    """A bucket that keeps what is written, and refuses everything while it is away."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.is_away = False

    async def swap(self, _key: str, value: Any, _revision: int) -> int:
        """Keep it."""
        if self.is_away:
            raise NoAnswerError("the bucket is away")
        self.written.append(value)
        return len(self.written)

    @property
    def shards(self) -> frozenset[int]:
        """The shards of the last checkpoint."""
        return frozenset(self.written[-1]["entries"][0]["shards"])


class Desk:
    """A writer, and the engine of its stream, which has read one message."""

    def __init__(self, shards: Callable[[], frozenset[int]] = lambda: ALL_SHARDS, **config: Any) -> None:
        self.clock, self.stream = ManualClock(), state(**config)
        self.engine = StreamEngine(self.stream.rules, (ADR51,), ServerLimits(guard=True))
        self.engine.step(self.clock.now(), [CaughtUp()])
        self.writer = CheckpointWriter(self.engine, self.stream, Mode.EMULATED, self.clock, Pace(), shards)
        self.bucket: Any = Bucket()
        self.read(1)

    def read(self, sequence: int) -> None:
        """Let the engine read a message."""
        message = StoredMessage("orders.plain", sequence, self.clock.now(), b"", None)
        self.engine.step(self.clock.now(), [MessagesRead([message])])


async def test_a_checkpoint_is_written_once_for_what_happened_and_again_if_it_could_not_be() -> None:
    desk = Desk()
    assert desk.writer.has_news
    desk.bucket.is_away = True
    await desk.writer.write(desk.bucket)
    assert desk.writer.has_news
    desk.bucket.is_away = False
    await desk.writer.write(desk.bucket)
    await desk.writer.write(desk.bucket)
    assert (len(desk.bucket.written), desk.writer.has_news, desk.bucket.shards) == (1, False, ALL_SHARDS)
    desk.read(2)
    assert desk.writer.has_news
    await desk.writer.write(desk.bucket)
    desk.engine.step(desk.clock.now(), [CaughtUp(1, is_behind=True)])
    await desk.writer.write(desk.bucket)
    desk.engine.step(desk.clock.now(), [CaughtUp(2)])
    await desk.writer.write(desk.bucket)
    await desk.writer.write(desk.bucket)
    assert [value["entries"][0]["sequence"] for value in desk.bucket.written] == [1, 2, 1, 2], "as far as all was read"


async def test_a_new_bucket_gets_what_the_old_one_held() -> None:
    desk, new = Desk(), Bucket()
    await desk.writer.write(desk.bucket)
    await desk.writer.write(cast(Any, new))
    assert new.written == desk.bucket.written
    desk.writer.write_anew()
    await desk.writer.write(cast(Any, new))
    assert len(new.written) == 2


async def test_the_revisions_of_a_new_bucket_are_not_those_that_are_known_of_the_old_one(
    shared_server: SharedServer, stream_name: str
) -> None:
    """They are the same numbers again; who took them for known removed what the others had written by then."""
    low, high = Desk(lambda: LOW), Desk(lambda: HIGH)
    async with account_on((await shared_server(V2_11)).url) as account:
        bucket = Registry(account.connection, account.api, stream_name)
        await bucket.open()
        for desk in (low, high):
            await desk.writer.write(bucket)
        await account.api.call(f"STREAM.DELETE.{bucket.stream}")
        assert await bucket.open()
        for desk in (high, low):
            desk.writer.bucket_replaced()
            await desk.writer.write(bucket)
        value: Any = await bucket.get(checkpoint_key("ORDERS", Mode.EMULATED))
        assert {shard for entry in value["entries"] for shard in entry["shards"]} == ALL_SHARDS


async def test_only_shards_of_ours_are_reported() -> None:
    ours = set(ALL_SHARDS)
    desk = Desk(lambda: frozenset(ours))
    ours -= {3, 4}
    await desk.writer.write(desk.bucket)
    assert desk.bucket.shards == ALL_SHARDS - {3, 4}
    ours.clear()
    desk.read(2)
    assert not desk.writer.has_news
    await desk.writer.write(desk.bucket)
    assert len(desk.bucket.written) == 1


async def test_how_long_a_stream_waits_for_its_turn_depends_on_what_it_keeps() -> None:
    waits: list[tuple[dict[str, Any], float]] = [
        ({}, min(TURN_LIMIT_SECONDS, DEFAULT_DUPLICATE_WINDOW_NS / 4 / SECOND)),
        ({"duplicate_window": 8 * SECOND}, 2),
        ({"duplicate_window": 8 * SECOND, "max_age": 4 * SECOND}, 1),
        ({"duplicate_window": 3_600 * SECOND}, TURN_LIMIT_SECONDS),
        ({"max_msgs_per_subject": 1}, CHECKPOINT_INTERVAL_SECONDS),
        ({"retention": "workqueue"}, CHECKPOINT_INTERVAL_SECONDS),
    ]
    assert [(config, Desk(**config).writer.longest_wait_seconds) for config, _seconds in waits] == waits
    desk = Desk()
    desk.writer.configured(state(duplicate_window=8 * SECOND))
    assert desk.writer.longest_wait_seconds == 2, "as long as the new configuration allows"


class Writer:
    """Counts its turns."""

    def __init__(self, longest_wait_seconds: float = 30.0, *, has_news: bool = True) -> None:
        self.longest_wait_seconds = longest_wait_seconds
        self.has_news = has_news
        self.turns = 0

    def take_turn(self) -> None:
        self.turns += 1


async def turns_until(watched: Writer, count: int, *writers: Writer) -> None:
    """Let writers have their turns until one of them has had so many."""
    one = Pace()
    leaving = [one.join(cast(Any, writer)) for writer in writers]
    await eventually(lambda: watched.turns >= count)
    for leave in leaving:
        leave()


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "TURN_CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(pace, "CHECKPOINT_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(pace, "MAX_TURNS_PER_CHECK", 2)


@pytest.mark.usefixtures("soon")
async def test_of_many_who_write_none_has_two_turns_more_than_another_and_who_has_no_news_takes_none() -> None:
    writers, idle = [Writer() for _ in range(11)], [Writer(has_news=False) for _ in range(10)]
    await turns_until(writers[0], 3, *idle, *writers)
    turns = [writer.turns for writer in writers]
    assert max(turns) - min(turns) <= 1, turns
    assert not any(writer.turns for writer in idle)


@pytest.mark.usefixtures("soon")
async def test_who_may_not_wait_has_a_turn_at_each_look() -> None:
    urgent, others = [Writer(0.0) for _ in range(5)], [Writer() for _ in range(50)]
    await turns_until(urgent[0], 5, *others, *urgent)
    assert min(writer.turns for writer in urgent) >= 4
    assert max(writer.turns for writer in others) <= 1
