"""What a service does on its contact, and who writes its checkpoint.

What starts and ends services, `runtime/served_streams.py`, runs in each sidecar of `tests/simulation/`.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from nats_scheduler.control.errors import DeadlineError
from nats_scheduler.engine.fire import FetchContent, Fire, Question
from nats_scheduler.engine.inputs import CaughtUp, ContentFetched, MessagesRead, PublishConcluded, Stored
from nats_scheduler.engine.stream_port import Notify
from nats_scheduler.jetstream.streams import StreamState
from nats_scheduler.message.capabilities import GUARD_LEVEL, Capabilities
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.runtime import checkpoint_writing
from nats_scheduler.runtime.clock import SystemClock
from nats_scheduler.runtime.modes import Mode
from nats_scheduler.runtime.stream_service import StreamService
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.settings.sidecar_settings import SidecarSettings
from tests.harness.waiting import eventually
from tests.runtime.test_driver import SilentStream

LONG_SECONDS = 30.0
"""Far above what any of these tests may take."""

EVERY_SECOND = b"NATS/1.0\r\nNats-Schedule: @every 1s\r\nNats-Schedule-Target: orders.out\r\n\r\n"

INFO: dict[str, Any] = {"config": {"name": "ORDERS", "subjects": ["orders.>"]}, "created": "2020-01-01T00:00:00Z"}


class Answering(SilentStream):
    """A contact that finds every schedule and stores every fire, but does not deliver what it stored."""

    def __call__(self, _config: Any, notify: Notify, tasks: asyncio.TaskGroup, **_more: Any) -> "Answering":
        """Make contact, as a `Contacts` does."""
        self.notify, self.tasks = notify, tasks
        return self

    def publish(self, fires: Sequence[Fire]) -> None:
        """Store them."""
        for fire in fires:
            self.notify(PublishConcluded(fire, Stored(fire.sequence + 1)))

    def ask(self, question: Question) -> None:
        """Find the schedule."""
        assert isinstance(question, FetchContent)
        message = StoredMessage(question.schedule, question.sequence, 1, EVERY_SECOND, b"")
        self.notify(ContentFetched(question.schedule, question.sequence, message, None))

    async def follow(self, after: int) -> None:
        """Deliver one schedule, and then nothing."""
        stored = StoredMessage("orders.s", 1, SystemClock().now(), EVERY_SECOND, None)
        self.notify(MessagesRead([stored]))
        self.notify(CaughtUp())
        await super().follow(after)


class Unanswered(Answering):
    """A contact that is lost while a request that it made waits for its answer."""

    async def follow(self, after: int) -> None:
        """Lose the quorum."""
        self.asked = self.tasks.create_task(SilentStream.follow(self, after))
        raise DeadlineError("the quorum is lost")


class Checkpoints:
    """A bucket that keeps what is written, and the information of the stream, which ends at its first message."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    async def get(self, _key: str) -> None:
        """Return that there is no checkpoint."""

    async def stream(self, _name: str) -> Any:
        """Return the stream's information."""
        return INFO

    async def swap(self, key: str, value: Any, _revision: int) -> int:
        """Keep it."""
        self.written.append(value)
        return len(self.written)


SERVER = Capabilities("2.11.0", GUARD_LEVEL, 1 << 20)


async def service(bucket: Any, **config: Any) -> StreamService:
    """Return the service of a stream that this instance owns."""
    state = StreamState.from_info({**INFO, "config": {**INFO["config"], **config}})
    one = StreamService(state, Mode.EMULATED, SERVER, SidecarSettings(), SystemClock(), lambda *_: None)
    assert await one.own(True, bucket, bucket)
    return one


@asynccontextmanager
async def served(one: StreamService, contact: Any, bucket: Any) -> AsyncIterator[None]:
    """Serve a stream through a contact."""
    serving = asyncio.create_task(one.serve(contact, bucket, bucket))
    await eventually(lambda: one.has_contact)
    try:
        yield
    finally:
        serving.cancel()
        await asyncio.wait((serving,))
        one.end()


async def test_the_checkpoint_is_written_by_the_owner_only() -> None:
    """Not on trial, when another one owns the stream, and not after it was handed over."""
    bucket: Any = Checkpoints()
    one = await service(bucket)
    async with served(one, Answering(), bucket):
        await eventually(lambda: one.is_ready)
        one.fires_on_trial(True)
        await one.write_checkpoint(bucket)
        one.fires_on_trial(False)
        one.handed_over(True)
        await one.write_checkpoint(bucket)
        assert bucket.written == []
        one.handed_over(False)
        await one.write_checkpoint(bucket)
        assert len(bucket.written) == 1


async def test_a_contact_that_is_lost_is_not_waited_for() -> None:
    bucket: Any = Checkpoints()
    one, contact = await service(bucket), Unanswered()
    with pytest.raises(DeadlineError):
        async with asyncio.timeout(LONG_SECONDS):
            await one.serve(contact, bucket, bucket)
    assert contact.asked.cancelled()
    assert not one.has_contact
    one.end()


@pytest.mark.slow
async def test_a_fire_that_may_be_consumed_at_once_is_written_down_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not when the time for a checkpoint has come, which is far off here."""
    monkeypatch.setattr(checkpoint_writing, "CHECKPOINT_INTERVAL_SECONDS", 100 * LONG_SECONDS)
    checkpoints = Checkpoints()
    one = await service(checkpoints, retention="workqueue")
    async with served(one, Answering(), checkpoints):
        await eventually(lambda: len(checkpoints.written) >= 2, describe="two fires are reported")
    first, second = (value["through"] for value in checkpoints.written[:2])
    assert second - first >= SECOND // 2, "each reports another fire"
