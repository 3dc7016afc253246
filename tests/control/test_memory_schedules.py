"""The store in memory keeps the contract of all stores."""

from collections.abc import Sequence

import pytest

from nats_scheduler.engine.inputs import Stored
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import MILLISECOND
from tests.control.contract import Side, StoreContract
from tests.control.memory_schedules import MemorySchedules

NOW = 1_800_000_000_000_000_000


class MemorySide(Side):
    """The store in memory."""

    def __init__(self, *, guard: bool = True) -> None:
        self.time = NOW
        self.store: MemorySchedules = MemorySchedules(self._now)
        self.stream, self.unserved = "S", "PLAIN"
        self.messages_of = self.store.wire.add_stream(
            {"name": "S", "subjects": ["S.>"], "allow_msg_schedules": True}, guard=guard
        )
        self.store.wire.add_stream({"name": "PLAIN", "subjects": ["PLAIN.>"]})

    async def publish(self, subject: str, block: bytes, body: bytes = b"") -> int:
        stored = self.messages_of.publish(subject, block, body)
        assert isinstance(stored, Stored), stored
        return stored.sequence

    async def messages(self, subject: str) -> Sequence[StoredMessage]:
        return list(self.messages_of.messages(subject))

    def _now(self) -> int:
        self.time += MILLISECOND
        return self.time


@pytest.fixture(params=[True, False])
def side(request: pytest.FixtureRequest) -> MemorySide:
    return MemorySide(guard=request.param)


class TestMemorySchedules(StoreContract):
    """In memory, as a server of 2.11 and as one of 2.10."""
