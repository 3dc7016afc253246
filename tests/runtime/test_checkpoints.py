"""Checkpoints: the owner writes one value, if something happened and when its turn comes."""

from collections.abc import AsyncIterator, Callable
from typing import Any, cast

import pytest

from nats_scheduler.control.errors import DeadlineError
from nats_scheduler.engine.inputs import NOTHING_SETTLED, CaughtUp, Checkpoint, MessagesRead, ServerLimits
from nats_scheduler.engine.ownership.takeover import MAX_UNSETTLED, OWED_NUMBERS
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.registry import Registry
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import DEFAULT_DUPLICATE_WINDOW_NS
from nats_scheduler.runtime import checkpoint_writing
from nats_scheduler.runtime.checkpoint_writing import (
    CHECKPOINT_INTERVAL_SECONDS,
    TURN_LIMIT_SECONDS,
    CheckpointWriter,
    Pace,
)
from nats_scheduler.runtime.checkpoints import MAX_CHECKPOINT_LEAD_NS, CheckpointKeeper, checkpoint_key, read_checkpoint
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.manual_clock import ManualClock
from tests.conftest import SharedServer
from tests.harness.account import account_on
from tests.harness.servers import V2_11
from tests.harness.waiting import eventually

CREATED, EARLIER = "2026-01-01T00:00:00Z", "2025-01-01T00:00:00Z"
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


NOW = 1_000
"""The server's time (ns)."""


def keeper(registry: Registry, created: str = CREATED) -> CheckpointKeeper:
    """Make what writes the checkpoints of one instance."""
    return CheckpointKeeper(registry, created, KEY, lambda: NOW)


async def written(registry: Registry, settled: Checkpoint, created: str = CREATED) -> None:
    """Write a checkpoint in place of any other, as one more instance."""
    await registry.purge(KEY)
    assert await keeper(registry, created).write(settled)


async def read(registry: Registry, now: int = NOW, mode: Mode = Mode.EMULATED) -> Checkpoint:
    """Return what a new owner reads."""
    found = await read_checkpoint(registry, Stream(), "S", mode, now)
    assert found is not None
    return found


def refusals_of(registry: Registry) -> list[str]:
    """Return a list to which the reasons are added for which values are ignored."""
    refused: list[str] = []
    registry.broken = lambda _key, reason: refused.append(reason)
    return refused


async def test_the_next_owner_reads_what_the_last_one_wrote(registry: Registry) -> None:
    assert await read(registry) == NOTHING_SETTLED
    settled = Checkpoint(900, 10, frozenset({3, 7}), owed={7: 850}, calendars={"de-by": 40, "work": -1})
    one = keeper(registry)
    for through in (5, 900):
        assert await one.write(Checkpoint(through, 10, settled.unsettled, None, settled.owed, settled.calendars))
    found = await read(registry)
    assert (found, found.owed, found.calendars) == (settled, settled.owed, settled.calendars)
    named = (("de-by",), ("de-by", "work"), ())
    assert [found.through_of(calendars) for calendars in named] == [40, -1, 900]


async def test_an_owner_that_was_replaced_leaves_what_reaches_further(
    registry: Registry,
) -> None:
    before, after = keeper(registry), keeper(registry)
    assert await before.write(Checkpoint(5, 10))
    assert await after.write(Checkpoint(7, 12))
    for through in (6, 6):
        assert await before.write(Checkpoint(through, 11))
        assert await read(registry) == Checkpoint(7, 12), "it belongs to the next owner"
    assert await before.write(Checkpoint(8, 13))
    assert await read(registry) == Checkpoint(8, 13), "it owns the stream again"
    forged: list[dict[str, Any]] = [
        {"through": NOW + MAX_CHECKPOINT_LEAD_NS + 1},
        {"created": EARLIER, "stored_by": 500},
        {"through": "soon"},
        {"owed": [[7, NOW + MAX_CHECKPOINT_LEAD_NS + 1]]},
    ]
    for number, one in enumerate(forged, 20):
        await registry.put(KEY, {"created": CREATED, "through": 900, "sequence": 10} | one)
        assert await before.write(Checkpoint(number, 13))
        assert await read(registry) == Checkpoint(number, 13), one


async def test_what_reaches_beyond_the_stream_is_believed_once_it_is_applied(
    registry: Registry,
) -> None:
    """It was written before the stream was rolled back, or is forged."""
    refused = refusals_of(registry)
    await written(registry, Checkpoint(5, 102))
    assert await read_checkpoint(registry, Stream(grows_by=1), "S", Mode.EMULATED, NOW) == Checkpoint(5, 102)
    assert refused == []
    assert await read(registry) == NOTHING_SETTLED
    assert refused == [
        "it covers messages up to sequence 102, and the stream ends at 100: forged, or the stream was rolled back"
    ]


async def test_what_is_seconds_ahead_of_the_servers_clock_is_not_believed(registry: Registry) -> None:
    refused, now = refusals_of(registry), 1_000 * SECOND
    credible = Checkpoint(now + MAX_CHECKPOINT_LEAD_NS, 10)
    await written(registry, credible)
    assert await read(registry, now) == credible
    await written(registry, Checkpoint(now + MAX_CHECKPOINT_LEAD_NS + 1, 10))
    assert await read(registry, now) == NOTHING_SETTLED
    await written(registry, Checkpoint(900, 10, frozenset({7}), owed={7: now + MAX_CHECKPOINT_LEAD_NS + 1}))
    assert await read(registry, now) == NOTHING_SETTLED
    assert refused[0] == "it claims fires as settled that are due 5 s ahead of the server's clock"
    assert "ahead of the server's clock" in refused[1], "of a first fire"


