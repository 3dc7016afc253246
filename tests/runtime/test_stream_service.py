"""What a service does with the shards that it is given and relieved of."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from nats_scheduler.engine.actions import PurgeSchedule, ReadContent, ReadDuplicate, RemoveExpired
from nats_scheduler.engine.fire import Fire
from nats_scheduler.engine.inputs import (
    CaughtUp,
    ContentRead,
    MessagesRead,
    PublishConcluded,
    ShardsHeld,
    Stored,
)
from nats_scheduler.engine.shards import ALL_SHARDS
from nats_scheduler.jetstream.capabilities import GUARD_LEVEL, Capabilities
from nats_scheduler.jetstream.errors import ConsumerLostError
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime import pace
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import format_rfc3339
from nats_scheduler.settings.sidecar import SidecarSettings
from tests.harness.waiting import eventually

LONG_SECONDS = 30.0
"""Far above what any of these tests may take."""


class Fires:
    """A contact that notes for which schedules a fire is begun, and answers nothing."""

    def __init__(self) -> None:
        self.begun: list[str] = []

    def publish(self, fires: Sequence[Fire]) -> None:
        """Answer nothing."""

    def read(self, request: ReadContent) -> None:
        """Note that a fire is begun."""
        self.begun.append(request.schedule)

    def read_duplicate(self, request: ReadDuplicate) -> None:
        """Answer nothing."""

    def purge(self, request: PurgeSchedule) -> None:
        """Answer nothing."""

    def remove(self, request: RemoveExpired) -> None:
        """Answer nothing."""

    async def follow(self, after: int) -> None:
        """Tell nothing."""

    def end(self, reason: str) -> None:
        """Answer nothing."""


class Overdue:
    """Stores schedules that are due at once, one after the other."""

    def __init__(self, service: StreamService, fires: Fires) -> None:
        self._service = service
        self._fires = fires
        self._stored = 0

    async def one_fires(self) -> bool:
        """Store a schedule, and return whether its fire is begun."""
        self._stored += 1
        subject = f"orders.s.{self._stored}"
        now = format_rfc3339(SystemClock().now())  # one of long ago would be looked at, whoever has to fire it
        block = f"NATS/1.0\r\nNats-Schedule: @at {now}\r\nNats-Schedule-Target: orders.out\r\n\r\n".encode()
        self._service.driver.receive(MessagesRead([StoredMessage(subject, self._stored, 1, block, None)]))
        self._service.driver.receive(CaughtUp())
        idle = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(idle.set_result, None)  # behind the driver's step
        await idle
        return subject in self._fires.begun


class Answering(Fires):
    """A contact that finds every schedule, stores every fire, and tells nothing of it but that it did."""

    def __init__(self, service: StreamService) -> None:
        super().__init__()
        self._service = service

    def publish(self, fires: Sequence[Fire]) -> None:
        """Store them."""
        for fire in fires:
            self._service.driver.receive(PublishConcluded(fire, Stored(fire.sequence + 1)))

    def read(self, request: ReadContent) -> None:
        """Find the schedule."""
        super().read(request)
        message = StoredMessage(request.schedule, request.sequence, 1, EVERY_SECOND, b"")
        self._service.driver.receive(ContentRead(request.schedule, request.sequence, message, None))

    async def follow(self, after: int) -> None:
        """Tell of one schedule, and then of nothing."""
        stored = StoredMessage("orders.s", 1, SystemClock().now(), EVERY_SECOND, None)
        self._service.driver.receive(MessagesRead([stored]))
        self._service.driver.receive(CaughtUp())
        await asyncio.get_running_loop().create_future()


class Checkpoints:
    """A bucket that keeps what is written."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    async def swap(self, key: str, value: Any, _revision: int) -> int:
        """Keep it."""
        self.written.append(value)
        return len(self.written)


EVERY_SECOND = b"NATS/1.0\r\nNats-Schedule: @every 1s\r\nNats-Schedule-Target: orders.out\r\n\r\n"


def service(**config: Any) -> StreamService:
    """Return the service of a stream, which holds all of its shards."""
    info = {"config": {"name": "ORDERS", "subjects": ["orders.>"], **config}, "created": "2020-01-01T00:00:00Z"}
    server = Capabilities("2.11.0", GUARD_LEVEL, 1 << 20)
    one = StreamService(
        StreamState.from_info(info), Mode.EMULATED, server, SidecarSettings(), SystemClock(), lambda *_: None
    )
    one.shards = ALL_SHARDS
    one.driver.receive(ShardsHeld(ALL_SHARDS))
    return one


async def test_who_hands_over_goes_on_for_the_moment_that_the_next_one_needs() -> None:
    one, fires = service(), Fires()
    one.driver.attach(fires)
    overdue = Overdue(one, fires)
    assert await overdue.one_fires()
    nobody: Any = None  # who only loses shards asks nobody
    assert await one.hold(frozenset(), nobody, nobody)
    assert one.shards == frozenset(), "the checkpoint is the next one's from now on"
    assert await overdue.one_fires()

    async def rests() -> bool:
        return not await overdue.one_fires()

    await eventually(rests, within_seconds=LONG_SECONDS, describe="it has let go")
    one.driver.stop()


class Unanswered(Fires):
    """A contact that is lost while a request that it made waits for its answer."""

    def __init__(self, tasks: asyncio.TaskGroup) -> None:
        super().__init__()
        self.asked = tasks.create_task(self._ask())

    async def _ask(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def follow(self, after: int) -> None:
        """Lose the quorum."""
        raise ConsumerLostError("the quorum is lost")


async def test_a_contact_that_is_lost_is_given_up_without_waiting_for_answers() -> None:
    one = service()
    bucket: Any = None
    made: list[Unanswered] = []

    def contact(config: Any, tell: Any, tasks: asyncio.TaskGroup, **_more: Any) -> Any:
        del config, tell
        made.append(Unanswered(tasks))
        return made[0]

    with pytest.raises(ConsumerLostError):
        async with asyncio.timeout(LONG_SECONDS):
            await one.serve(contact, bucket, bucket)
    assert made[0].asked.cancelled()
    assert not one.driver.has_contact
    one.driver.stop()


async def test_a_fire_that_may_be_consumed_at_once_is_written_down_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the time for a checkpoint has come, which is far off here."""
    monkeypatch.setattr(pace, "CHECKPOINT_INTERVAL_SECONDS", 100 * LONG_SECONDS)
    one, checkpoints = service(retention="workqueue"), Checkpoints()
    bucket: Any = checkpoints
    serving = asyncio.create_task(one.serve(lambda *_rest, **_more: Answering(one), bucket, bucket))
    await eventually(
        lambda: len(checkpoints.written) >= 2, within_seconds=LONG_SECONDS, describe="two fires are written down"
    )
    first, second = (value["entries"][0]["through"] for value in checkpoints.written[:2])
    assert second - first >= SECOND // 2, "each tells of another fire"
    serving.cancel()
    await asyncio.wait((serving,))
    one.driver.stop()
