"""A checkpoint is written if something happened, for shards of which no other instance writes it, and not too late."""

from collections.abc import Callable
from typing import Any

import pytest

from nats_scheduler.engine.firing.building import ServerLimits
from nats_scheduler.engine.inputs import CaughtUp, MessagesRead
from nats_scheduler.engine.sharing.shards import ALL_SHARDS
from nats_scheduler.engine.stream import StreamEngine
from nats_scheduler.jetstream.errors import NoAnswerError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.dialect import ADR51
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.message.stream_rules import DEFAULT_DUPLICATE_WINDOW_NS
from nats_scheduler.runtime.checkpoints import CHECKPOINT_INTERVAL_SECONDS, TURN_LIMIT_SECONDS, CheckpointWriter, Pace
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.testing.clock import ManualClock


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


async def test_a_checkpoint_is_written_once_for_what_happened() -> None:
    desk = Desk()
    assert desk.writer.has_news
    await desk.writer.write(desk.bucket)
    await desk.writer.write(desk.bucket)
    assert (len(desk.bucket.written), desk.writer.has_news) == (1, False)
    desk.read(2)
    assert desk.writer.has_news
    await desk.writer.write(desk.bucket)
    assert len(desk.bucket.written) == 2


async def test_a_new_bucket_gets_what_the_old_one_held() -> None:
    desk, another = Desk(), Bucket()
    await desk.writer.write(desk.bucket)
    new: Any = another
    await desk.writer.write(new)
    assert another.written == desk.bucket.written
    desk.writer.write_anew()
    await desk.writer.write(new)
    assert len(another.written) == 2


async def test_what_could_not_be_written_is_written_the_next_time() -> None:
    desk = Desk()
    desk.bucket.is_away = True
    await desk.writer.write(desk.bucket)
    assert desk.writer.has_news
    desk.bucket.is_away = False
    await desk.writer.write(desk.bucket)
    assert desk.bucket.shards == ALL_SHARDS


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


@pytest.mark.parametrize(
    ("config", "seconds"),
    [
        ({}, min(TURN_LIMIT_SECONDS, DEFAULT_DUPLICATE_WINDOW_NS / 4 / SECOND)),
        ({"duplicate_window": 8 * SECOND}, 2),
        ({"duplicate_window": 8 * SECOND, "max_age": 4 * SECOND}, 1),
        ({"duplicate_window": 3_600 * SECOND}, TURN_LIMIT_SECONDS),
        ({"max_msgs_per_subject": 1}, CHECKPOINT_INTERVAL_SECONDS),
        ({"retention": "workqueue"}, CHECKPOINT_INTERVAL_SECONDS),
    ],
)
async def test_how_long_a_stream_waits_for_its_turn_depends_on_what_it_keeps(
    config: dict[str, Any], seconds: float
) -> None:
    assert Desk(**config).writer.longest_wait_seconds == seconds


async def test_a_stream_whose_configuration_changed_waits_as_long_as_the_new_one_allows() -> None:
    desk = Desk()
    desk.writer.configured(state(duplicate_window=8 * SECOND))
    assert desk.writer.longest_wait_seconds == 2