async def test_all_exceptions_that_an_engine_names_fit_into_the_bucket(registry: Registry) -> None:
    """Of a stream that is old: its sequences are as long as they get."""
    unsettled = frozenset(range(10**15, 10**15 + MAX_UNSETTLED // (1 + OWED_NUMBERS)))
    owed = dict.fromkeys(unsettled, 1_800_000_000 * SECOND)
    await written(registry, Checkpoint(5, 10, unsettled, 1_800_000_000 * SECOND, owed))
    found = await read(registry, 1_800_000_000 * SECOND)
    assert (found.unsettled, found.owed) == (unsettled, owed)


async def test_what_was_settled_while_we_emulated_is_settled_in_every_mode(registry: Registry) -> None:
    async def furthest(*modes: Mode) -> list[int]:
        return [(await read(registry, mode=mode)).through for mode in modes]

    async def write(mode: Mode, through: int) -> None:
        value = {"created": CREATED, "through": through, "sequence": 50, "unsettled": []}
        await registry.put(checkpoint_key("S", mode), value)

    await write(Mode.EMULATED, 10)
    assert await furthest(Mode.EMULATED, Mode.DORMANT, Mode.NATIVE) == [10, 10, 10]
    await write(Mode.DORMANT, 20)
    assert await furthest(Mode.EMULATED, Mode.DORMANT) == [10, 20]
    await write(Mode.EMULATED, 30)
    assert await furthest(Mode.EMULATED, Mode.DORMANT) == [30, 30]


async def test_of_a_stream_with_another_creation_time_what_was_read_counts(
    registry: Registry,
) -> None:
    """Servers up to 2.12 say otherwise when a stream was created, once it was updated and they were started again."""
    refused = refusals_of(registry)
    await written(registry, Checkpoint(7, 10), EARLIER)
    assert await read(registry) == NOTHING_SETTLED, "what is not bounded counts for nothing"
    await written(registry, Checkpoint(7, 10, stored_by=500))
    assert await read(registry) == Checkpoint(7, 10), "of the very same stream nothing is bounded"
    await written(registry, Checkpoint(7, 1_000_000, stored_by=500), EARLIER)
    assert (await read(registry), refused) == (NOTHING_SETTLED, []), "it is of another stream, and no forgery"
    before = Checkpoint(7, 10, frozenset({3}), stored_by=500)
    await written(registry, before, EARLIER)
    assert await read(registry) == before
    assert await keeper(registry).write(Checkpoint(6, 12, stored_by=600))
    assert await read(registry) == Checkpoint(6, 12)


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
            raise DeadlineError("the bucket is away")
        self.written.append(value)
        return len(self.written)


class Desk:
    """A writer, and the engine of its stream, which has read one message."""

    def __init__(self, is_ours: Callable[[], bool] = lambda: True, **config: Any) -> None:
        self.clock, self.stream = ManualClock(), state(**config)
        self.engine = StreamEngine(self.stream.rules, (ADR51,), ServerLimits(guard=True))
        self.engine.step(self.clock.now(), [CaughtUp()])
        self.writer = CheckpointWriter(self.engine, self.stream, Mode.EMULATED, self.clock, Pace(), is_ours)
        self.bucket: Any = Bucket()
        self.read(1)

    def read(self, sequence: int) -> None:
        """Let the engine read a message."""
        message = StoredMessage("orders.plain", sequence, self.clock.now(), b"", None)
        self.engine.step(self.clock.now(), [MessagesRead([message])])


async def test_what_happened_is_written_once_and_again_if_it_was_not_stored() -> None:
    desk = Desk()
    assert desk.writer.has_news
    desk.bucket.is_away = True
    await desk.writer.write(desk.bucket)
    assert desk.writer.has_news
    desk.bucket.is_away = False
    await desk.writer.write(desk.bucket)
    await desk.writer.write(desk.bucket)
    assert (len(desk.bucket.written), desk.writer.has_news) == (1, False)
    desk.read(2)
    assert desk.writer.has_news
    await desk.writer.write(desk.bucket)
    desk.engine.step(desk.clock.now(), [CaughtUp(1, is_behind=True)])
    await desk.writer.write(desk.bucket)
    desk.engine.step(desk.clock.now(), [CaughtUp(2)])
    await desk.writer.write(desk.bucket)
    await desk.writer.write(desk.bucket)
    assert [value["sequence"] for value in desk.bucket.written] == [1, 2, 1, 2], "as far as all was read"


async def test_a_stream_that_keeps_little_waits_less_for_its_turn() -> None:
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
    monkeypatch.setattr(checkpoint_writing, "TURN_CHECK_INTERVAL_SECONDS", 0.01)
    monkeypatch.setattr(checkpoint_writing, "CHECKPOINT_INTERVAL_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint_writing, "MAX_TURNS_PER_CHECK", 2)


@pytest.mark.usefixtures("soon")
async def test_streams_take_turns_and_one_without_news_takes_none() -> None:
    writers, idle = [Writer() for _ in range(11)], [Writer(has_news=False) for _ in range(10)]
    await turns_until(writers[0], 3, *idle, *writers)
    turns = [writer.turns for writer in writers]
    assert max(turns) - min(turns) <= 1, turns
    assert not any(writer.turns for writer in idle)
