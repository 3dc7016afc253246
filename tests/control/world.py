"""A stream with schedules in memory, on which a test decides the time and what goes wrong."""

from typing import Any

from nats_scheduler.control.current import Current, read_current
from nats_scheduler.engine.inputs import Stored
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.instants import SECOND
from nats_scheduler.schedule.rfc3339 import parse_rfc3339
from nats_scheduler.testing.memory_stream import MemoryStream
from tests.control.memory_schedules import MemorySchedules
from tests.harness.blocks import block_of

SUBJECT = "S.s"
NEVER = "@at 2200-01-01T00:00:00Z"


def instant(text: str) -> int:
    """Return an instant (ns)."""
    parsed = parse_rfc3339(text)
    assert isinstance(parsed, int)
    return parsed


class World:
    """One stream, S, and its store."""

    def __init__(self, *, is_native: bool = False, **config: Any) -> None:
        self.time = instant("2026-11-20T12:00:00.4Z")
        self.store = MemorySchedules(lambda: self.time)
        wanted = {"name": "S", "subjects": ["S.>"], "allow_msg_schedules": True, "allow_rollup_hdrs": True, **config}
        self.stream: MemoryStream = self.store.wire.add_stream(wanted, is_native=is_native)

    def after(self, seconds: float) -> None:
        """Let time pass."""
        self.time += int(seconds * SECOND)

    def put(self, block: bytes, body: bytes = b"body", subject: str = SUBJECT) -> int:
        """Store a message as another client does."""
        stored = self.stream.publish(subject, block, body)
        assert isinstance(stored, Stored), stored
        return stored.sequence

    def last(self, subject: str = SUBJECT) -> StoredMessage:
        """Return the last message on a subject."""
        found = self.stream.last(subject)
        assert found is not None
        return found

    async def found(self, subject: str = SUBJECT) -> Current:
        """Return the schedule on a subject."""
        read = read_current(self.last(subject), await self.store.served("S"))
        assert read is not None
        return read


def block(pattern: str = NEVER, prefix: str = "", **more: str) -> bytes:
    """Return the headers of a schedule; `prefix` is "X-" for the portable ones, `_` in a name stands for `-`."""
    headers = [(f"{prefix}Nats-Schedule", pattern), (f"{prefix}Nats-Schedule-Target", "S.out")]
    return block_of(*headers, *((name.replace("_", "-"), value) for name, value in more.items()))


def fire_block(identity: str, following: str = "purge", schedule: str = SUBJECT, prefix: str = "") -> bytes:
    """Return the headers of a fire as a sidecar stores it."""
    names = (f"{prefix}Nats-Scheduler", schedule), (f"{prefix}Nats-Schedule-Next", following)
    return block_of(*names, ("Nats-Msg-Id", identity))
