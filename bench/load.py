"""Put schedules into a stream as fast as a server takes them, and read back what they generated."""

import asyncio
from collections.abc import Iterable

from nats_scheduler.engine.inputs import CaughtUp, Input, MessagesRead
from nats_scheduler.jetstream.api import JetStreamApi
from nats_scheduler.jetstream.connection import Connection, frame
from nats_scheduler.jetstream.follow import ConsumerFollower
from nats_scheduler.message.headers import header_value
from nats_scheduler.message.stored import StoredMessage
from nats_scheduler.schedule.rfc3339 import format_rfc3339

WINDOW = 2_000
BODY = b"x" * 128


def schedule_frame(stream: str, number: int, pattern: str, prefix: bytes, reply: str) -> bytes:
    """Return the publish of one schedule; `prefix` is empty, or `X-` for the portable headers."""
    block = b"NATS/1.0\r\n%bNats-Schedule: %b\r\n%bNats-Schedule-Target: %b.out\r\n\r\n" % (
        prefix,
        pattern.encode(),
        prefix,
        stream.encode(),
    )
    return frame(f"{stream}.s.{number}", reply, block, BODY)


async def store(connection: Connection, stream: str, patterns: Iterable[str], prefix: bytes) -> int:
    """Store one schedule for each pattern, a window of acknowledgements at a time; returns how many."""
    acknowledged = 0
    wake = asyncio.Event()

    def sink(_subject: bytes, _reply: bytes, _block: bytes, body: bytes) -> None:
        nonlocal acknowledged
        if b'"error"' in body:
            raise AssertionError(f"the server refused a schedule: {body!r}")
        acknowledged += 1
        wake.set()

    inbox = connection.inbox("load")
    sid = connection.subscribe(inbox, sink)
    sent = 0
    frames: list[bytes] = []
    for pattern in patterns:
        frames.append(schedule_frame(stream, sent, pattern, prefix, inbox))
        sent += 1
        if len(frames) == WINDOW // 4:
            connection.write(b"".join(frames))
            frames = []
            while sent - acknowledged > WINDOW:
                wake.clear()
                await wake.wait()
    connection.write(b"".join(frames))
    while acknowledged < sent:
        wake.clear()
        await wake.wait()
    connection.unsubscribe(sid)
    return sent


def at_patterns(dues: Iterable[int]) -> Iterable[str]:
    """Return an `@at` pattern for each due time (ns)."""
    return (f"@at {format_rfc3339(due)}" for due in dues)


async def generated(connection: Connection, api: JetStreamApi, stream: str) -> list[StoredMessage]:
    """Return every generated message of a stream, headers only."""
    found: list[StoredMessage] = []
    caught_up = asyncio.Event()

    def tell(fact: Input) -> None:
        if isinstance(fact, MessagesRead):
            found.extend(message for message in fact.messages if message.subject == f"{stream}.out")
        elif isinstance(fact, CaughtUp):
            caught_up.set()

    follower = asyncio.create_task(ConsumerFollower(connection, api, {"name": stream}, tell).follow(0))
    await caught_up.wait()
    follower.cancel()
    await asyncio.gather(follower, return_exceptions=True)
    return found


def schedule_number(message: StoredMessage) -> int:
    """Return the number of the schedule that a generated message came from."""
    value = header_value(message.block, b"Nats-Scheduler") or header_value(message.block, b"X-Nats-Scheduler")
    assert value is not None, message.block
    return int(value.rsplit(b".", 1)[1])
